"""Runs: complete, saved cell by cell, interrupted and resumed."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.bench import Plan, Report, run
from whorl.bench.rotation import runner
from whorl.bench.rotation.results import CellResult, Result

from .shapes import PREFILL


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the cells that are measured."""
    keys: list[str] = []
    real = runner.measure_cell

    def measured(cell: Any, *rest: Any) -> CellResult:
        keys.append(cell.key)
        return real(cell, *rest)

    monkeypatch.setattr(runner, "measure_cell", measured)
    return keys


def test_a_run_measures_every_cell_and_tells_its_progress(tiny_plan: Plan) -> None:
    steps: list[tuple[int, int, str]] = []
    threads = torch.get_num_threads()
    report = run(tiny_plan, progress=lambda *step: steps.append(step))
    assert report.complete
    assert [cell.cell for cell in report.cells] == tiny_plan.list_cells()
    assert steps[0] == (0, 2, "prefill-70 float32 half, 1 thread")
    assert steps[-1] == (2, 2, "done")
    assert torch.get_num_threads() == threads
    prefill, training = report.cells
    assert {(r.name, r.mode) for r in prefill.results} >= {
        ("copy", "out"),
        ("whorl", "inplace"),
        ("whorl", "out"),
        ("whorl", "fresh"),
    }
    assert ("whorl", "training") in {(r.name, r.mode) for r in training.results}
    assert all(r.problem is None for cell in report.cells for r in cell.results)


def test_accuracy_is_part_of_a_run_when_asked_for(tiny_plan: Plan) -> None:
    plan = dataclasses.replace(tiny_plan, accuracy=True).select(peers=[])
    report = run(plan)
    assert report.accuracy is not None
    assert max(report.accuracy.errors["whorl"]) < 6e-8


def test_an_interrupt_keeps_what_is_done_and_resume_goes_on(
    tiny_plan: Plan, tmp_path: Path, counted: list[str]
) -> None:
    sink = tmp_path / "new folder" / "report.json"

    def interrupt(done: int, total: int, label: str) -> None:
        if done == 1:
            raise KeyboardInterrupt

    report = run(tiny_plan, progress=interrupt, sink=sink)
    assert not report.complete
    assert Report.load(sink) == report
    assert len(report.cells) == len(counted) == 1
    assert [path.name for path in sink.parent.iterdir()] == ["report.json"]

    whole = run(tiny_plan, sink=sink, resume=sink)
    assert whole.complete
    assert counted == [cell.key for cell in tiny_plan.list_cells()]
    assert whole.cells[0] == report.cells[0]


def test_a_cell_in_which_nothing_was_timed_is_measured_again(
    tiny_plan: Plan, tmp_path: Path, counted: list[str]
) -> None:
    path = tmp_path / "report.json"
    report = run(tiny_plan)
    died = CellResult(report.cells[0].cell, (Result("whorl", "", problem="ended with SIGKILL"),))
    dataclasses.replace(report, cells=(died, *report.cells[1:])).save(path)
    counted.clear()
    whole = run(tiny_plan, resume=path)
    assert counted == [died.cell.key]
    assert {measured.cell for measured in whole.cells} == set(tiny_plan.list_cells())
    assert not any(measured.is_empty for measured in whole.cells)


@pytest.mark.parametrize("change", ["cpu", "torch", "effort"])
def test_cells_of_another_environment_are_measured_again(
    tiny_plan: Plan, tmp_path: Path, counted: list[str], change: str
) -> None:
    path = tmp_path / "report.json"
    report = run(tiny_plan)
    if change == "effort":
        report = dataclasses.replace(report, effort={**report.effort, "repeats": 99})
    else:
        report = dataclasses.replace(report, environment={**report.environment, change: "other"})
    report.save(path)
    counted.clear()
    run(tiny_plan, resume=path)
    assert len(counted) == 2


def test_another_date_and_command_do_not_matter(
    tiny_plan: Plan, tmp_path: Path, counted: list[str]
) -> None:
    path = tmp_path / "report.json"
    run(tiny_plan).with_command("whorl bench").save(path)
    counted.clear()
    assert run(tiny_plan, resume=path).complete
    assert counted == []


def test_cells_of_another_size_are_measured_again(
    tiny_plan: Plan, tmp_path: Path, counted: list[str]
) -> None:
    """The key of a cell names its length, not its heads."""
    path = tmp_path / "report.json"
    plan = dataclasses.replace(tiny_plan, shapes=(PREFILL,)).select(peers=[])
    run(plan, sink=path)
    wider = dataclasses.replace(plan, shapes=(dataclasses.replace(PREFILL, heads=8),))
    assert [c.key for c in wider.list_cells()] == [c.key for c in plan.list_cells()]
    found = run(wider, resume=path)
    assert len(counted) == 2
    assert [c.cell for c in found.cells] == wider.list_cells()


def test_accuracy_is_kept_when_a_run_goes_on(
    tiny_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    plan = dataclasses.replace(tiny_plan, accuracy=True).select(shapes=["prefill-70"], peers=[])
    steps: list[str] = []
    first = run(plan, sink=path, progress=lambda *step: steps.append(step[2]))
    assert steps[-2:] == ["accuracy of tables", "done"]
    monkeypatch.setattr(runner, "measure_accuracy", None)  # must not be called again
    assert run(plan, resume=path).accuracy == first.accuracy


def test_nothing_to_resume_is_no_error(tiny_plan: Plan, tmp_path: Path) -> None:
    plan = tiny_plan.select(shapes=["prefill-70"], peers=[])
    assert run(plan, resume=tmp_path / "absent.json").complete


def test_unknown_peer_is_refused_before_anything_runs(tiny_plan: Plan) -> None:
    with pytest.raises(ValueError, match="peers: 'tf' is unknown"):
        run(tiny_plan.select(peers=["tf"]))
