"""A corpus of a few kilobytes and a model that trains in seconds."""

from pathlib import Path

import pytest

from whorl.lab import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig

pytest.importorskip("safetensors")
pytest.importorskip("tomli_w")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder of twenty small files of different text."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for n in range(20):
        lines = [f"line {m} of text {n}: {m * n} is {m} times {n}.\n" for m in range(40)]
        (folder / f"text{n:02}.txt").write_text("".join(lines))
    return folder


@pytest.fixture
def small(texts: Path) -> RunConfig:
    """Eight steps of a model with one layer: a second."""
    return RunConfig(
        model=ModelConfig(encoding="rope", layers=1, width=32, heads=2),
        data=DataConfig(files=(str(texts),)),
        training=TrainingConfig(length=32, batch=4, steps=8, warmup=2),
        evaluation=EvaluationConfig(multiples=(0.5, 1.0, 4.0), windows=6),
    )
