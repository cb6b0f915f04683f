"""The state of a training run in one safetensors file: weights, AdamW's averages, the step.

Nothing else is needed to go on exactly: batches and dropout follow from the seed and the step. The
file has a checksum for each tensor and one for the rest, and is refused if one does not fit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.extras import import_extra
from whorl._support.files import write_file_atomically

from .integrity import FORMAT, check_format, compute_checksum, compute_tensor_checksum
from .model import Model

__all__ = ["CheckpointInfo", "SavedCheckpoint", "read_checkpoint"]

_WEIGHT_PREFIX, _OPTIMIZER_PREFIX = "model.", "adamw."


@dataclass(frozen=True)
class CheckpointInfo:
    """Where a run stands: steps done, seconds spent on them, and to what it belongs.

    metrics: checksum of the step's line in metrics.jsonl. config: that of the run's config.
    checksum: of all of the file, as it was read.
    """

    step: int
    seconds: float
    metrics: str = ""
    config: str = ""
    checksum: str = ""

    def save(self, path: Path, model: Model, optimizer: torch.optim.Optimizer) -> "CheckpointInfo":
        """Write ``path`` whole or not at all; returns this with the checksum of what is there."""
        safe = import_extra("safetensors.torch", by="whorl.lab", extra="lab")
        tensors: dict[str, Tensor] = {}
        for name, weight in model.named_parameters():
            tensors[_WEIGHT_PREFIX + name] = weight.detach().contiguous()
            for key, value in optimizer.state.get(weight, {}).items():
                tensors[f"{_OPTIMIZER_PREFIX}{key}.{name}"] = value.contiguous()
        about = {
            "format": str(FORMAT),
            "step": str(self.step),
            "seconds": repr(self.seconds),
            "metrics": self.metrics,
            "config": self.config,
            "tensors": json.dumps(
                {name: compute_tensor_checksum(t) for name, t in tensors.items()}
            ),
        }
        about["checksum"] = compute_checksum(about)
        write_file_atomically(path, safe.save(tensors, about))
        return replace(self, checksum=about["checksum"])


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that was read and has its checksums: where the run stood, and its tensors."""

    path: Path
    at: CheckpointInfo
    tensors: Mapping[str, Tensor]

    @torch.no_grad()
    def load_weights(self, model: Model) -> None:
        """Put the weights into ``model``."""
        for name, weight in model.named_parameters():
            saved = self.tensors.get(_WEIGHT_PREFIX + name)
            if saved is None or saved.shape != weight.shape:
                came = "nothing" if saved is None else list(saved.shape)
                raise ValueError(
                    f"{str(self.path)!r} does not fit the model: {name} must be"
                    f" {list(weight.shape)}; got {came}."
                )
            weight.copy_(saved)

    def load(self, model: Model, optimizer: torch.optim.Optimizer) -> None:
        """Put the weights into ``model``, and AdamW's averages into ``optimizer``."""
        self.load_weights(model)
        for name, weight in model.named_parameters():
            state: dict[str, Any] = {}
            for key in ("step", "exp_avg", "exp_avg_sq"):
                if (value := self.tensors.get(f"{_OPTIMIZER_PREFIX}{key}.{name}")) is not None:
                    state[key] = value.clone()
            if state:
                optimizer.state[weight] = state


def read_checkpoint(path: Path) -> SavedCheckpoint:
    """Read a checkpoint, once; ValueError if anything in the file has changed."""
    safe = import_extra("safetensors", by="whorl.lab", extra="lab")
    try:
        with safe.safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, safe.SafetensorError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}.") from None
    if not {"step", "seconds"} <= about.keys():
        raise ValueError(f"{str(path)!r} cannot be read: it is no checkpoint of whorl train.")
    check_format(about.get("format"), path.name)
    if about.pop("checksum", None) != (found := compute_checksum(about)):
        raise ValueError(
            f"{path.name} has been changed since it was written: the checksum of its step, seconds"
            " and list of tensors does not fit"
        )
    kept = json.loads(about["tensors"])
    if strange := kept.keys() ^ tensors.keys():
        raise ValueError(
            f"{path.name} has tensors that it should not, or lacks some: {min(strange)}"
        )
    for name, tensor in tensors.items():
        if compute_tensor_checksum(tensor) != kept[name]:
            raise ValueError(
                f"{path.name}: the tensor {name!r} has been changed since it was written: its"
                " checksum does not fit"
            )
    rest = (about["metrics"], about["config"], found)
    at = CheckpointInfo(int(about["step"]), float(about["seconds"]), *rest)
    return SavedCheckpoint(path, at, tensors)
