"""Searches of learning rates: equal terms for all, and a planted case that one rate decides."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whorl.lab import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from whorl.lab.compare import ComparisonPlan, RunStatus, search
from whorl.lab.compare.plan import PlannedRun
from whorl.lab.compare.search import TRIALS_FILE, search_rates
from whorl.lab.compare.spaces import SearchedSpec
from whorl.lab.compare.tuning import find_learning_rates
from whorl.lab.runs import Run

from .planned import run_without_workers

pytest.importorskip("optuna", reason="needs optuna: pip install 'whorl[search]'")

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


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[PlannedRun]]:
    """The trials of each round, which have a loss without being trained.

    The best are 0.03 for matrices and 0.05 for encodings; a rate above 0.1 diverges.
    """
    rounds: list[list[PlannedRun]] = []

    def train(runs: Sequence[PlannedRun], *_: object, **__: object) -> list[RunStatus]:
        rounds.append([*runs])
        return [RunStatus(run.name, "done") for run in runs]

    def read(folder: Path, *_: object) -> float:
        config = next(run.config for run in rounds[-1] if run.name == folder.name)
        matrices, own = config.training.learning_rate, config.training.encoding_learning_rate
        miss = abs(math.log(matrices / 0.03))
        if config.model.encoding == "t5":
            miss += abs(math.log(own / 0.05))
        return math.inf if matrices > 0.1 else miss

    monkeypatch.setattr(search, "run_all", train)
    monkeypatch.setattr(search, "_read_loss", read)
    return rounds


@pytest.mark.slow
def test_a_bias_loses_with_the_wrong_rate_and_wins_with_its_own(
    planted: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake of whorl 0.1.0: one small rate for everything made T5's bias look slow."""
    monkeypatch.setattr(search, "run_all", run_without_workers)
    found = search_rates(["t5", "rope"], planted, tmp_path, trials=1).best
    small = {"learning_rate": 0.02, "encoding_learning_rate": 0.001}
    plan = ComparisonPlan(
        encodings=("t5",), rates={"t5": small}, thirds=False, base=planted
    ).list_runs()
    run_without_workers(plan, tmp_path, {})
    wrong = Run(tmp_path / plan[0].name).read_metrics()[-1]["validation_loss"]
    assert wrong > found["rope"].loss + 0.3
    assert found["t5"].loss < found["rope"].loss - 0.3


@pytest.mark.slow
def test_trials_are_as_many_for_every_encoding(
    planted: RunConfig, tmp_path: Path, asked: list[list[PlannedRun]]
) -> None:
    found = search_rates(["t5", "rope(base=1e2..1e5)"], planted, tmp_path, trials=10)
    assert [len(runs) for runs in asked] == [8, 16, 20]  # four of each at a time
    assert {name: len(trials) for name, trials in found.trials.items()} == {
        "t5": 10,
        "rope(base=1e2..1e5)": 10,
    }
    assert len({run.name for run in asked[-1]}) == 20
    t5, rope = found.trials.values()
    # The first trial has whorl's own rates, and the best one is no worse.
    own = ComparisonPlan(encodings=("t5",), base=planted).list_runs()[0].config.training
    assert t5[0].rates == {
        "learning_rate": own.learning_rate,
        "encoding_learning_rate": own.encoding_learning_rate,
    }
    assert found.best["t5"].loss == min(trial.loss for trial in t5) < t5[0].loss
    assert {*rope[0].rates} == {"learning_rate"}  # it has no parameters of its own
    bases = [SearchedSpec(trial.encoding).text for trial in rope]
    assert len({*bases}) == 10
    assert any(math.isinf(trial.loss) for trial in (*t5, *rope))
    plan = found.apply(ComparisonPlan(encodings=("t5", "rope"), base=planted))
    best = plan.list_runs()[1].config
    assert best.model.encoding == found.best["rope(base=1e2..1e5)"].encoding
    assert best.training.learning_rate == found.best["rope(base=1e2..1e5)"].rates["learning_rate"]
    (tmp_path / "best.toml").write_text(found.best["rope(base=1e2..1e5)"].to_toml())
    assert RunConfig.from_toml(tmp_path / "best.toml").model.encoding == best.model.encoding
    document = json.loads((tmp_path / "search.json").read_text())
    assert document == found.to_dict()
    assert any(trial["loss"] is None for one in document["encodings"] for trial in one["trials"])


@pytest.mark.slow
def test_a_search_goes_on_with_the_same_trials(
    planted: RunConfig, tmp_path: Path, asked: list[list[PlannedRun]], monkeypatch: Any
) -> None:
    whole = search_rates(["rope"], planted, tmp_path / "whole", trials=6)

    def interrupt(*_: object, **__: object) -> list[RunStatus]:
        raise KeyboardInterrupt

    search_rates(["rope"], planted, tmp_path / "parts", trials=4)
    with monkeypatch.context() as patch:
        patch.setattr(search, "run_all", interrupt)  # two more are asked for, and not trained
        with pytest.raises(KeyboardInterrupt):
            search_rates(["rope"], planted, tmp_path / "parts", trials=6)
    del asked[:]
    assert search_rates(["rope"], planted, tmp_path / "parts", trials=6) == whole
    assert [len(runs) for runs in asked] == [6]
    assert search_rates(["rope"], planted, tmp_path / "parts", trials=6) == whole
    assert len(asked) == 1
    other = search_rates(["rope"], planted, tmp_path / "other", trials=6, seed=1)
    assert other.trials["rope"][0] == whole.trials["rope"][0]
    assert other.trials["rope"][1] != whole.trials["rope"][1]


@pytest.mark.slow
def test_trials_of_other_settings_are_not_taken_for_these(
    planted: RunConfig, tmp_path: Path, asked: list[list[PlannedRun]]
) -> None:
    """Also if there are as many as asked for, so that none would be trained."""
    search_rates(["rope"], planted, tmp_path, trials=2)
    longer = replace(planted, training=replace(planted.training, steps=170))
    message = (
        r"^the study of rope holds trials with other settings: training\.steps is 160 there, 170"
        r" here\. Choose another folder, or pass force=True to replace them\.$"
    )
    with pytest.raises(ValueError, match=message):
        search_rates(["rope"], longer, tmp_path, trials=2)
    (next(iter(tmp_path.glob("texts/*")))).write_text("abcdefgh" * 80)
    with pytest.raises(ValueError, match=r"other settings: text\.sha256 is "):
        search_rates(["rope"], planted, tmp_path, trials=2)
    del asked[:]
    found = search_rates(["rope"], longer, tmp_path, trials=2, force=True)
    assert [len(runs) for runs in asked] == [2]
    assert {run.config.training.steps for run in asked[0]} == {170}
    assert len(found.trials["rope"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("ask", 0), ("ask", 1), ("half", 0), ("tell", 2)])
def test_a_search_that_is_stopped_between_trials(
    planted: RunConfig,
    tmp_path: Path,
    asked: list[list[PlannedRun]],
    monkeypatch: Any,
    name: str,
    most: int,
) -> None:
    """After some questions, in the midst of one, or after some answers: the same trials follow."""
    import optuna

    calls: list[object] = []
    real = optuna.Study.tell if name == "tell" else optuna.Study.ask

    def stop(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) > most:
            if name == "half":
                real(self)  # it has a number, and no parameters yet
            raise KeyboardInterrupt
        return real(self, *args, **options)

    whole = search_rates(["t5"], planted, tmp_path / "whole", trials=5)
    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, real.__name__, stop)
        with pytest.raises(KeyboardInterrupt):
            search_rates(["t5"], planted, tmp_path / "parts", trials=5)
    assert search_rates(["t5"], planted, tmp_path / "parts", trials=5) == whole
    assert all(len(runs) <= 5 for runs in asked)


@pytest.mark.slow
def test_a_study_on_a_full_disk(
    planted: RunConfig, tmp_path: Path, asked: list[list[PlannedRun]], monkeypatch: Any
) -> None:
    import optuna
    import sqlalchemy

    def fill(*_: object, **__: object) -> None:
        try:
            raise sqlalchemy.exc.OperationalError("INSERT", {}, Exception("disk is full"))
        except sqlalchemy.exc.OperationalError as error:
            raise optuna.exceptions.StorageInternalError("An exception is raised.") from error

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "tell", fill)
        with pytest.raises(OSError, match=r"^the study '.*' cannot be written: .*disk is full"):
            search_rates(["rope"], planted, tmp_path, trials=1)
    assert len(search_rates(["rope"], planted, tmp_path, trials=1).trials["rope"]) == 1
    assert len(asked) == 2


@pytest.mark.slow
def test_a_trial_that_diverges_has_lost(
    planted: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of another kind is an error, because the trials are then not equal."""
    short = replace(planted, training=replace(planted.training, steps=2, warmup=0))
    monkeypatch.setattr(search, "run_all", run_without_workers)
    found = find_learning_rates(["rope"], short, tmp_path, trials=1)
    (trial,) = found["trials"]["rope"]
    assert trial == {**found["chosen"]["rope"], "loss": trial["loss"]}
    assert search._read_loss(tmp_path, "failed", "training diverged at step 3") == math.inf
    (tmp_path / "rope-trial1").mkdir()
    (tmp_path / "rope-trial1" / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"^rope-trial1 did not finish: .*neither empty nor"):
        find_learning_rates(["rope"], short, tmp_path, trials=2)
    (tmp_path / TRIALS_FILE).write_text("no database")
    with pytest.raises(ValueError, match=r"^the study '.*' cannot be opened: .*Move it away"):
        find_learning_rates(["rope"], short, tmp_path, trials=2)
    with pytest.raises(ValueError, match=r"^search must be at least 1 trial of each .*; got 0\.$"):
        search_rates(["rope"], short, tmp_path, trials=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "rope(base=5..1)",
            r"^encodings: base of 'rope\(base=5..1\)' must be a range of numbers, the",
        ),
        ("rope(base=1..b)", r"such as 1e3..1e6; got '1..b'\.$"),
        ("rope(layout=half|half)", r"layout of .* must have different words between bars, such as"),
        ("rope(layout=half|)", r"such as half\|interleaved; got 'half\|'\.$"),
        ("rope(base=1..2", r"^encodings: ',' or '\)' must come at character"),
    ],
)
def test_options_that_cannot_be_searched(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchedSpec(text)


def test_options_of_several_parts() -> None:
    optuna = pytest.importorskip("optuna")
    text = "rope(base=1e3..1e6,layout=half|interleaved)+t5(num_buckets=8..64)+t5(num_buckets=2..9)"
    spec = SearchedSpec(text)
    distributions = spec.build_distributions(optuna)
    assert [*distributions] == [
        "rope.base", "rope.layout", "t5.num_buckets@59", "t5.num_buckets@81",
    ]  # fmt: skip
    base, layout, buckets, few = distributions.values()
    assert (base.low, base.high, base.log) == (1e3, 1e6, True)
    assert layout.choices == ("half", "interleaved")
    assert (buckets.low, buckets.high, buckets.log, few.log) == (8, 64, False, False)
    chosen = dict(zip(distributions, (12345.6, "half", 9, 3), strict=True))
    filled = "rope(base=12300.0,layout=half)+t5(num_buckets=9)+t5(num_buckets=3)"
    assert spec.fill(chosen) == filled
