"""A training step: parameter groups, learning rates, gradients, Muon and AdamW.

Muon (muon.py) updates the matrices of the layers, because it takes few steps to a low loss. AdamW
updates the rest, with a learning rate for the parameters of the encoding and another one for
embeddings and norms. One rate for everything would favour encodings without parameters: the 32
numbers per head of T5's bias need a larger one than a matrix.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.processes import ParallelModel, compute_norm, get_local_part

from .config import TrainingConfig
from .data import DataSource
from .model import LanguageModel, derive_seed
from .muon import Muon

__all__ = [
    "VALIDATIONS",
    "LayeredModel",
    "TrainingOptimizer",
    "compute_rate_share",
    "compute_validation_loss",
    "find_device",
    "group_by_part",
    "group_parameters",
    "list_validation_steps",
    "take_step",
    "validate_stage",
]

#: Most points of a learning curve.
VALIDATIONS = 50
_VALIDATION_ROWS = 16  # windows in one forward pass: as many as in a training step


class LayeredModel(Protocol):
    """A model with layers, whose matrices are trained apart from the rest."""

    def named_parameters(self) -> Iterable[tuple[str, Tensor]]:
        """Names and weights."""

    def is_layer_matrix(self, name: str) -> bool:
        """Whether a parameter of two axes is a matrix of the layers."""


class TrainingOptimizer:
    """Muon or AdamW for the matrices of the layers, AdamW for all other parameters."""

    def __init__(self, model: LayeredModel, training: TrainingConfig) -> None:
        groups = group_parameters(model)
        decay = training.weight_decay
        rates = {
            "matrices": training.learning_rate,
            "embeddings": training.embedding_learning_rate,
            "norms": training.embedding_learning_rate,
            "encoding": training.encoding_learning_rate,
        }
        options = [
            {
                "params": list(weights.values()),
                "lr": rates[name],
                "weight_decay": decay if name in ("matrices", "embeddings") else 0.0,
            }
            for name, weights in groups.items()
            if weights
        ]
        self.optimizers: list[torch.optim.Optimizer] = []
        if training.optimizer == "muon":
            self.optimizers.append(Muon([options.pop(0)]))  # the matrices come first
        self.optimizers.append(torch.optim.AdamW(options, betas=(0.9, 0.95), fused=True))
        self._groups = [group for one in self.optimizers for group in one.param_groups]
        self._peaks = [group["lr"] for group in self._groups]

    def step(self, share: float) -> None:
        """Update the weights with ``share`` of every learning rate, and drop the gradients."""
        for group, peak in zip(self._groups, self._peaks, strict=True):
            group["lr"] = share * peak
        for one in self.optimizers:
            one.step()
            one.zero_grad(set_to_none=True)

    def get_state(self, weight: Tensor) -> dict[str, Tensor]:
        """What the optimizer remembers of a weight, by name; empty before the first step."""
        return next((one.state[weight] for one in self.optimizers if weight in one.state), {})

    def load_state(self, weight: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set what the optimizer remembers of a weight."""
        for one in self.optimizers:
            if any(weight is other for group in one.param_groups for other in group["params"]):
                one.state[weight] = dict(state)


def group_parameters(model: LayeredModel) -> dict[str, dict[str, Tensor]]:
    """Parameters by the group that trains them alike: matrices, embeddings, norms, encoding.

    "matrices" are those of the layers; "embeddings" are the token embeddings and the output head;
    "norms" are all vectors, biases among them.
    """
    groups: dict[str, dict[str, Tensor]] = {
        name: {} for name in ("matrices", "embeddings", "norms", "encoding")
    }
    for name, weight in model.named_parameters():
        if "encoding" in name:
            group = "encoding"
        elif weight.dim() < 2:
            group = "norms"
        else:
            group = "matrices" if model.is_layer_matrix(name) else "embeddings"
        groups[group][name] = weight
    return groups


def compute_rate_share(training: TrainingConfig, step: int) -> float:
    """Share of the peak learning rates in a step, counted from 1.

    It rises in a line during the warm-up, then falls in a line, to 0 after the last step. A stage
    with its own learning rate has a share of the same line, multiplied by the ratio of the two.
    """
    own = training.find_stage(step)[1].learning_rate
    ratio = 1.0 if own is None else own / training.learning_rate
    if step <= training.warmup:
        return ratio * (step / training.warmup)
    return ratio * ((training.steps + 1 - step) / (training.steps + 1 - training.warmup))


def list_validation_steps(steps: int) -> list[int]:
    """Steps after which the validation loss is computed: up to 50, evenly spaced, and the last.

    >>> list_validation_steps(10)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    return sorted({max(1, n * steps // VALIDATIONS) for n in range(1, VALIDATIONS + 1)})


@torch.no_grad()
def compute_validation_loss(model: LanguageModel, source: DataSource) -> float:
    """Mean loss in nats of the validation batch; the model is left in training mode."""
    batch, device = source.get_validation(), find_device(model)
    model.eval()
    total, count = 0.0, 0
    pairs = (torch.split(x.to(device), _VALIDATION_ROWS) for x in (batch.tokens, batch.targets))
    for tokens, targets in zip(*pairs, strict=True):
        asked = int((targets >= 0).sum())
        total += asked * float(model.loss(tokens, targets))
        count += asked
    model.train()
    return total / count


@torch.no_grad()
def validate_stage(model: LanguageModel, source: DataSource, length: int) -> dict[str, float]:
    """Loss and accuracy of validation at ``length``; the model is left in training mode."""
    batch, device = source.get_validation(length), find_device(model)
    model.eval()
    loss, right, count = 0.0, 0, 0
    pairs = (torch.split(x.to(device), _VALIDATION_ROWS) for x in (batch.tokens, batch.targets))
    for tokens, targets in zip(*pairs, strict=True):
        asked = targets >= 0
        logits = model(tokens)[asked].float()  # [N, vocab]
        loss += float(F.cross_entropy(logits, targets[asked], reduction="sum"))
        right += int((logits.argmax(-1) == targets[asked]).sum())
        count += len(logits)
    model.train()
    return {"loss": loss / count, "accuracy": right / count}


def find_device(model: LanguageModel) -> torch.device:
    """The device that a model computes on."""
    return next(model.parameters()).device


def group_by_part(model: LanguageModel) -> dict[str, list[Tensor]]:
    """Parameters by the part of the model that they belong to, such as "mlp"."""
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for name, weight in model.named_parameters():
        parts[model.name_part(name)].append(weight)
    return dict(parts)


def take_step(
    parallel: ParallelModel,
    optimizer: TrainingOptimizer,
    source: DataSource,
    training: TrainingConfig,
    step: int,
    parts: Mapping[str, list[Tensor]],
) -> dict[str, Any]:
    """Update the weights once; returns the step's line of metrics."""
    value = _add_gradients(parallel, source, training, step)
    norms = {name: compute_norm(_list_gradients(weights)) for name, weights in parts.items()}
    total = math.sqrt(sum(norm * norm for norm in norms.values()))
    if not math.isfinite(value) or not math.isfinite(total):
        raise ValueError(
            f"training diverged at step {step}: the loss is {value}, the gradient norm {total};"
            f" lower the learning rates ({training.learning_rate:g} for matrices,"
            f" {training.encoding_learning_rate:g} for the encoding,"
            f" {training.embedding_learning_rate:g} for embeddings)."
        )
    if total > training.clip:
        grads = [get_local_part(g) for weights in parts.values() for g in _list_gradients(weights)]
        torch._foreach_mul_(grads, training.clip / total)
    share = compute_rate_share(training, step)
    optimizer.step(share)
    rounded = {name: float(f"{norm:.4g}") for name, norm in norms.items()}
    return {
        "step": step,
        "loss": value,
        "learning_rate": share * training.learning_rate,
        "gradient_norm": total,
        "gradient_norms": rounded,
    }


def _add_gradients(
    parallel: ParallelModel, source: DataSource, training: TrainingConfig, step: int
) -> float:
    """Add the gradients of a step's batch in all processes; returns its mean loss."""
    questions, processes = source.get_batch(step), parallel.processes
    asked = int((questions.targets >= 0).sum())
    passes = processes.split_rows(len(questions.tokens), parallel.passes)
    total = torch.zeros((), device=processes.device)
    for number, rows in enumerate(passes):
        number_and_rank = (number, processes.rank) if len(passes) * processes.world > 1 else ()
        torch.manual_seed(derive_seed(training.seed, "dropout", step, *number_and_rank))
        tokens, targets = questions.tokens[rows], questions.targets[rows]
        weight = int((targets >= 0).sum()) / asked  # so that every target counts alike
        last, bfloat16 = number == len(passes) - 1, training.precision == "bfloat16"
        total += parallel.add_gradients(weight, tokens, targets, last=last, bfloat16=bfloat16)
    processes.sum_([total])
    return float(total)


def _list_gradients(weights: Iterable[Tensor]) -> list[Tensor]:
    return [weight.grad for weight in weights if weight.grad is not None]
