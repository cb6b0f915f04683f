"""Stages of a training: lengths, batches and rates by step, results of each, exact resumption."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from whorl.lab import (
    Interrupted,
    Run,
    RunConfig,
    TrainingConfig,
    TrainingProgress,
    TrainingStage,
    collect_results,
    train,
    use_threads,
)
from whorl.lab.compare import ComparisonPlan
from whorl.lab.data import open_data_source
from whorl.lab.optimization import compute_rate_share

STAGES = (
    TrainingStage(length=16, batch=4, steps=2),
    TrainingStage(length=40, batch=2, steps=3, learning_rate=0.02),
    TrainingStage(length=32, batch=3, steps=2),
)
SAME = ("step", "loss", "learning_rate", "gradient_norm", "validation_loss", "stage")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with use_threads(1):
        yield


@pytest.fixture(scope="module")
def staged(small: RunConfig) -> RunConfig:
    return replace(small, training=TrainingConfig(stages=STAGES, warmup=2, learning_rate=0.01))


@pytest.fixture(scope="module")
def whole(staged: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    with use_threads(1):
        return train(staged, tmp_path_factory.mktemp("stages") / "run")


def read_numbers(run: Run) -> list[list[Any]]:
    return [[line.get(name) for name in SAME] for line in run.read_metrics()]


def test_steps_length_and_batch_follow(staged: RunConfig) -> None:
    training = staged.training
    assert (training.steps, training.length, training.batch) == (7, 32, 3)
    assert staged.lengths == [16, 32, 128]
    assert [training.find_stage(n)[0] for n in range(1, 8)] == [0, 0, 1, 1, 1, 2, 2]
    assert [training.is_stage_end(n) for n in range(1, 8)] == [n in (2, 5, 7) for n in range(1, 8)]
    assert training.count_tokens(4) == 2 * 64 + 2 * 80
    assert training.count_tokens(7) == 2 * 64 + 3 * 80 + 2 * 96
    assert training.find_stage(8)[0] == 2  # a measurement of speed may take more steps
    longer = TrainingStage(length=200, batch=1, steps=1)
    assert replace(staged, training=TrainingConfig(stages=(longer, *STAGES))).longest == 200


def test_toml_round_trip(staged: RunConfig, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(staged.to_toml())
    assert "stages = [" in path.read_text()
    assert RunConfig.from_toml(path) == staged
    assert "stages" not in RunConfig().to_toml()


def test_one_line_of_rates(staged: RunConfig) -> None:
    """Warm-up of 2 of 7 steps, then a line to zero; twice as high in the second stage."""
    line = [1 / 2, 2 / 2, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    expected = [share * (2 if n in (2, 3, 4) else 1) for n, share in enumerate(line)]
    found = [compute_rate_share(staged.training, step) for step in range(1, 8)]
    assert found == pytest.approx(expected)


def test_batches(staged: RunConfig) -> None:
    source = open_data_source(staged)
    shapes = [tuple(source.get_batch(step).tokens.shape) for step in range(1, 8)]
    assert shapes == [(4, 16)] * 2 + [(2, 40)] * 3 + [(3, 32)] * 2
    task = open_data_source(replace(staged, data=replace(staged.data, task="copy", files=())))
    assert task.get_batch(4).tokens.shape == (2, 39)  # 40 bytes, less the one after the last
    assert task.get_validation(16).tokens.shape == (64, 15)


def test_every_stage_has_results(whole: Run, staged: RunConfig) -> None:
    """Those of the last stage are computed here again, from the checkpoint."""
    found = collect_results(whole)["stages"]
    names = ("stage", "length", "batch", "steps")
    expected = [[n + 1, x.length, x.batch, x.steps] for n, x in enumerate(STAGES)]
    assert [[one[name] for name in names] for one in found] == expected
    batch = open_data_source(staged).get_validation(32)
    with torch.no_grad():
        logits = whole.load_model()(batch.tokens)
    loss = float(F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()))
    right = float((logits.argmax(-1) == batch.targets).float().mean())
    assert found[-1]["loss"] == pytest.approx(loss, abs=1e-5)
    assert found[-1]["accuracy"] == pytest.approx(right, abs=1e-6)
    assert found[-1]["loss"] == pytest.approx(whole.read_metrics()[-1]["validation_loss"], abs=1e-5)


@pytest.mark.parametrize("stop_at", [2, 4])
def test_it_resumes_in_and_between_stages(
    staged: RunConfig, whole: Run, tmp_path: Path, stop_at: int
) -> None:
    def interrupt(moment: TrainingProgress) -> None:
        if (moment.phase, moment.done) == ("training", stop_at):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(staged, tmp_path / "run", progress=interrupt)
    run = train(staged, tmp_path / "run")
    assert read_numbers(run) == read_numbers(whole)
    assert collect_results(run)["stages"] == collect_results(whole)["stages"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 5", r"training.steps must be left out or be 2, which follows from training.st"),
        ("length = 128", r"training.length must be left out or be 16, .*; got 128"),
        ("batch = 8", r"training.batch must be left out or be 4"),
    ],
)
def test_contradictions(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    stage = "[[training.stages]]\nlength = 16\nbatch = 4\nsteps = 2\n"
    path.write_text(f"[training]\n{text}\n{stage}")
    with pytest.raises(ValueError, match=message):
        RunConfig.from_toml(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{length = 16}", r"\[\[training.stages\]\] needs batch, steps in every table"),
        ("{lenght = 16}", r"\[training.stages\] has no option 'lenght'; did you mean 'length'"),
        ("3", r"\[training.stages\] must be a table of options; got 3"),
        ("{length = 1, batch = 1, steps = 1}", r"training.stages: length must be a whole number"),
        ("{length = 8, batch = 0, steps = 1}", r"training.stages: batch must be a whole number"),
        (
            "{length = 8, batch = 1, steps = 1, learning_rate = 0}",
            r"training.stages: learning_rate must be a number above 0",
        ),
    ],
)
def test_bad_stages(text: str, message: str, tmp_path: Path) -> None:
    (path := tmp_path / "c.toml").write_text(f"training.stages = [{text}]\n")
    with pytest.raises(ValueError, match=message):
        RunConfig.from_toml(path)


def test_stages_are_refused_elsewhere(staged: RunConfig) -> None:
    with pytest.raises(TypeError, match=r"training.stages must be stages; got \[3\]"):
        TrainingConfig(stages=(3,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"training.stages: a comparison trains at one length"):
        ComparisonPlan(encodings=("rope",), base=staged)
