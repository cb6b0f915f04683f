"""A training step: parameter groups, learning rate, gradients, AdamW."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .config import TrainingConfig
from .data import DataSource
from .model import Model, derive_seed

__all__ = [
    "build_optimizer",
    "compute_learning_rate",
    "group_by_part",
    "group_parameters",
    "take_step",
]


def build_optimizer(model: Model, training: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with the betas of Llama, 0.9 and 0.95, and weight decay for some parameters."""
    decayed, others = group_parameters(model)
    groups = [
        {"params": list(decayed.values()), "weight_decay": training.weight_decay},
        {"params": list(others.values()), "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=(0.9, 0.95), fused=True)


def group_parameters(model: Model) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters with weight decay, and those without: norms, biases, all of the encodings."""
    groups: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for name, weight in model.named_parameters():
        without_decay = weight.dim() < 2 or "encoding" in name
        groups[without_decay][name] = weight
    return groups


def compute_learning_rate(training: TrainingConfig, step: int) -> float:
    """Learning rate of a step, counted from 1: warm-up, then half a cosine to a tenth."""
    if step <= training.warmup:
        return training.learning_rate * step / training.warmup
    share = (step - training.warmup) / max(1, training.steps - training.warmup)
    return training.learning_rate * (0.55 + 0.45 * math.cos(math.pi * share))


def group_by_part(model: Model) -> dict[str, list[Tensor]]:
    """Parameters by the part of the model that they belong to, such as "mlp"."""
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for name, weight in model.named_parameters():
        parts[model.name_part(name)].append(weight)
    return dict(parts)


def take_step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    source: DataSource,
    training: TrainingConfig,
    step: int,
    parts: Mapping[str, list[Tensor]],
) -> dict[str, Any]:
    """Update the weights once; returns the step's line of metrics."""
    rate = compute_learning_rate(training, step)
    for group in optimizer.param_groups:
        group["lr"] = rate
    questions = source.get_batch(step)
    torch.manual_seed(derive_seed(training.seed, "dropout", step))
    with torch.autocast("cpu", torch.bfloat16, enabled=training.precision == "bfloat16"):
        loss = model.loss(questions.tokens, questions.targets)
    loss.backward()  # type: ignore[no-untyped-call]
    norms = {name: _compute_norm(weights) for name, weights in parts.items()}
    total = math.sqrt(sum(norm * norm for norm in norms.values()))
    value = float(loss.detach())
    if not math.isfinite(value) or not math.isfinite(total):
        raise ValueError(
            f"training diverged at step {step}: the loss is {value}, the gradient norm {total};"
            f" lower the learning rate of {training.learning_rate}."
        )
    if total > training.clip:
        grads = [w.grad for weights in parts.values() for w in weights if w.grad is not None]
        torch._foreach_mul_(grads, training.clip / total)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    rounded = {name: float(f"{norm:.4g}") for name, norm in norms.items()}
    return {
        "step": step,
        "loss": value,
        "learning_rate": rate,
        "gradient_norm": total,
        "gradient_norms": rounded,
    }


def _compute_norm(weights: list[Tensor]) -> float:
    grads = [weight.grad for weight in weights if weight.grad is not None]
    if not grads:
        return 0.0
    return float(torch.stack(torch._foreach_norm(grads)).norm())
