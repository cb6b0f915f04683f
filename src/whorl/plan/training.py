"""Memory and time of a training step, and the fewest devices that hold it.

Per number that is trained, 16 bytes: bfloat16 weights and gradients, and in float32 the weights and
two averages of AdamW (Rajbhandari et al. 2019, ZeRO, https://arxiv.org/abs/1910.02054); in float32
weights, gradients and averages. FSDP shares them evenly. Kept for gradients, by token and layer:

    6 width + 4 H D + 3 G D + 4 inner        inputs and results of norms, projections and the MLP
    width                                    if layers are computed again in the backward pass

and 4 vocabulary float32 for the logits, the loss and their gradients. Context parallel shares
tokens. All of it times ``OVERHEAD``, which was fitted on a measured model.
"""

from dataclasses import asdict, dataclass
from typing import Any

from .devices import Device
from .encodings import ModelAttention

__all__ = [
    "OVERHEAD",
    "USABLE",
    "TrainingPlan",
    "count_activations",
    "count_operations",
    "plan_training",
]

#: The share of a device's memory that is planned with; the rest is for the framework.
USABLE = 0.9
#: Measured activations of the smaller model by computed ones: scripts/plan-calibration.
OVERHEAD = 1.27
_STATE = 16
_MOST_DEVICES = 1 << 16


@dataclass(frozen=True)
class TrainingPlan:
    """A training step of ``batch`` sequences on each group of ``context`` devices.

    Bytes are those of one device. seconds: of a step by what takes longest: operations, memory or
    link; the three are taken to overlap.
    """

    devices: int
    context: int
    recompute: bool
    sharding: str
    states: float
    activations: float
    gathered: float
    seconds: float
    limited_by: str
    tokens_per_second: float

    @property
    def memory(self) -> float:
        return self.states + self.activations + self.gathered

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "memory": self.memory}


def count_operations(attention: ModelAttention) -> float:
    """Operations of one token in a forward pass, two for each product and sum."""
    size = attention.size
    matrices = size.layers * size.layer_matrices + size.vocabulary * size.width
    return 2.0 * matrices + attention.count_operations()


def count_activations(
    attention: ModelAttention, batch: int, tokens: float, width: int, *, recompute: bool
) -> float:
    """Bytes that are kept for gradients, with numbers of ``width`` bytes."""
    size = attention.size
    wide, narrow = size.heads * size.head_dim, size.kv_heads * size.head_dim
    layer = tokens * width * (6 * size.width + 4 * wide + 3 * narrow + 4 * size.inner)
    layer += attention.count_scores(batch)
    logits = tokens * size.vocabulary * 16
    stored = tokens * width * size.width * size.layers + layer if recompute else size.layers * layer
    return OVERHEAD * (stored + logits)


def plan_training(
    attention: ModelAttention, batch: int, device: Device, width: int
) -> TrainingPlan:
    """The plan with the fewest devices; without computing layers again if that needs no more."""
    room = USABLE * device.memory
    count = 1
    while count <= _MOST_DEVICES:
        for recompute in (False, True):
            context = 1
            while context <= count:
                plan = _build_plan(attention, batch, device, width, count, context, recompute)
                if plan.memory <= room:
                    return plan
                context *= 2
        count *= 2
    raise ValueError(
        f"length must be one whose training fits on {_MOST_DEVICES:,} devices with"
        f" {device.memory / 1e9:,.0f} GB each; got {attention.length:,} with batch {batch}. Make"
        " the batch or the model smaller, or memory larger."
    )


def _build_plan(
    attention: ModelAttention,
    batch: int,
    device: Device,
    width: int,
    count: int,
    context: int,
    recompute: bool,
) -> TrainingPlan:
    size, tokens = attention.size, batch * attention.length / context
    parameters = size.parameters + attention.parameters
    layer = size.layer_parameters + attention.layer_parameters
    gathered = 0.0
    if count > 1:  # this layer and the next one, and the embedding
        gathered = width * (2.0 * layer + size.vocabulary * size.width)
    if context > 1:  # keys and values of all tokens, of one layer
        gathered += 4.0 * batch * attention.length * size.kv_heads * size.head_dim * width
    activations = count_activations(attention, batch, tokens, width, recompute=recompute)
    times = {
        "operations": tokens
        * count_operations(attention)
        * (4 if recompute else 3)
        / (device.flops * device.efficiency),
        "memory": 2.0 * _STATE * parameters / count / device.bandwidth,
        "link": 3.0 * width * parameters * (count - 1) / count / device.link,
    }
    limit = max(times, key=lambda name: times[name])
    seconds = times[limit]
    return TrainingPlan(
        devices=count,
        context=context,
        recompute=recompute,
        sharding=_name_sharding(count, context),
        states=_STATE * parameters / count,
        activations=activations,
        gathered=gathered,
        seconds=seconds,
        limited_by=limit,
        tokens_per_second=tokens * count / seconds,
    )


def _name_sharding(count: int, context: int) -> str:
    if count == 1:
        return "none: one device holds it"
    if context == 1:
        return f"FSDP2 over {count} devices"
    return f"FSDP2 over {count} devices, each sequence over {context} of them"
