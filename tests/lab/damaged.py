"""Damages the folder of a run, and stops a run at a step."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from whorl.lab import TrainingProgress

__all__ = ["Edit", "contents", "flip", "interrupt_at", "lines", "replaced", "tell", "without"]

safetensors = pytest.importorskip("safetensors.torch")

Edit = Callable[[Path], None]


def interrupt_at(step: int) -> Callable[[TrainingProgress], None]:
    def interrupt(moment: TrainingProgress) -> None:
        if (moment.phase, moment.done) == ("training", step):
            os.kill(os.getpid(), signal.SIGINT)

    return interrupt


def contents(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118


def flip(name: str) -> Edit:
    """One bit of a tensor's data."""

    def edit(folder: Path) -> None:
        path = folder / "checkpoint.safetensors"
        tensors, about = contents(path)
        tensors[name].reshape(-1).view(torch.uint8)[-1] ^= 1
        path.write_bytes(safetensors.save(tensors, about))

    return edit


def tell(**changes: str) -> Edit:
    """Another step, another time, in the header."""

    def edit(folder: Path) -> None:
        path = folder / "checkpoint.safetensors"
        tensors, about = contents(path)
        path.write_bytes(safetensors.save(tensors, about | changes))

    return edit


def without(name: str) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / "checkpoint.safetensors"
        tensors, about = contents(path)
        del tensors[name]
        path.write_bytes(safetensors.save(tensors, about))

    return edit


def replaced(file: str, pattern: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        text = (folder / file).read_text()
        changed, count = re.subn(pattern, new, text, count=1)
        assert count == 1
        assert changed != text
        (folder / file).write_text(changed)

    return edit


def lines(change: Callable[[list[str]], list[str]]) -> Edit:
    def edit(folder: Path) -> None:
        path = folder / "metrics.jsonl"
        text = "".join(change(path.read_text().splitlines(keepends=True)))
        path.write_bytes(text.encode(errors="surrogateescape"))

    return edit
