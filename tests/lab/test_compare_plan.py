"""Plans: which runs a comparison makes, and that they differ in nothing else."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import whorl
from whorl.lab import RunConfig, TrainingConfig, rates
from whorl.lab.compare import ComparisonPlan, estimate_steps, fit_plan
from whorl.lab.evaluate import SCALINGS


def test_quick() -> None:
    plan = ComparisonPlan.from_budget("quick")
    wanted = ["nope", "sinusoidal", "learned", "rope", "alibi", "t5", "kerple", "xpos"]
    assert [job.name for job in plan.list_runs()] == [f"{name}-seed0" for name in wanted]
    assert [job.name for job in plan.list_runs() if job.scalings] == ["rope-seed0"]


def test_standard_has_everything() -> None:
    plan = ComparisonPlan.from_budget("standard")
    assert set(whorl.names()) < set(plan.encodings)
    assert plan.seeds == 3
    assert set(plan.scalings) == set(SCALINGS)
    assert len(plan.list_runs()) == 3 * len(plan.encodings)
    assert {job.config.training.seed for job in plan.list_runs()} == {0, 1, 2}


def test_every_plan_builds() -> None:
    for budget in ("quick", "standard", "full"):
        for job in ComparisonPlan.from_budget(budget, seeds=1).list_runs():
            whorl.lab.Model(job.config.model, vocab=256, longest=job.config.longest)


def test_runs_differ_in_encoding_rate_and_seed_only() -> None:
    first, *rest = (job.config for job in ComparisonPlan.from_budget("standard").list_runs())
    for config in rest:
        model = dataclasses.replace(config.model, encoding=first.model.encoding)
        training = dataclasses.replace(
            config.training, learning_rate=first.training.learning_rate, seed=first.training.seed
        )
        assert dataclasses.replace(config, model=model, training=training) == first


def test_a_grid_of_learning_rates() -> None:
    plan = ComparisonPlan(encodings=("rope", "alibi"), learning_rates=(0.001, 0.002))
    names = [job.name for job in plan.list_runs()]
    assert names[:2] == ["rope-rate0.001-seed0", "rope-rate0.002-seed0"]
    assert [job.config.training.learning_rate for job in plan.list_runs()] == [0.001, 0.002] * 2


def test_learning_rates_come_with_their_evidence() -> None:
    found = rates.load_sweep()
    assert set(found["chosen"]) == set(whorl.names())
    for name, chosen in found["chosen"].items():
        tried = {float(rate): loss for rate, loss in found["loss"][name].items()}
        assert chosen == min(tried, key=lambda rate: tried[rate]), name


def test_learning_rates() -> None:
    chosen = rates.load_sweep()["chosen"]
    assert rates.choose_learning_rate("rope", 96) == chosen["rope"]
    assert rates.choose_learning_rate("rope", 48) == chosen["rope"]
    assert rates.choose_learning_rate("rope", 192) == pytest.approx(chosen["rope"] / 2)
    both = min(chosen["rope"], chosen["learned"])
    assert rates.choose_learning_rate("learned+rope", 96) == both


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encodings": []}, r"^encodings must have at least one name"),
        ({"encodings": ["rope", "rope"]}, r"^encodings must differ; got rope, rope"),
        ({"encodings": ["learned+rop"]}, r"^encodings: 'rop' is unknown; did you mean 'rope'\?"),
        ({"scalings": ["yan"]}, r"^scalings: 'yan' cannot be applied .*; did you mean 'yarn'\?"),
        ({"encodings": ["alibi"], "scalings": ["yarn"]}, r"^scalings need .* alibi. Add rope"),
        ({"seeds": 0}, r"^seeds must be a whole number of at least 1; got 0"),
    ],
)
def test_bad_plans(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ComparisonPlan.from_budget("quick", **options)


def test_scalings_go_when_nothing_rotates() -> None:
    assert ComparisonPlan.from_budget("quick", encodings=["alibi", "nope"]).scalings == ()


def test_minutes(small: RunConfig, tmp_path: Path) -> None:
    plan = ComparisonPlan(encodings=("rope", "alibi"), base=small)
    few, many = estimate_steps(plan, 0.001, 2), estimate_steps(plan, 60.0, 2)
    assert few == 40
    assert many > 1000
    timed = fit_plan(plan, 60.0, tmp_path / "out", 2)
    assert timed.base.training.steps > 40
    again = fit_plan(plan, 60.0, tmp_path / "out", 2)
    assert again == timed  # though the machine would give another number now
    with pytest.raises(ValueError, match=r"^minutes must be above 0; got -1"):
        estimate_steps(plan, -1, 2)


def test_warm_up_is_short_in_short_runs(small: RunConfig, tmp_path: Path) -> None:
    training = TrainingConfig(length=32, batch=4, steps=1000, warmup=100)
    plan = ComparisonPlan(encodings=("rope",), base=dataclasses.replace(small, training=training))
    assert fit_plan(plan, 0.001, tmp_path / "out", 1).base.training.warmup == 4


@pytest.mark.parametrize("change", ['"steps": 7', '"steps": "many"', '"paces": 40'])
def test_a_changed_number_of_steps_is_refused(
    change: str, small: RunConfig, tmp_path: Path
) -> None:
    plan = ComparisonPlan(encodings=("rope",), base=small)
    fit_plan(plan, 0.001, tmp_path / "out", 1)
    note = tmp_path / "out" / "minutes.json"
    assert note.read_text().count('"steps": 40') == 1
    note.write_text(note.read_text().replace('"steps": 40', change))
    with pytest.raises(ValueError, match=r"minutes.json' is damaged: .* Delete it; whorl compare"):
        fit_plan(plan, 0.001, tmp_path / "out", 1)
    note.write_text("[]")
    with pytest.raises(ValueError, match=r"chooses the number of steps again, and runs with anot"):
        fit_plan(plan, 0.001, tmp_path / "out", 1)
