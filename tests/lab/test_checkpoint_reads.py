"""Checkpoints are read once, and every tensor gets one checksum."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.lab import Run, RunConfig, checkpoint, train
from whorl.lab.attention import compute_attention
from whorl.lab.checkpoint import read_checkpoint
from whorl.lab.integrity import compute_tensor_checksum

from .damaged import contents

pytest.importorskip("safetensors")

pytestmark = pytest.mark.usefixtures("interruptible")


def test_hashing_reads_every_tensor_once(half: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in proportion to the file: no tensor is hashed twice on one view."""
    seen: list[int] = []

    def count(tensor: torch.Tensor) -> str:
        seen.append(tensor.numel())
        return compute_tensor_checksum(tensor)

    monkeypatch.setattr("whorl.lab.checkpoint.compute_tensor_checksum", count)
    assert read_checkpoint(half.checkpoint_path).info.step == 5
    assert len(seen) == len(contents(half.checkpoint_path)[0])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files that are opened as safetensors, and of tensors that get a checksum."""
    found: list[str] = []
    module = importlib.import_module("safetensors")
    opener, summed = module.safe_open, compute_tensor_checksum

    def open_file(path: Path, **options: Any) -> Any:
        found.append(Path(path).name)
        return opener(path, **options)

    def sum_tensor(tensor: torch.Tensor) -> str:
        found.append("tensor")
        return summed(tensor)

    monkeypatch.setattr(module, "safe_open", open_file)
    monkeypatch.setattr(checkpoint, "compute_tensor_checksum", sum_tensor)
    return found


def test_a_resumed_run_reads_its_checkpoint_once(
    half: Run, small: RunConfig, reads: list[str]
) -> None:
    count = len(contents(half.checkpoint_path)[0])
    reads.clear()
    run = train(small, half.folder, scalings=("yarn",))
    # Once to go on, and once more all tensors of the checkpoint at the end are given checksums.
    assert reads == ["checkpoint.safetensors", *["tensor"] * 2 * count]
    assert run.take_checkpoint() is None  # and it is not kept in memory
    reads.clear()
    run = train(small, half.folder, scalings=("yarn",))  # whose results are there already
    assert reads == ["checkpoint.safetensors", *["tensor"] * count]
    assert run.take_checkpoint() is None
    run.evaluation_path("yarn").unlink()
    reads.clear()
    run = train(small, half.folder, scalings=("yarn",))
    assert reads == ["checkpoint.safetensors", *["tensor"] * count]
    run.verify()


@pytest.mark.parametrize("use", ["model", "attention"])
def test_a_trained_model_is_read_once(whole: Run, reads: list[str], use: str) -> None:
    count = len(contents(whole.checkpoint_path)[0])
    reads.clear()
    if use == "model":
        whole.load_model()
    else:
        compute_attention(whole.folder, windows=1)
    assert reads == ["checkpoint.safetensors", *["tensor"] * count]


def test_a_run_that_did_not_fit_is_forgotten(half: Run, small: RunConfig) -> None:
    assert not half.is_finished(small, {"sha256": "another"})
    assert half.take_checkpoint() is None
