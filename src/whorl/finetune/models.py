"""A model to fine-tune, of either kind, behind one interface."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl.configs import ConfigError
from whorl.extend import ExtensionPlan, plan_extension

from .settings import FineTuning
from .text import TrainingText

__all__ = ["TunedModel", "WrittenTraining", "plan_target"]


@dataclass(frozen=True)
class WrittenTraining:
    """What a training leaves for the folder of the model.

    metrics: the lines of metrics.jsonl. checksum: that of the last line. step, seconds: of the
    last step. command: the command line, for environment.json.
    """

    metrics: bytes
    checksum: str
    step: int
    seconds: float
    command: str = ""


class TunedModel(ABC):
    """A model with the extension put in, and what the training needs of it.

    name: that of the folder it came from. kind: "transformers" or "run". module: float32 weights.
    trained, target: lengths in tokens. scaling: the extension as plain values. text: what it is
    trained on. digest: changes if the weights that it came with do.
    """

    kind: str
    default_learning_rate: float

    def __init__(self, name: str, module: nn.Module, trained: int, target: int) -> None:
        self.name, self.module = name, module
        self.trained, self.target = trained, target
        self.text: TrainingText
        self.scaling: Mapping[str, Any] | None = None
        self.digest = ""

    @property
    def device(self) -> torch.device:
        """The device that the model computes on."""
        return next(self.module.parameters()).device

    @abstractmethod
    def compute_logits(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """Logits [B, T, vocab] of tokens [B, T] at positions [B, T]; None counts from 0."""

    @abstractmethod
    def name_part(self, name: str) -> str:
        """Part of the model that a parameter belongs to: "attention", "mlp", "norms", ..."""

    @abstractmethod
    def use_attention(self, group: int | None) -> None:
        """Attend in shifted groups of so many tokens; None attends to all earlier tokens."""

    @abstractmethod
    def write(self, folder: Path, training: WrittenTraining) -> None:
        """Write the model to an empty folder, in the form that it came in."""

    @torch.no_grad()
    def score_end(self, tokens: Tensor, scored: int) -> float:
        """Mean loss of the last ``scored`` tokens of [T + 1], predicted from all before them."""
        logits = self.compute_logits(tokens[None, :-1], None)[0, -scored:].float()
        return float(F.cross_entropy(logits, tokens[-scored:]))

    def compute_loss(self, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Mean loss in nats of the tokens after the first of each row, [B, T + 1]."""
        logits = self.compute_logits(tokens[:, :-1], positions).flatten(0, 1).float()
        return F.cross_entropy(logits, tokens[:, 1:].flatten())


def plan_target(config: Any, settings: FineTuning) -> ExtensionPlan:
    """The extension of a config by method and factor; by "linear" if positions are dropped."""
    try:
        return plan_extension(
            config,
            to=f"{settings.factor:.9f}x",
            method=settings.method or "linear",
            trained=settings.trained,
        )
    except ConfigError as error:
        words = str(error)
        if words.startswith("to must"):
            words = f"factor x the trained length{words.removeprefix('to')}"
        raise ConfigError(words) from None
