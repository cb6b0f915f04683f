"""All of a plan: a model, its attention, a device, training and generating."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from whorl._support.options import check_choice
from whorl._support.words import quote
from whorl.configs import read_config
from whorl.configs.names import resolve_config

from .calibration import CALIBRATION
from .devices import Device, get_device
from .encodings import AttentionKind, ModelAttention, build_attention
from .model import ModelSize, read_size, solve_size
from .serving import ServingPlan, plan_serving
from .training import TrainingPlan, plan_training

__all__ = ["ModelPlan", "plan_model"]

Precision = Literal["bfloat16", "float32"]


@dataclass(frozen=True)
class ModelPlan:
    """What a model needs, computed from its sizes.

    training or serving is None where no number of devices does it; ``refused`` says why.
    """

    attention: ModelAttention
    batch: int
    precision: Precision
    device: Device
    training: TrainingPlan | None
    serving: ServingPlan | None
    refused: tuple[str, ...]

    @property
    def size(self) -> ModelSize:
        return self.attention.size

    @property
    def length(self) -> int:
        return self.attention.length

    def to_dict(self) -> dict[str, Any]:
        return {
            "computed": True,
            "calibration": CALIBRATION.to_dict(),
            "model": self.size.to_dict(),
            "encoding": self.attention.encoding,
            "encoding_parameters": self.attention.parameters,
            "attention": self.attention.kind,
            "length": self.length,
            "batch": self.batch,
            "precision": self.precision,
            "device": asdict(self.device),
            "training": None if self.training is None else self.training.to_dict(),
            "serving": None if self.serving is None else self.serving.to_dict(),
            "refused": list(self.refused),
        }


def plan_model(
    config: Any = None,
    *,
    length: int,
    parameters: float | None = None,
    encoding: str | None = None,
    attention: AttentionKind = "softmax",
    window: int | None = None,
    batch: int = 1,
    precision: Precision = "bfloat16",
    device: str = "h100",
    memory: float | None = None,
    flops: float | None = None,
    bandwidth: float | None = None,
    link: float | None = None,
    efficiency: float | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    vocabulary: int | None = None,
) -> ModelPlan:
    """Memory, time and devices of a model at a length, computed and not measured.

    Args:
        config: a config.json, its folder or a preset; else ``parameters`` and sizes.
        length: tokens of a sequence, in training and when generating.
        encoding: by name; that of the config by default, or rope.
        attention: "linear" has a state of constant size instead of keys.
        window: keys that a query sees at most, in every layer.
        batch: sequences at once: in training for each group of devices that shares a sequence.
        device: a name of ``DEVICES``; ``memory``, ``flops``, ``bandwidth``, ``link`` (in bytes and
            per second) and ``efficiency`` replace its own.
        layers, width, heads, kv_heads, vocabulary: of the model; usual ones by default.

    >>> import whorl
    >>> plan = whorl.plan.plan_model(parameters=7e9, length=8192)
    >>> plan.training.devices, plan.serving.devices
    (2, 1)
    """
    _check_count(length, "length")
    _check_count(batch, "batch")
    check_choice(precision, ("bfloat16", "float32"), "precision", "plan")
    given = {"layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads}
    given["vocabulary"] = vocabulary
    for name, value in given.items():
        if value is not None:
            _check_count(value, name)
    numbers = {"memory": memory, "flops": flops, "bandwidth": bandwidth, "link": link}
    found = get_device(device, precision, **numbers, efficiency=efficiency)
    if config is None:
        if parameters is None:
            raise ValueError("parameters must be given without a config, such as 7e9; got None.")
        size = solve_size(parameters, given)
    else:
        config = resolve_config(config)
        size = read_size(config, given, parameters)
        encoding = encoding or _find_encoding(config)
    size = size.limit_windows(window)
    attended = build_attention(encoding or "rope", attention, size, length)
    bytes_each = 2 if precision == "bfloat16" else 4
    refused: list[str] = []
    plans: list[Any] = []
    for make_plan in (plan_training, plan_serving):
        try:
            plans.append(make_plan(attended, batch, found, bytes_each))
        except ValueError as error:
            plans.append(None)
            refused.append(str(error))
    training, serving = plans
    return ModelPlan(attended, batch, precision, found, training, serving, tuple(refused))


def _check_count(value: Any, name: str) -> None:
    if type(value) is not int or not 1 <= value <= 1 << 32:
        raise ValueError(f"{name} must be an int from 1 to 2^32; got {quote(value)}.")


def _find_encoding(config: Any) -> str:
    """The name of the encoding that most layers of a config rotate by."""
    rotating = [group for group in read_config(config).groups if group.rotation is not None]
    if not rotating:
        raise ValueError(
            "encoding must be given, because the config says of no rotary embedding; got None."
        )
    group = max(rotating, key=lambda each: len(each.layers))
    assert group.rotation is not None
    return group.rotation.encoding
