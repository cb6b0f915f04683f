"""Steps to reach a loss, and rows by length of a model that is trained in stages."""

from pathlib import Path
from typing import Any

import pytest

from whorl.lab.compare.plan import shorten_run
from whorl.lab.experiments import ExperimentPlan, MeasureLabel, RowMeasurement
from whorl.lab.experiments.document import build_result
from whorl.lab.experiments.jobs import build_run_config
from whorl.lab.experiments.results import VALIDATION, RowResults
from whorl.lab.experiments.roformer_stages import FINAL_ROWS, PUBLISHED, split_lengths
from whorl.lab.experiments.speed import (
    STEPS_SAVED,
    StepsToLoss,
    add_steps_saved,
    compare_steps,
    list_steps,
)
from whorl.lab.experiments.tables import list_tables, render_markdown

ENVIRONMENT = {"date": "", "cpu": "", "cores": 1, "whorl": "", "torch": "", "python": ""}


def make_measurement(losses: list[float], value: float = 1.0) -> RowMeasurement:
    """A run with a point of its learning curve every 100 steps."""
    steps = [100 * (n + 1) for n in range(len(losses))]
    return RowMeasurement({"loss@1": value}, curves={VALIDATION: {"x": steps, "y": losses}})


SLOW, FAST = make_measurement([4.0, 3.0, 2.5, 2.0]), make_measurement([3.0, 2.0, 1.5, 1.0])


def test_steps_to_the_loss_that_both_reach() -> None:
    assert compare_steps(FAST, SLOW) == StepsToLoss(2.0, 200.0, 400.0)
    assert compare_steps(SLOW, FAST) == StepsToLoss(2.0, 400.0, 200.0)
    assert compare_steps(FAST, SLOW).saved == 0.5  # type: ignore[union-attr]
    assert compare_steps(SLOW, FAST).saved == -1.0  # type: ignore[union-attr]
    assert compare_steps(SLOW, SLOW).saved == 0.0  # type: ignore[union-attr]
    assert compare_steps(RowMeasurement({}), SLOW) is None
    assert compare_steps(make_measurement([3.0, float("nan")]), SLOW) is None


def make_rows() -> list[RowResults]:
    def collect(name: str, one: RowMeasurement) -> RowResults:
        third = RowResults(name, dict.fromkeys(range(3), make_measurement([5.0, 4.0])))
        return RowResults(name, dict.fromkeys(range(3), one), third=third)

    return [collect("learned", SLOW), collect("rope", FAST)]


def test_shares_of_steps_saved(tmp_path: Path) -> None:
    slow, fast = add_steps_saved(make_rows(), tmp_path, reference="learned")
    assert slow.get_values(STEPS_SAVED.id) == dict.fromkeys(range(3), 0.0)
    assert fast.get_values(STEPS_SAVED.id) == dict.fromkeys(range(3), 0.5)
    assert fast.third is not None
    assert fast.third.get_values(STEPS_SAVED.id) == dict.fromkeys(range(3), 0.0)
    (table,) = list_steps([slow, fast], tmp_path, reference="learned")
    assert table.rows == (("rope", "2.00", "200", "400", "50 %"),)
    assert add_steps_saved([fast], tmp_path, reference="learned") == [fast]
    assert list_steps([fast], tmp_path, reference="learned") == []


@pytest.mark.parametrize("name", ["mlm", "performer"])
def test_rows_differ_in_the_encoding_only_and_speed_is_apart(name: str, tmp_path: Path) -> None:
    plan = ExperimentPlan.from_budget(name, "quick")
    assert plan.reference == "learned"
    configs = [build_run_config(row.tables, 0) for row in plan.rows]
    for config in configs:
        model = config.model
        assert (model.architecture, model.attention, model.feature_map) == (
            ("roformer", "softmax", "elu") if name == "mlm" else ("llama", "linear", "favor")
        )
        assert config.training.steps == configs[0].training.steps
    rows = [row for row in make_rows() if row.name in {x.name for x in plan.rows}]
    result = build_result(plan, rows, tmp_path, corpus={}, environment=ENVIRONMENT)
    titles = {table.title: table for table in list_tables(result)}
    main = titles["Loss, mean of 3 seeds ± half the 95 % interval"]
    assert not any("saved" in head for head in main.heads)
    assert not any("saved" in cell for row in titles["Differences"].rows for cell in row)
    apart = titles["How fast they learn: steps saved, mean of 3 seeds ± half the 95 % interval"]
    assert [row[:2] for row in apart.rows] == [["learned", "0.0 % ±0.0"], ["rope", "50.0 % ±0.0"]]
    assert "How fast they learn: differences" in titles
    assert "the loss at 128 tokens is" in result["sentence"].lower()
    assert "; the share of steps saved to the same loss is" in result["sentence"]
    assert "How fast they learn: differences" in render_markdown(result)


def test_stages_are_those_of_the_paper_divided() -> None:
    plan = ExperimentPlan.from_budget("roformer-stages", "quick")
    staged, single = (build_run_config(row.tables, 0).training for row in plan.rows)
    for stage, (length, batch, steps, _, _) in zip(staged.stages, PUBLISHED, strict=True):
        assert (stage.length, stage.batch, stage.steps) == (length // 4, batch // 32, 4 * steps)
    assert (single.stages, single.length, single.steps) == ((), staged.length, staged.steps)
    assert 1.05 < single.count_tokens(single.steps) / staged.count_tokens(staged.steps) < 1.06
    short = shorten_run(build_run_config(plan.rows[0].tables, 0)).training
    assert [one.steps for one in short.stages] == [one.steps // 3 for one in staged.stages]
    assert short.steps == sum(one.steps for one in short.stages)


def test_rows_of_the_final_model_by_length() -> None:
    def measure(share: float) -> RowMeasurement:
        return RowMeasurement({f"accuracy@{x:g}": share * x for x in FINAL_ROWS.values()})

    third = RowResults("six stages", {0: measure(0.1)})
    rows = split_lengths(RowResults("six stages", {0: measure(0.2)}, third=third))
    assert [row.name for row in rows] == list(FINAL_ROWS)
    long = rows[-1]
    assert long.get_values("accuracy by length") == {0: pytest.approx(0.6)}
    assert long.third is not None
    assert long.third.get_values("accuracy by length") == {0: pytest.approx(0.3)}


def test_derived_rows_may_be_compared() -> None:
    plan = ExperimentPlan.from_budget("roformer-stages", "smoke")
    assert ("3 x length", "full length") in plan.contrasts
    tables: dict[str, Any] = {
        "question": "?",
        "judged": ["x"],
        "contrasts": [["a", "b"]],
        "rows": [{"name": "a"}],
        "budgets": {"quick": {"minutes": 1}},
    }
    with pytest.raises(ValueError, match=r"no row 'b'.* Rows: a, 1/4 length"):
        ExperimentPlan.from_tables(plan.experiment, tables, "quick")
    assert MeasureLabel("x", "x").section == ""
