"""A step of the fine-tuning: batches, gradients, clipping and AdamW.

A step depends on the settings, its number and the state in the checkpoint only, so that a training
that was stopped continues with the numbers that it would have had.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from whorl.lab.model import derive_seed

from .models import TunedModel
from .positions import sample_positions
from .processes import ProcessGroup
from .settings import FineTuning

__all__ = ["TrainedWeights", "TuningOptimizer", "take_step"]


class TrainedWeights:
    """The parameters of a model that are trained, by name and by part."""

    def __init__(self, model: TunedModel) -> None:
        trained = [(n, w) for n, w in model.module.named_parameters() if w.requires_grad]
        self._weights = dict(trained)
        self.parts: dict[str, list[Tensor]] = defaultdict(list)
        for name, weight in trained:
            self.parts[model.name_part(name)].append(weight)

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]:
        """Names and weights."""
        return self._weights.items()

    def list_gradients(self) -> list[Tensor]:
        """The gradients of all of them."""
        return [w.grad for w in self._weights.values() if w.grad is not None]

    def count(self) -> int:
        """The number of trained parameters."""
        return sum(weight.numel() for weight in self._weights.values())


class TuningOptimizer:
    """AdamW without weight decay, with the moments of YaRN and LongLoRA: 0.9 and 0.95."""

    def __init__(self, weights: TrainedWeights, rate: float) -> None:
        self.rate = rate
        found = [weight for _, weight in weights.named_parameters()]
        self._adam = torch.optim.AdamW(found, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)

    def step(self, share: float) -> None:
        """Update the weights with ``share`` of the learning rate, and drop the gradients."""
        for group in self._adam.param_groups:
            group["lr"] = share * self.rate
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    def get_state(self, weight: Tensor) -> dict[str, Tensor]:
        """What it remembers of a weight, by name; empty before the first step."""
        return dict(self._adam.state.get(weight, {}))

    def load_state(self, weight: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set what it remembers of a weight."""
        self._adam.state[weight] = dict(state)


def take_step(
    model: TunedModel,
    weights: TrainedWeights,
    optimizer: TuningOptimizer,
    settings: FineTuning,
    length: int,
    step: int,
    processes: ProcessGroup,
) -> dict[str, Any]:
    """Update the weights once; returns the step's line of metrics."""
    loss = torch.zeros(())
    for number in range(settings.accumulation):
        loss += _add_gradients(model, settings, length, step, number, processes)
    gradients = weights.list_gradients()
    processes.average_([loss, *gradients])
    norms = {part: _compute_norm(group) for part, group in weights.parts.items()}
    total = math.sqrt(sum(norm * norm for norm in norms.values()))
    if not math.isfinite(float(loss)) or not math.isfinite(total):
        raise ValueError(
            f"training diverged at step {step}: the loss is {float(loss)}, the gradient norm"
            f" {total}; lower learning_rate, which is {optimizer.rate:g}."
        )
    if total > settings.clip:
        torch._foreach_mul_(gradients, settings.clip / total)
    share = settings.compute_rate_share(step)
    optimizer.step(share)
    return {
        "step": step,
        "loss": float(loss),
        "learning_rate": share * optimizer.rate,
        "gradient_norm": total,
        "gradient_norms": {part: float(f"{norm:.4g}") for part, norm in norms.items()},
    }


def _add_gradients(
    model: TunedModel,
    settings: FineTuning,
    length: int,
    step: int,
    number: int,
    processes: ProcessGroup,
) -> Tensor:
    """Add the gradients of one forward pass; returns its share of the loss."""
    source = torch.Generator().manual_seed(derive_seed(settings.seed, "finetune", step, number))
    tokens = model.text.sample_windows(settings.batch, length, source)
    positions = sample_positions(settings.positions, settings.batch, length, model.target, source)
    rows = slice(processes.rank, None, processes.world)
    torch.manual_seed(derive_seed(settings.seed, "dropout", step, number, processes.rank))
    with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bfloat16"):
        loss = model.compute_loss(tokens[rows], None if positions is None else positions[rows])
    share = loss / settings.accumulation
    share.backward()  # type: ignore[no-untyped-call]
    return share.detach()


def _compute_norm(weights: list[Tensor]) -> float:
    grads = [weight.grad for weight in weights if weight.grad is not None]
    return float(torch.stack(torch._foreach_norm(grads)).norm()) if grads else 0.0
