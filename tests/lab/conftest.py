"""A corpus of a few kilobytes and a model that trains in seconds."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from whorl.lab import (
    DataConfig,
    EvaluationConfig,
    Interrupted,
    ModelConfig,
    Run,
    RunConfig,
    TrainingConfig,
    train,
    use_threads,
)
from whorl.lab.compare import noise

from .damaged import interrupt_at
from .judged import NOISE

pytest.importorskip("safetensors")
pytest.importorskip("tomli_w")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder of twenty small files of different text, which a test may change."""
    return write_texts(tmp_path / "texts")


def write_texts(folder: Path) -> Path:
    folder.mkdir()
    for n in range(20):
        lines = [f"line {m} of text {n}: {m * n} is {m} times {n}.\n" for m in range(40)]
        (folder / f"text{n:02}.txt").write_text("".join(lines))
    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """Eight steps of a model with one layer: a second."""
    texts = write_texts(tmp_path_factory.mktemp("small") / "texts")
    return RunConfig(
        model=ModelConfig(encoding="rope", layers=1, width=32, heads=2),
        data=DataConfig(files=(str(texts),)),
        training=TrainingConfig(length=32, batch=4, steps=8, warmup=2),
        evaluation=EvaluationConfig(multiples=(0.5, 1.0, 4.0), windows=6),
    )


@pytest.fixture(scope="session")
def trained(small: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with one scaling, on one thread, to be copied."""
    with use_threads(1):
        return train(small, tmp_path_factory.mktemp("trained") / "run", scalings=("yarn",)).folder


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other seeds change losses by the numbers of NOISE, not by those that were measured."""
    monkeypatch.setattr(noise, "_load_noise", lambda: NOISE)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """One thread, and Ctrl-C as in a terminal, also where this suite runs in the background."""
    before, handler = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def stopped(small: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was stopped at step 5 of 8, to be copied."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with use_threads(1), pytest.raises(Interrupted):
        train(small, folder, progress=interrupt_at(5))
    signal.signal(signal.SIGINT, handler)
    return folder


@pytest.fixture
def half(stopped: Path, tmp_path: Path) -> Run:
    """A run that was stopped."""
    return Run(shutil.copytree(stopped, tmp_path / "run"))


@pytest.fixture
def whole(trained: Path, tmp_path: Path) -> Run:
    """A run that is finished."""
    return Run(shutil.copytree(trained, tmp_path / "run"))
