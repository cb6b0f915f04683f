"""Training of an image classifier, which can be interrupted at any time, and its accuracy.

A step depends only on the settings, its number and the checkpoint, as in ``trainer.py``.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from whorl._support.signals import watch_signals

from .checkpoint import CheckpointInfo, read_checkpoint
from .config import TrainingConfig
from .images import TRAINED_SIZE, ImageBatch, ImageTask
from .integrity import read_checked, write_checked
from .optimization import TrainingOptimizer, compute_rate_share
from .trainer import Interrupted, TrainingProgress
from .vision import Coordinates, VisionTransformer

__all__ = ["compute_accuracy", "train_classifier"]

_SECONDS_BETWEEN_CHECKPOINTS = 20.0
#: Points of a learning curve.
_VALIDATIONS = 12
_IMAGES_PER_PASS = 100

#: Steps and the accuracy on test images after each.
AccuracyCurve = dict[str, list[float]]


def train_classifier(
    model: VisionTransformer,
    task: ImageTask,
    training: TrainingConfig,
    path: Path,
    *,
    asked: str,
    show: Callable[[TrainingProgress], None],
    force: bool = False,
) -> AccuracyCurve:
    """Train ``model`` to the last step, from the checkpoint ``path`` if there is one.

    Returns the accuracy on the images of the test at some steps. asked: a checksum of all settings;
    a checkpoint of others is refused, or replaced with force.

    Raises:
        Interrupted: after SIGINT or SIGTERM, when the checkpoint is saved.
        ValueError: the checkpoint is that of other settings, or the training diverged.
    """
    optimizer = TrainingOptimizer(model, training)
    info, curve = CheckpointInfo(0, 0.0, config=asked), AccuracyCurve(x=[], y=[])
    if path.exists() and not (force and read_checkpoint(path).info.config != asked):
        info, curve = _load_checkpoint(path, asked, model, optimizer)
    steps, test = training.steps, task.get_test(TRAINED_SIZE)
    marks = {max(1, n * steps // _VALIDATIONS) for n in range(1, _VALIDATIONS + 1)}
    saved = time.monotonic()
    with watch_signals() as stop:
        for step in range(info.step + 1, steps + 1):
            loss = _take_step(
                model, optimizer, task.get_batch(step, training.batch), training, step
            )
            if step in marks:
                curve["x"].append(step)
                curve["y"].append(compute_accuracy(model, test))
            show(TrainingProgress("training", step, steps, loss))
            due = time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS
            if stop.is_set() or step == steps or due:
                _save_checkpoint(path, step, asked, model, optimizer, curve)
                saved = time.monotonic()
            if stop.is_set():
                raise Interrupted
    return curve


@torch.no_grad()
def compute_accuracy(
    model: VisionTransformer, batch: ImageBatch, coordinates: Coordinates = "rescaled"
) -> float:
    """Share of images whose class is predicted correctly."""
    right = 0
    pairs = (torch.split(one, _IMAGES_PER_PASS) for one in (batch.images, batch.labels))
    for images, labels in zip(*pairs, strict=True):
        right += int((model(images, coordinates=coordinates).argmax(-1) == labels).sum())
    return right / len(batch.labels)


def _take_step(
    model: VisionTransformer,
    optimizer: TrainingOptimizer,
    batch: ImageBatch,
    training: TrainingConfig,
    step: int,
) -> float:
    loss = F.cross_entropy(model(batch.images), batch.labels)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(model.parameters(), training.clip)
    if not bool(torch.isfinite(loss)) or not bool(torch.isfinite(norm)):
        raise ValueError(
            f"training diverged at step {step}: the loss is {float(loss.detach())}, the"
            f" gradient norm {float(norm)}; lower the learning rates."
        )
    optimizer.step(compute_rate_share(training, step))
    return float(loss.detach())


def _load_checkpoint(
    path: Path, asked: str, model: VisionTransformer, optimizer: TrainingOptimizer
) -> tuple[CheckpointInfo, AccuracyCurve]:
    """Read weights, optimizer and the points of the curve up to the step of the checkpoint."""
    saved = read_checkpoint(path)
    if saved.info.config != asked:
        raise ValueError(
            f"{str(path)!r} has other settings. Choose another folder, or pass force=True to"
            " replace it."
        )
    saved.load(model, optimizer)
    points: dict[str, Any] = read_checked(path.with_suffix(".json"))
    count = sum(x <= saved.info.step for x in points["x"])
    return saved.info, AccuracyCurve(x=points["x"][:count], y=points["y"][:count])


def _save_checkpoint(
    path: Path,
    step: int,
    asked: str,
    model: VisionTransformer,
    optimizer: TrainingOptimizer,
    curve: AccuracyCurve,
) -> None:
    write_checked(path.with_suffix(".json"), curve)  # first: it may be ahead of the checkpoint
    CheckpointInfo(step, 0.0, config=asked).save(path, model, optimizer)
