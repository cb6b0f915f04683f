"""Checkpoints of a run: weights, the state of the optimizer and the step in one safetensors file.

A run that is resumed needs nothing else: batches and dropout depend on the seed and the step only.
The file has a checksum for each tensor and one for the rest. A file with a wrong one is refused.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from whorl._support.extras import import_extra
from whorl._support.files import write_file_atomically
from whorl._support.words import quote
from whorl.processes import split_like

from .integrity import FORMAT, check_format, compute_checksum, compute_tensor_checksum

__all__ = [
    "CheckpointInfo",
    "NamedWeights",
    "OptimizerState",
    "SavedCheckpoint",
    "read_checkpoint",
]

_WEIGHT_PREFIX, _OPTIMIZER_PREFIX = "model.", "optimizer."
#: What Muon and AdamW remember of a weight.
_STATE_KEYS = ("momentum_buffer", "step", "exp_avg", "exp_avg_sq")


class NamedWeights(Protocol):
    """A model, or the part of one that is trained."""

    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        """Names and weights."""


class OptimizerState(Protocol):
    """What an optimizer remembers of each weight."""

    def get_state(self, weight: Tensor) -> Mapping[str, Tensor]:
        """What it remembers of a weight, by name; empty before the first step."""

    def load_state(self, weight: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set what it remembers of a weight."""


@dataclass(frozen=True)
class CheckpointInfo:
    """Step of a checkpoint, seconds of training until then, and checksums.

    metrics: checksum of the step's line in metrics.jsonl. config: checksum of the run's config.
    checksum: that of the checkpoint itself.
    """

    step: int
    seconds: float
    metrics: str = ""
    config: str = ""
    checksum: str = ""

    def save(self, path: Path, model: NamedWeights, optimizer: OptimizerState) -> "CheckpointInfo":
        """Write a checkpoint to ``path`` atomically; returns this object with its checksum."""
        safe = import_extra("safetensors.torch", by="whorl.lab", extra="lab")
        tensors: dict[str, Tensor] = {}
        for name, weight in model.named_parameters():
            tensors[_WEIGHT_PREFIX + name] = weight.detach().cpu().contiguous()
            for key, value in optimizer.get_state(weight).items():
                tensors[f"{_OPTIMIZER_PREFIX}{key}.{name}"] = value.cpu().contiguous()
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
    """A checkpoint that was read from a file, with correct checksums."""

    path: Path
    info: CheckpointInfo
    tensors: Mapping[str, Tensor]

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights, by their names in the model."""
        tensors = self.tensors.items()
        found = {name: one for name, one in tensors if name.startswith(_WEIGHT_PREFIX)}
        return {name.removeprefix(_WEIGHT_PREFIX): one for name, one in found.items()}

    @torch.no_grad()
    def load_weights(self, model: NamedWeights) -> None:
        """Copy the weights into ``model``."""
        for name, weight in model.named_parameters():
            saved = self.tensors.get(_WEIGHT_PREFIX + name)
            if saved is None or saved.shape != weight.shape:
                came = "nothing" if saved is None else list(saved.shape)
                raise ValueError(
                    f"{str(self.path)!r} does not fit the model: {name} must have shape"
                    f" {list(weight.shape)}; got {came}."
                )
            weight.copy_(saved)

    def load(self, model: NamedWeights, optimizer: OptimizerState) -> None:
        """Copy the weights into ``model`` and the saved state into ``optimizer``."""
        self.load_weights(model)
        self.load_optimizer(model, optimizer)

    def load_optimizer(self, model: NamedWeights, optimizer: OptimizerState) -> None:
        """Copy the saved state into ``optimizer``; the weights of ``model`` may be in shards."""
        for name, weight in model.named_parameters():
            state: dict[str, Any] = {}
            for key in _STATE_KEYS:
                if (value := self.tensors.get(f"{_OPTIMIZER_PREFIX}{key}.{name}")) is not None:
                    whole = value.to(weight.device, copy=True)
                    state[key] = split_like(whole, weight) if value.dim() else whole
            if state:
                optimizer.load_state(weight, state)


def read_checkpoint(path: Path) -> SavedCheckpoint:
    """The checkpoint in a file; ValueError if the file was changed after it was written."""
    safe = import_extra("safetensors", by="whorl.lab", extra="lab")
    try:
        with safe.safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, safe.SafetensorError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}.") from None
    if not {"step", "seconds"} <= about.keys():
        raise ValueError(f"{str(path)!r} cannot be read: it is not a checkpoint of whorl train.")
    check_format(about.get("format"), path.name)
    if about.pop("checksum", None) != (found := compute_checksum(about)):
        raise ValueError(
            f"{path.name} has been changed since it was written: the checksum of its step, seconds"
            " and list of tensors does not fit"
        )
    checksums = json.loads(about["tensors"])
    if strange := checksums.keys() ^ tensors.keys():
        raise ValueError(
            f"{path.name} has tensors that it should not, or lacks some: {min(strange)}"
        )
    for name, tensor in tensors.items():
        if compute_tensor_checksum(tensor) != checksums[name]:
            raise ValueError(
                f"{path.name}: the tensor {quote(name)} has been changed since it was written: its"
                " checksum does not fit"
            )
    rest = (about["metrics"], about["config"], found)
    info = CheckpointInfo(int(about["step"]), float(about["seconds"]), *rest)
    return SavedCheckpoint(path, info, tensors)
