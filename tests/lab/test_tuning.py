"""Trials of learning rates: equal terms for all, and a planted case that one rate decides."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from whorl.lab import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from whorl.lab.compare import tuning
from whorl.lab.compare.plan import PlannedRun
from whorl.lab.compare.tuning import RateGrid, find_learning_rates

from .planned import run_without_workers

# Every letter repeats the one nine places before it, nineteen times in twenty.
_DISTANCE = 9


@pytest.fixture
def planted(tmp_path: Path) -> RunConfig:
    """Text in which the distance is all that there is to learn."""
    source, folder = random.Random(0), tmp_path / "texts"
    folder.mkdir()
    for n in range(30):
        letters = [source.choice("abcdefgh") for _ in range(_DISTANCE)]
        while len(letters) < 600:
            new = source.random() < 0.05
            letters.append(source.choice("abcdefgh") if new else letters[-_DISTANCE])
        (folder / f"text{n:02}.txt").write_text("".join(letters))
    return RunConfig(
        model=ModelConfig(layers=1, width=32, heads=2),
        data=DataConfig(files=(str(folder),)),
        training=TrainingConfig(length=32, batch=16, steps=160, warmup=5),
        evaluation=EvaluationConfig(multiples=(1.0,), windows=4),
    )


@pytest.mark.slow
def test_a_bias_loses_with_the_wrong_rate_and_wins_with_its_own(
    planted: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake of whorl 0.1.0: one small rate for everything made T5's bias look slow."""
    monkeypatch.setattr(tuning, "run_all", run_without_workers)
    grid = RateGrid(matrices=(0.02,), more_matrices=(0.005, 0.01), encoding=(0.0005, 0.001, 0.05))
    found = find_learning_rates(["t5", "rope"], planted, tmp_path / "runs", grid=grid)
    assert {len(trials) for trials in found["trials"].values()} == {3}
    by_rate = {trial["encoding_learning_rate"]: trial["loss"] for trial in found["trials"]["t5"]}
    rope = min(trial["loss"] for trial in found["trials"]["rope"])
    assert by_rate[0.0005] > rope + 0.3
    assert by_rate[0.001] > rope + 0.3
    assert by_rate[0.05] < rope - 0.3
    assert found["chosen"]["t5"]["encoding_learning_rate"] == 0.05
    assert found["chosen"]["rope"]["learning_rate"] == 0.02


def test_trials_are_as_many_for_every_encoding(
    planted: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[list[PlannedRun]] = []

    def train(trials: list[PlannedRun], *_: object) -> dict[PlannedRun, float]:
        rounds.append(list(trials))
        # The best: 0.01 for matrices, 0.05 for the encoding.
        return {
            trial: abs(trial.config.training.learning_rate - 0.01)
            + abs(trial.config.training.encoding_learning_rate - 0.05)
            for trial in trials
        }

    monkeypatch.setattr(tuning, "_train_trials", train)
    found = find_learning_rates(["t5", "rope"], planted, tmp_path)
    assert {name: len(trials) for name, trials in found["trials"].items()} == {"rope": 5, "t5": 5}
    assert [len(trials) for trials in rounds] == [6, 4]
    assert len({trial.name for trials in rounds for trial in trials}) == 10
    assert found["chosen"] == {
        "rope": {"learning_rate": 0.01},
        "t5": {"learning_rate": 0.01, "encoding_learning_rate": 0.05},
    }
    # The second round keeps the best matrices of t5, and tries other matrices for rope.
    second = [(trial.config.model.encoding, trial.config.training) for trial in rounds[1]]
    assert [(n, t.learning_rate, t.encoding_learning_rate) for n, t in second] == [
        ("t5", 0.01, 0.01),
        ("t5", 0.01, 0.2),
        ("rope", 0.0025, 0.05),
        ("rope", 0.04, 0.05),
    ]


@pytest.mark.slow
def test_a_trial_that_diverges_has_lost(
    planted: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of another kind is an error, because the trials are then not equal."""
    grid = RateGrid(matrices=(0.01,), more_matrices=(), encoding=(0.01,))
    short = replace(planted, training=replace(planted.training, steps=2, warmup=0))
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "run_all", run_without_workers)
        found = find_learning_rates(["rope"], short, tmp_path / "runs", grid=grid)
    assert len(found["trials"]["rope"]) == 1
    (tmp_path / "runs" / "rope-matrices0.01-encoding0.01" / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match=r"^rope-matrices0.01-encoding0.01 did not finish: .*dama"):
        find_learning_rates(["rope"], short, tmp_path / "runs", grid=grid)
