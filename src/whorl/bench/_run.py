"""Runs cells one after another: saved after each, interrupted and resumed; and who takes part.

``Benchmark`` is what the folders here have in common.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from . import environment
from ._report import BaseReport, Cell, Measured

__all__ = ["Benchmark", "Contestant", "Makers", "Progress", "error_line", "ready", "run_cells"]

Progress = Callable[[int, int, str], None]
R = TypeVar("R", bound=BaseReport[Any])
K = TypeVar("K", bound=Cell)


class Plan(Protocol):
    """What is measured, and how long."""

    @classmethod
    def quick(cls) -> "Plan": ...

    @classmethod
    def full(cls) -> "Plan": ...

    @property
    def only(self) -> Callable[..., "Plan"]: ...  # threads=, and what else it can be narrowed by

    def cells(self) -> Sequence[Cell]: ...


class Benchmark(Protocol):
    """Rotation, attention, training: modules with these names."""

    @property
    def Plan(self) -> type[Plan]: ...  # noqa: N802  # a class

    @property
    def Report(self) -> type[BaseReport[Any]]: ...  # noqa: N802

    # A plan of its own Plan.
    def run(
        self,
        plan: Any,
        *,
        progress: Progress | None = None,
        sink: str | Path | None = None,
        resume: str | Path | None = None,
    ) -> BaseReport[Any]: ...


@dataclass(frozen=True)
class Contestant:
    """call: the work that is timed. problem: does it once; None if the result is right.

    units: what a call does so many times, and is reported per one of.
    """

    name: str
    call: Callable[[], object]
    problem: Callable[[], str | None]
    units: int = 1


def _always(measured: Any) -> bool:
    return True


Makers = Sequence[tuple[str, Callable[[], Contestant]]]


def run_cells(
    report: R,
    cells: Sequence[K],
    measure: Callable[[K], Measured],
    *,
    progress: Progress | None = None,
    sink: str | Path | None = None,
    resume: str | Path | None = None,
    finish: Callable[[R, Progress], R] | None = None,
    is_done: Callable[[Any], bool] = _always,
) -> R:
    """Measure ``cells`` into ``report``; an interrupt (Ctrl-C) ends it with what is done so far.

    Args:
        report: empty, with environment and effort of this run.
        progress: called as progress(done, total, label) before each cell and at the end.
        sink: file that is rewritten, atomically, after every cell.
        resume: report of an earlier run; its cells are kept if it was made with the same machine,
            versions and effort, else measured again. A file that does not exist is no error.
        finish: adds to the report after the last cell.
        is_done: False for what an earlier run measured in vain, so that it is measured again.
    """
    report = replace(report, complete=False)
    if resume is not None and Path(resume).exists():
        report = _continued(report, type(report).load(resume), cells, is_done)
    done = {measured.cell for measured in report.cells}
    tell = progress or _silent
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


def ready(makers: Makers) -> tuple[list[Contestant], dict[str, str]]:
    """The contestants that compute the right thing, and what is wrong with the others, by name."""
    found, wrong = [], {}
    for name, make in makers:
        try:
            contestant = make()
            problem = contestant.problem()
        except Exception as error:  # one that fails is a result, not the end of the run
            problem = error_line(error)
        if problem is None:
            found.append(contestant)
        else:
            wrong[name] = problem
    return found, wrong


def error_line(error: Exception) -> str:
    """The kind of an error and the first line of what it says."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]


def _continued(report: R, earlier: R, cells: Sequence[Cell], is_done: Callable[[Any], bool]) -> R:
    """``report`` with what ``earlier`` has of it; cells are compared whole, as keys say less."""
    same = environment.same(report.environment, earlier.environment)
    if not same or earlier.effort != report.effort:
        return report
    kept = tuple(m for m in earlier.cells if m.cell in cells and is_done(m))
    return replace(earlier, environment=report.environment, cells=kept, complete=False)


def _save(report: BaseReport[Any], sink: str | Path | None) -> None:
    if sink is not None:
        report.save(sink)


def _silent(done: int, total: int, label: str) -> None:
    pass
