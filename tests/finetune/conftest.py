"""Small models to fine-tune: a Llama of transformers, and a run of the lab."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.extend.weights import TEXT, save_llama
from whorl import lab


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("models") / "llama", max_position_embeddings=16)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = lab.RunConfig(
        model=lab.ModelConfig(layers=2, width=16, heads=2),
        data=lab.DataConfig(files=(str(write_text(tmp_path_factory.mktemp("data"))),)),
        training=lab.TrainingConfig(length=16, batch=2, steps=2, warmup=1),
        evaluation=lab.EvaluationConfig(multiples=(1.0, 2.0), windows=2),
    )
    return lab.train(config, tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path)


def write_text(folder: Path) -> Path:
    file = folder / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file
