"""Measures cells one after another, saves after each, and can be interrupted and resumed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from whorl import info

from .cells import BenchmarkCell, BenchmarkCellResult
from .plan import BenchmarkPlan
from .report import BenchmarkReport

__all__ = ["BenchmarkProgress", "describe_environment", "make_run", "run_cells"]

BenchmarkProgress = Callable[[int, int, str], None]
R = TypeVar("R", bound=BenchmarkReport[Any])
K = TypeVar("K", bound=BenchmarkCell)


def describe_environment() -> dict[str, Any]:
    """CPU, date and versions; a benchmark with other libraries fills in peers, missing, notes."""
    found = info.describe_environment()
    del found["threads"]  # each cell has its own
    return {**found, "peers": {}, "missing": {}, "notes": {}}


def make_run(
    report_type: type[R], measure_cell: Callable[[Any, Any], BenchmarkCellResult[Any, Any]]
) -> Callable[..., R]:
    """The function ``run(plan, ...)`` of a benchmark that measures each cell by itself."""

    def run(
        plan: BenchmarkPlan,
        *,
        progress: BenchmarkProgress | None = None,
        sink: str | Path | None = None,
        resume: str | Path | None = None,
    ) -> R:
        """Measure every cell of ``plan``; the options are those of ``run_cells``."""
        return run_cells(
            report_type(describe_environment(), plan.describe_effort()),
            plan.list_cells(),
            lambda cell: measure_cell(cell, plan),
            progress=progress,
            sink=sink,
            resume=resume,
        )

    return run


def run_cells(
    report: R,
    cells: Sequence[K],
    measure: Callable[[K], BenchmarkCellResult[Any, Any]],
    *,
    progress: BenchmarkProgress | None = None,
    sink: str | Path | None = None,
    resume: str | Path | None = None,
    finish: Callable[[R, BenchmarkProgress], R] | None = None,
) -> R:
    """The report with the results of ``cells``; Ctrl-C ends it with those measured so far.

    Args:
        report: without cells; says environment and effort of this run.
        progress: called as progress(done, total, label) before each cell and at the end.
        sink: file that the report is written to after every cell, atomically.
        resume: file of an earlier report. Its cells are taken over if machine, versions and effort
            are the same, else measured again. The file need not exist.
        finish: called after the last cell; returns the report with what it adds.
    """
    report = replace(report, complete=False)
    if resume is not None and Path(resume).exists():
        report = _continue_earlier(report, type(report).load(resume), cells)
    done = {measured.cell for measured in report.cells}
    show = progress or (lambda done, total, label: None)
    try:
        for n, cell in enumerate(cells):
            show(n, len(cells), cell.label)
            if cell not in done:
                report = report.add_cell(measure(cell))
                _save(report, sink)
        if finish is not None:
            report = finish(report, show)
        report = replace(report, complete=True)
        show(len(cells), len(cells), "done")
    except KeyboardInterrupt:
        pass
    _save(report, sink)
    return report


def _continue_earlier(report: R, earlier: R, cells: Sequence[BenchmarkCell]) -> R:
    """The report with those of ``cells`` that ``earlier`` holds.

    Cells are compared, not their keys, which do not say everything.
    """
    free = {"date": "", "command": ""}
    if {**earlier.environment, **free} != {**report.environment, **free}:
        return report
    if earlier.effort != report.effort:
        return report
    measured = tuple(m for m in earlier.cells if m.cell in cells and not m.is_empty)
    return replace(earlier, environment=report.environment, cells=measured, complete=False)


def _save(report: BenchmarkReport[Any], sink: str | Path | None) -> None:
    if sink is not None:
        report.save(sink)
