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
    wanted = ["sinusoidal", "learned", "rope", "alibi", "t5", "kerple", "xpos", "transformer_xl"]
    names = [f"{name}-seed0" for name in wanted]
    assert [job.name for job in plan.list_runs()] == [*names, *(f"{name}-third" for name in names)]
    rotary = [job.name for job in plan.list_runs() if job.scalings]
    assert rotary == ["rope-seed0", "rope-seed0-third"]


def test_standard_has_everything() -> None:
    plan = ComparisonPlan.from_budget("standard")
    assert set(whorl.names()) < set(plan.encodings)
    assert plan.seeds == 3
    assert set(plan.scalings) == set(SCALINGS)
    assert len(plan.list_runs()) == 6 * len(plan.encodings)
    assert {job.config.training.seed for job in plan.list_runs()} == {0, 1, 2}


def test_every_plan_builds() -> None:
    for budget in ("quick", "standard", "converged", "full"):
        for job in ComparisonPlan.from_budget(budget, seeds=1).list_runs():
            whorl.lab.Model(job.config.model, vocab=256, longest=job.config.longest)


def test_every_run_has_another_with_a_third_of_its_steps() -> None:
    jobs = {job.name: job for job in ComparisonPlan.from_budget("quick").list_runs()}
    for name, job in jobs.items():
        if not name.endswith("-third"):
            short = jobs[f"{name}-third"]
            training = dataclasses.replace(job.config.training, steps=600)
            assert job.config.training.steps == 1800
            assert short.config == dataclasses.replace(job.config, training=training)
            assert short.scalings == job.scalings


def test_converged_has_the_rows_of_quick_with_six_times_the_steps() -> None:
    quick, converged = (ComparisonPlan.from_budget(name) for name in ("quick", "converged"))
    assert {*quick.scalings} <= {*converged.scalings}
    long = {job.name: job.config for job in converged.list_runs()}
    for job in quick.list_runs():
        if not job.name.endswith("-third"):
            training = dataclasses.replace(job.config.training, steps=10800)
            assert long[job.name] == dataclasses.replace(job.config, training=training)


def test_runs_differ_in_encoding_rate_and_seed_only() -> None:
    plan = dataclasses.replace(ComparisonPlan.from_budget("standard"), thirds=False)
    first, *rest = (job.config for job in plan.list_runs())
    for config in rest:
        model = dataclasses.replace(config.model, encoding=first.model.encoding)
        own = ("learning_rate", "encoding_learning_rate", "embedding_learning_rate", "seed")
        same = {name: getattr(first.training, name) for name in own}
        training = dataclasses.replace(config.training, **same)
        assert dataclasses.replace(config, model=model, training=training) == first


def test_a_grid_of_learning_rates() -> None:
    plan = ComparisonPlan(encodings=("rope", "alibi"), learning_rates=(0.001, 0.002), thirds=False)
    names = [job.name for job in plan.list_runs()]
    assert names[:2] == ["rope-rate0.001-seed0", "rope-rate0.002-seed0"]
    assert [job.config.training.learning_rate for job in plan.list_runs()] == [0.001, 0.002] * 2


def test_options_are_rows_of_their_own() -> None:
    scaled = "rope(scaling=linear(factor=2))"
    rows = ("rope", "rope(base=100)", "rope(base=1e6)", "learned+rope(frequencies=trained)", scaled)
    plan = ComparisonPlan(encodings=rows, scalings=("yarn",), thirds=False)
    runs = plan.list_runs()
    assert [run.config.model.encoding for run in runs] == list(rows)
    assert len({run.name for run in runs}) == len(rows)
    assert runs[0].name == "rope-seed0"
    assert runs[1].name.startswith("rope-base-100-")
    assert runs[1].name.endswith("-seed0")
    assert [bool(run.scalings) for run in runs] == [True, True, True, True, False]
    with pytest.raises(ValueError, match=r"^encodings must differ; got rope\(base=100\), rope\( "):
        ComparisonPlan(encodings=("rope(base=100)", "rope( base=100.0 )"))
    with pytest.raises(ValueError, match=r"^scalings need a rotary encoding; got yarn, and enc"):
        ComparisonPlan(encodings=(scaled,), scalings=("yarn",))


def test_learning_rates_come_with_their_evidence() -> None:
    found = rates.load_trials()
    assert set(found["chosen"]) == set(whorl.names())
    assert {len(trials) for trials in found["trials"].values()} == {5}  # as many for each
    for name, chosen in found["chosen"].items():
        best = min(found["trials"][name], key=lambda trial: trial["loss"])
        assert {**chosen, "loss": best["loss"]} == best, name
        own = [trial.get("encoding_learning_rate") for trial in found["trials"][name]]
        assert len({*own}) == (1 if own[0] is None else 3), name


def test_learning_rates_were_tuned_for_quick() -> None:
    found, quick = rates.load_trials(), ComparisonPlan.from_budget("quick").base.to_dict()
    tuned = found["settings"]
    assert found["width"] == quick["model"]["width"]
    for name in ("layers", "width", "heads"):
        assert tuned["model"][name] == quick["model"][name]
    for name in ("length", "batch", "warmup", "embedding_learning_rate"):
        assert tuned["training"][name] == quick["training"][name]


def test_learning_rates() -> None:
    found = rates.load_trials()
    width, chosen = found["width"], found["chosen"]
    start = found["settings"]["training"]["embedding_learning_rate"]
    assert rates.choose_learning_rates("t5", width) == {
        **chosen["t5"],
        "embedding_learning_rate": start,
    }
    assert rates.choose_learning_rates("rope", width // 2)["embedding_learning_rate"] == start
    wider = rates.choose_learning_rates("t5", 2 * width)
    assert wider == {**chosen["t5"], "embedding_learning_rate": pytest.approx(start / 2)}
    # RoPE has no parameters, so it has no say in the rate of those of another.
    mixed = rates.choose_learning_rates("rope+t5", width)
    assert mixed["encoding_learning_rate"] == chosen["t5"]["encoding_learning_rate"] == 0.2
    adamw = rates.choose_learning_rates("t5", 192, optimizer="adamw")
    assert adamw["learning_rate"] == pytest.approx(0.001)
    both = rates.choose_learning_rates("learned+t5", width)
    for name in ("learning_rate", "encoding_learning_rate"):
        assert both[name] == min(chosen["learned"][name], chosen["t5"][name])


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
