"""Configs: TOML and back, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whorl.lab import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig


def test_toml_round_trip(tmp_path: Path) -> None:
    config = RunConfig(
        model=ModelConfig(encoding=[{"name": "learned"}, {"name": "rope", "base": 500.0}]),
        data=DataConfig(files=("a.txt", "b")),
        training=TrainingConfig(learning_rate=1e-3, seed=3),
        evaluation=EvaluationConfig(multiples=(1.0, 2.0)),
    )
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    assert RunConfig.from_toml(path) == config


def test_what_a_file_leaves_out_takes_its_default(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[training]\nsteps = 7\nlearning_rate = 1\n")
    training = RunConfig.from_toml(path).training
    assert training == TrainingConfig(steps=7, learning_rate=1.0)
    assert type(training.learning_rate) is float


def test_lengths() -> None:
    config = RunConfig(training=TrainingConfig(length=100))
    assert config.lengths == [50, 100, 200, 400, 800, 1600]
    assert config.longest == 1600
    short = replace(config, evaluation=EvaluationConfig(multiples=(0.5, 1.0)))
    assert short.longest == 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[modle]\n", r"unknown table \[modle\]; did you mean 'model'\? Known: model, data, train"),
        ("[model]\nwidht = 3\n", r"\[model\] has no option 'widht'; did you mean 'width'\?"),
        ("model = 3\n", r"\[model\] must be a table of options; got 3\."),
        ("[model]\nkind = 3\n", r"model.kind 3 is unknown. Known: decoder, encoder\."),
        ("[data]\nfiles = 'a'\n", r"data.files must be a list; got 'a'\."),
        ("[data]\ntask = 4\n", r"data.task must be a string; got 4\."),
        ("[model\n", r"config.toml' is not TOML: "),
        ("[training]\nsteps = 0\n", r"training.steps must be a whole number of at least 1; got 0"),
    ],
)
def test_bad_toml(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        RunConfig.from_toml(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none.toml' cannot be read: No such file"):
        RunConfig.from_toml(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("part", "options", "message"),
    [
        (ModelConfig, {"width": 50, "heads": 4}, r"model.width must be a multiple of model.heads"),
        (ModelConfig, {"kv_heads": 3}, r"model.kv_heads must divide model.heads = 4"),
        (ModelConfig, {"layers": True}, r"model.layers must be a whole number of at least 1"),
        (ModelConfig, {"dropout": 1.0}, r"model.dropout must be a number from 0 to 0.95; got 1"),
        (ModelConfig, {"attention": "sofmax"}, r"'sofmax' is unknown; did you mean 'softmax'\?"),
        (ModelConfig, {"attention": "linear", "dropout": 0.1}, r"dropout must be 0 with linear"),
        (DataConfig, {"task": "copi"}, r"data.task 'copi' is unknown; did you mean 'copy'\?"),
        (DataConfig, {"task": "copy", "files": ("a",)}, r"'copy' makes its own tokens; leave out"),
        (DataConfig, {"mixed": ("copi",)}, r"data.mixed 'copi' is unknown; did you mean 'copy'\?"),
        (DataConfig, {"mixed_share": 0.0}, r"data.mixed_share must be a number above 0 and at m"),
        (DataConfig, {"mixed": ("copy",), "task": "copy"}, r"data.mixed adds rows of bytes to te"),
        (TrainingConfig, {"learning_rate": 0.0}, r"learning_rate must be a number above 0 and at"),
        (TrainingConfig, {"learning_rate": float("nan")}, r"learning_rate must be a number above"),
        (TrainingConfig, {"length": 1}, r"training.length must be at least 2"),
        (TrainingConfig, {"seed": -1}, r"training.seed must be a whole number of at least 0"),
        (EvaluationConfig, {"multiples": ("a", 1.0)}, r"evaluation.multiples must be a number ab"),
        (EvaluationConfig, {"multiples": (2.0, 1.0)}, r"must differ and be ascending"),
        (EvaluationConfig, {"multiples": ()}, r"must differ and be ascending"),
        (EvaluationConfig, {"multiples": (-1.0, 1.0)}, r"evaluation.multiples must be a number ab"),
        (EvaluationConfig, {"multiples": (2.0, 4.0)}, r"multiples must contain 1, the trained"),
        (EvaluationConfig, {"factor": 0.5}, r"evaluation.factor must be a number from 1 to 1024"),
    ],
)
def test_bad_options(part: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        part(**options)


def test_multiples_that_come_to_nothing() -> None:
    with pytest.raises(ValueError, match=r"give lengths \[1, 32\]; they must differ and be at"):
        RunConfig(
            training=TrainingConfig(length=32), evaluation=EvaluationConfig(multiples=(0.02, 1.0))
        )


def test_mixed_rows_are_for_a_decoder(tmp_path: Path) -> None:
    data = DataConfig(mixed=("retrieval", "copy"), mixed_share=0.25)
    config = RunConfig(data=data)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    assert RunConfig.from_toml(path) == config
    assert "mixed" not in RunConfig().to_toml()
    with pytest.raises(
        ValueError, match=r"data.mixed is for a decoder, whose rows have answers at"
    ):
        RunConfig(data=data, model=ModelConfig(kind="encoder"))
