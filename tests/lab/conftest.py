"""A corpus of a few kilobytes and a model that trains in seconds."""

from pathlib import Path

import pytest

from whorl.lab import (
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
    train,
    use_threads,
)

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
