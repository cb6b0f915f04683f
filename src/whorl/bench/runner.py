"""Runs cells one after another: saved after each, interrupted and resumed.

``Benchmark`` is what the folders here have in common.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from . import environment
from .cells import BenchmarkCell, BenchmarkCellResult
from .plan import BenchmarkPlan
from .report import BenchmarkReport

__all__ = ["Benchmark", "BenchmarkProgress", "run_cells"]

BenchmarkProgress = Callable[[int, int, str], None]
R = TypeVar("R", bound=BenchmarkReport[Any])
K = TypeVar("K", bound=BenchmarkCell)


class Benchmark(Protocol):
    """Rotation, attention, training: modules with these names."""

    @property
    def Plan(self) -> type[BenchmarkPlan]: ...  # noqa: N802  # a class

    @property
    def Report(self) -> type[BenchmarkReport[Any]]: ...  # noqa: N802

    # A plan of its own Plan.
    def run(
        self,
        plan: Any,
        *,
        progress: BenchmarkProgress | None = None,
        sink: str | Path | None = None,
        resume: str | Path | None = None,
    ) -> BenchmarkReport[Any]: ...


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
    """Measure ``cells`` into ``report``; an interrupt (Ctrl-C) ends it with what is done so far.

    Args:
        report: empty, with environment and effort of this run.
        progress: called as progress(done, total, label) before each cell and at the end.
        sink: file that is rewritten, atomically, after every cell.
        resume: report of an earlier run; its cells are kept if it was made with the same machine,
            versions and effort, else measured again. A file that does not exist is no error.
        finish: adds to the report after the last cell.
    """
    report = replace(report, complete=False)
    if resume is not None and Path(resume).exists():
        report = _continue_earlier(report, type(report).load(resume), cells)
    done = {measured.cell for measured in report.cells}
    tell = progress or _show_nothing
    try:
        for n, cell in enumerate(cells):
            tell(n, len(cells), cell.label)
            if cell not in done:
                report = report.adding(measure(cell))
                _save(report, sink)
        if finish is not None:
            report = finish(report, tell)
        report = report.completed()
        tell(len(cells), len(cells), "done")
    except KeyboardInterrupt:
        pass
    _save(report, sink)
    return report


def _continue_earlier(report: R, earlier: R, cells: Sequence[BenchmarkCell]) -> R:
    """The report with the cells that ``earlier`` has of it; keys say too little to compare them."""
    same = environment.is_same_environment(report.environment, earlier.environment)
    if not same or earlier.effort != report.effort:
        return report
    kept = tuple(m for m in earlier.cells if m.cell in cells and not m.is_empty)
    return replace(earlier, environment=report.environment, cells=kept, complete=False)


def _save(report: BenchmarkReport[Any], sink: str | Path | None) -> None:
    if sink is not None:
        report.save(sink)


def _show_nothing(done: int, total: int, label: str) -> None:
    pass
