"""``migration``: the source is trained once, what is kept stays, and steps are counted."""

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.lab.conftest import write_texts
from whorl.lab import Run, read_start
from whorl.lab.experiments import ExperimentPlan, RowMeasurement, RowRequest, RowResults
from whorl.lab.experiments.migration import (
    build_config,
    build_source_config,
    check_row,
    run_row,
    shorten_row,
)
from whorl.lab.experiments.migration_tables import RECOVERY, list_tables
from whorl.lab.experiments.results import VALIDATION


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, RowMeasurement]]:
    """The folder and the results of all rows of the smoke budget, run in this process."""
    folder = tmp_path_factory.mktemp("migration")
    files = [str(write_texts(folder / "texts"))]
    plan = ExperimentPlan.from_budget("migration", "smoke", files=files)
    found = {}
    for row in plan.rows:
        where = folder / f"{row.folder_name}-seed0"
        where.mkdir()
        found[row.name] = run_row(RowRequest(row.tables, 0, where, lambda moment: None))
    return folder, found


def test_the_source_is_trained_once(rows: tuple[Path, dict[str, RowMeasurement]]) -> None:
    folder, found = rows
    assert [path.name for path in (folder / "sources").glob("[!.]*")] == ["learned-seed0"]
    source = Run(folder / "sources" / "learned-seed0")
    evaluation = source.read_evaluation()
    assert evaluation is not None
    assert found["learned"].values["loss@1"] == evaluation["by_length"]["32"]["loss"]
    assert found["learned"].values["loss@4"] == evaluation["by_length"]["128"]["loss"]
    assert found["learned"].values[RECOVERY] == 0.0


def test_everything_but_the_table_is_kept(rows: tuple[Path, dict[str, RowMeasurement]]) -> None:
    folder, found = rows
    facts = found["learned -> rope"].facts
    assert facts["dropped"] == 128 * 32
    assert facts["new"] == 0
    assert facts["kept"] == facts["trainable"] == facts["parameters"]
    report = Run(folder / "learned-rope-seed0" / "run").read_start_report()
    assert report is not None
    assert report["weights"] == read_start(folder / "sources" / "learned-seed0").checksum
    assert {one["part"] for one in report["dropped"]} == {"encoding"}


def test_frozen_weights_leave_nothing_to_train(
    rows: tuple[Path, dict[str, RowMeasurement]],
) -> None:
    """A row that trains nothing has the losses with which the one that trains everything begins."""
    _, found = rows
    frozen, trained = found["learned -> rope, frozen"], found["learned -> rope"]
    assert frozen.facts["trainable"] == 0
    first = trained.curves[VALIDATION]["y"][0]
    assert list(frozen.curves[VALIDATION]["y"]) == [first, first]
    assert trained.curves[VALIDATION]["x"][0] == 0
    assert trained.values["loss@1"] != frozen.values["loss@1"]
    with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
        torch.optim.AdamW([])


def test_frozen_is_refused_where_something_is_left(
    rows: tuple[Path, dict[str, RowMeasurement]], tmp_path: Path
) -> None:
    folder, _ = rows
    plan = ExperimentPlan.from_budget("migration", "smoke", files=[str(folder / "texts")])
    tables = dict(plan.rows[-1].tables)
    tables["model"] = {**tables["model"], "encoding": "t5"}
    (folder / "t5-seed0").mkdir()
    message = r"source.frozen leaves 64 parameters of 't5' to be trained, and this experiment"
    with pytest.raises(ValueError, match=message):
        run_row(RowRequest(tables, 0, folder / "t5-seed0", lambda moment: None))


def test_another_process_waits_for_the_source(
    rows: tuple[Path, dict[str, RowMeasurement]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from whorl._support.locks import acquire_lock, release_lock
    from whorl.lab.experiments import migration

    monkeypatch.setattr(migration, "_SECONDS_BETWEEN_TRIES", 0.01)
    folder, found = rows
    plan = ExperimentPlan.from_budget("migration", "smoke", files=[str(folder / "texts")])
    (folder / "waiting-seed0").mkdir()
    handle = acquire_lock(folder / "sources" / ".learned-seed0.lock")
    assert handle is not None
    phases: list[str] = []

    def show(moment: Any) -> None:
        phases.append(moment.phase)
        if len(phases) == 3:
            threading.Thread(target=release_lock, args=(handle,)).start()

    again = run_row(RowRequest(plan.rows[0].tables, 0, folder / "waiting-seed0", show))
    assert set(phases) == {"source: waiting"}
    assert len(phases) >= 3
    assert again.values == found["learned"].values


def test_rates_of_the_source_are_its_own() -> None:
    row = next(
        x for x in ExperimentPlan.from_budget("migration").rows if x.name == "learned -> rope"
    )
    tables = {**row.tables, "training": {**row.tables["training"], "learning_rate": 0.003}}
    source, after = build_source_config(tables, 2), build_config(tables, 2)
    assert after.training.learning_rate == 0.003
    assert source.training.learning_rate == 0.02
    assert source.training.steps == tables["source"]["steps"]
    assert source.training.seed == after.training.seed == 2
    short = shorten_row(tables)
    assert short["training"]["steps"] == tables["training"]["steps"] // 3
    assert build_source_config(short, 2) == source


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"step": 3}, r"\[source\] has the options encoding, steps, frozen; got 'step'"),
        ({}, r"source\.steps must be a whole number of at least 1; got None"),
        ({"steps": 3, "encoding": "lerned"}, "'lerned' is unknown; did you mean 'learned'"),
        ({"steps": 3, "frozen": True}, "source.frozen needs source.encoding, the encoding of the"),
    ],
)
def test_wrong_sources(source: dict[str, Any], message: str) -> None:
    tables: dict[str, dict[str, Any]] = {"model": {"encoding": "rope"}, "training": {"steps": 3}}
    with pytest.raises(ValueError, match=message):
        check_row({**tables, "source": source})


def test_steps_to_recover(tmp_path: Path) -> None:
    """By hand: half-way from 3 to 1 after half of ten steps, and never."""

    def make(name: str, last: float, **facts: float) -> RowResults:
        curve = {VALIDATION: {"x": [0.0, 10.0], "y": [3.0, last]}}
        one = RowMeasurement({}, curves=curve, facts=facts)
        other = dataclasses.replace(one, curves={VALIDATION: {"x": [0.0, 10.0], "y": [3.0, 2.5]}})
        return RowResults(name, {0: one, 1: other})

    facts = {"source_loss": 2.0, "trainable": 7.0, "kept": 7.0, "dropped": 5.0, "new": 0.0}
    found = [make("learned -> rope", 1.0, **facts), make("rope from scratch", 2.2)]
    recovery, kept = list_tables(found, tmp_path)
    assert recovery.rows == (
        ("learned -> rope", "2.000", "3.000", "1.750", "5 (in 1 of 2 seeds)", "not reached"),
    )
    assert kept.rows == (("learned -> rope", "7", "5", "0", "7"),)
    assert list_tables(found[1:], tmp_path) == []
    json.dumps([table.to_dict() for table in (recovery, kept)])
