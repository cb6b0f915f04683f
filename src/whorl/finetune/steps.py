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
from whorl.processes import ParallelModel, compute_norm, get_local_part

from .models import TunedModel
from .positions import sample_positions
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
        return _list_gradients(list(self._weights.values()))

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
    parallel: ParallelModel,
    weights: TrainedWeights,
    optimizer: TuningOptimizer,
    settings: FineTuning,
    length: int,
    step: int,
) -> dict[str, Any]:
    """Update the weights once; returns the step's line of metrics."""
    loss = torch.zeros((), device=parallel.processes.device)
    for number in range(settings.accumulation):
        loss += _add_gradients(model, parallel, settings, length, step, number)
    parallel.processes.sum_([loss])
    norms = {part: compute_norm(_list_gradients(group)) for part, group in weights.parts.items()}
    total = math.sqrt(sum(norm * norm for norm in norms.values()))
    if not math.isfinite(float(loss)) or not math.isfinite(total):
        raise ValueError(
            f"training diverged at step {step}: the loss is {float(loss)}, the gradient norm"
            f" {total}; lower learning_rate, which is {optimizer.rate:g}."
        )
    if total > settings.clip:
        parts = [get_local_part(gradient) for gradient in weights.list_gradients()]
        torch._foreach_mul_(parts, settings.clip / total)
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
    parallel: ParallelModel,
    settings: FineTuning,
    length: int,
    step: int,
    number: int,
) -> Tensor:
    """Add the gradients of one forward pass; returns its share of the loss."""
    source = torch.Generator().manual_seed(derive_seed(settings.seed, "finetune", step, number))
    tokens = model.text.sample_windows(settings.batch, length, source)
    positions = sample_positions(settings.positions, settings.batch, length, model.target, source)
    (rows,) = parallel.processes.split_rows(settings.batch)
    rank = parallel.processes.rank
    torch.manual_seed(derive_seed(settings.seed, "dropout", step, number, rank))
    mine = tokens[rows]
    return parallel.add_gradients(
        len(mine) / settings.batch / settings.accumulation,
        mine,
        None if positions is None else positions[rows],
        last=number == settings.accumulation - 1,
        bfloat16=settings.precision == "bfloat16",
    )


def _list_gradients(weights: list[Tensor]) -> list[Tensor]:
    return [weight.grad for weight in weights if weight.grad is not None]
