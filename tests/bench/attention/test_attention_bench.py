"""The attention benchmark: plans, verified contestants, reports that come back, targets."""

import dataclasses
from pathlib import Path

import pytest
import torch

from whorl.bench import attention as bench
from whorl.bench.attention import Cell, CellResult, Plan, Report, Result, runner, softmax, targets
from whorl.bench.attention.results import Contestant
from whorl.bench.measure import Timing

TINY = Plan(
    causal=(33,),
    training=(17,),
    linear=(40,),
    memory=(),
    doubling=(16, 32),
    recurrent=(8, 16),
    streaming=(24, 40),
    stepped=(24,),
    compiled=(),
    window=16,
    run=2,
    repeats=1,
    sample_seconds=0.0,
)


def timed(seconds: float) -> Timing:
    return Timing.of([seconds], 1)


def cell_of(kind: bench.plan.Kind, length: int, seconds: dict[str, float]) -> CellResult:
    rows = tuple(Result(name, timed(value)) for name, value in seconds.items())
    return CellResult(Cell(kind, 1, length, (8192, 16384, 65536)), rows)


@pytest.fixture(scope="module")
def report() -> Report:
    return bench.run(TINY)


def test_every_kind_is_measured_and_every_contestant_right(report: Report) -> None:
    assert report.complete
    assert [cell.cell.kind for cell in report.cells] == [
        *("causal", "training", "linear", "doubling", "recurrent", "streaming", "stepped"),
    ]
    problems = {r.name: r.problem for c in report.cells for r in c.results if r.problem}
    assert problems == {}
    causal = report.cell("causal/33/1")
    assert causal is not None
    names = {result.name for result in causal.results}
    assert names >= {"sdpa", "alibi", "t5", "matrix", "matrix-ready", "naive"}
    assert causal.ratio("sdpa") == 1.0


def test_a_contestant_that_is_wrong_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> list[object]:
        made = Contestant("naive", lambda: None, lambda: "off by 3")
        return [("naive", lambda: made)]

    monkeypatch.setitem(runner.CONTESTANTS, "causal", wrong)
    result = runner.measure_cell(Cell("causal", 1, 8), TINY)
    assert result.results == (Result("naive", problem="off by 3"),)


def test_the_check_notices_another_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    def matrix(length: int) -> torch.Tensor:
        return torch.zeros(8, length, length)

    monkeypatch.setattr(softmax, "alibi_matrix", matrix)
    result = runner.measure_cell(Cell("causal", 1, 33), TINY)
    assert {r.name for r in result.results if r.problem} == {"matrix", "matrix-ready", "naive"}


def test_reports_come_back_and_are_gone_on_with(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    report.save(path)
    again = Report.load(path)
    assert again.cells == report.cells
    assert "Targets" in again.markdown() or again.markdown()
    calls: list[str] = []
    more = dataclasses.replace(TINY, causal=(33, 20))
    gone_on = bench.run(more, resume=path, progress=lambda done, total, label: calls.append(label))
    assert gone_on.cell("causal/33/1") == report.cell("causal/33/1")
    assert gone_on.cell("causal/20/1") is not None
    assert calls[-1] == "done"
    with pytest.raises(ValueError, match=r"attention Report: this is format 2, and 'attention 1'"):
        Report.from_dict({"format": 2})


def test_peak_memory_is_that_of_a_process_of_its_own() -> None:
    result = runner.measure_cell(Cell("memory", 1, 1024), TINY)
    peaks = {r.name: r.peak for r in result.results}
    assert peaks["matrix"] is not None
    assert peaks["alibi"] is not None
    assert peaks["matrix"] > peaks["alibi"]  # 8 x 1024 x 1024 numbers


def test_targets_take_the_worst_and_only_what_was_measured() -> None:
    cells = [
        cell_of("causal", 4096, {"sdpa": 1.0, "alibi": 1.1, "t5": 1.3, "matrix": 4.4, "flex": 2.2}),
        cell_of("doubling", 65536, {"8192": 1.0, "16384": 2.0, "32768": 4.0, "65536": 9.0}),
        cell_of("linear", 2048, {"sdpa": 1.0, "elu": 0.5, "cosine": 0.8}),
        cell_of("stepped", 4096, {"fixed": 1.0, "follows-stepped": 1.1}),
    ]
    found = {target.name: target for target in targets(cells)}
    biased = found["biased forward at 4096, time / SDPA without bias"]
    assert (biased.measured, biased.ok) == (1.3, False)
    assert found["biased forward at 16384, time / SDPA without bias"].ok is None
    faster = found["ALiBi at 4096, times faster than a bias as a matrix"]
    assert faster.measured == pytest.approx(4.0)
    assert faster.ok
    assert found["linear attention, 2n / n from 8k to 64k"].measured == pytest.approx(4.5)
    linear = found["linear attention from 2048 on, times faster than SDPA"]
    assert linear.measured == pytest.approx(1.25)
    assert found["stepped frequencies, time / fixed ones"].ok


def test_plans() -> None:
    assert {cell.kind for cell in Plan.full().cells()} == set(bench.plan.KINDS)
    assert len(Plan.quick().cells()) < len(Plan.full().cells())
    both = Plan.quick().only(threads=(1, 2)).cells()
    assert {c.threads for c in both if c.kind == "memory"} == {1}
    assert Cell("causal", 1, 8).label == "causal 8, 1 thread"
    cell = Cell("doubling", 1, 8, (4, 8))
    assert Cell.from_dict(cell.to_dict()) == cell
    with pytest.raises(ValueError, match=r"attention Plan: lengths, threads, window, run and rep"):
        Plan(repeats=0)
    with pytest.raises(ValueError, match=r"contestants of attention are parts of PyTorch"):
        Plan.quick().only(peers=("hf",))
