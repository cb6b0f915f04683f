"""The state of a training run in one safetensors file: weights, AdamW's averages, the step.

Nothing else is needed to go on exactly: batches and dropout follow from the seed and the step.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._extras import need

from . import files
from .model import Model

__all__ = ["Checkpoint", "load_weights", "step_of"]

FORMAT = "1"
_WEIGHT, _STATE = "model.", "adamw."


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands: steps done and seconds spent on them."""

    step: int
    seconds: float

    def save(self, path: Path, model: Model, optimizer: torch.optim.Optimizer) -> None:
        """Write ``path`` whole or not at all."""
        safe = need("safetensors.torch", by="whorl.lab", extra="lab")
        tensors: dict[str, Tensor] = {}
        for name, weight in model.named_parameters():
            tensors[_WEIGHT + name] = weight.detach()
            for key, value in optimizer.state.get(weight, {}).items():
                tensors[f"{_STATE}{key}.{name}"] = value
        about = {"format": FORMAT, "step": str(self.step), "seconds": repr(self.seconds)}
        files.write(path, safe.save({k: t.contiguous() for k, t in tensors.items()}, about))

    @classmethod
    def load(cls, path: Path, model: Model, optimizer: torch.optim.Optimizer) -> "Checkpoint":
        """Put a saved state into ``model`` and ``optimizer``."""
        tensors, about = _read(path)
        _fill(model, tensors, path)
        for name, weight in model.named_parameters():
            state: dict[str, Any] = {}
            for key in ("step", "exp_avg", "exp_avg_sq"):
                if (value := tensors.get(f"{_STATE}{key}.{name}")) is not None:
                    state[key] = value.clone()
            if state:
                optimizer.state[weight] = state
        return cls(int(about["step"]), float(about["seconds"]))


def load_weights(path: Path, model: Model) -> int:
    """Put the weights of a checkpoint into ``model``; returns the step that they come from."""
    tensors, about = _read(path)
    _fill(model, tensors, path)
    return int(about["step"])


def step_of(path: Path) -> int:
    """The step that a checkpoint was saved at."""
    return int(_read(path)[1]["step"])


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    safe = need("safetensors", by="whorl.lab", extra="lab")
    try:
        with safe.safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            if about.get("format") != FORMAT:
                raise ValueError("it is no checkpoint of whorl train")
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (OSError, ValueError, safe.SafetensorError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}.") from None


@torch.no_grad()
def _fill(model: Model, tensors: dict[str, Tensor], path: Path) -> None:
    for name, weight in model.named_parameters():
        saved = tensors.get(_WEIGHT + name)
        if saved is None or saved.shape != weight.shape:
            came = "nothing" if saved is None else list(saved.shape)
            raise ValueError(
                f"{str(path)!r} does not fit the model: {name} must be {list(weight.shape)}; got"
                f" {came}."
            )
        weight.copy_(saved)
