"""Runs a plan cell by cell, verifying every contestant before it is timed."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from whorl.bench import environment
from whorl.bench.measure import Timing, measure, settle_allocator, threads

from . import decode, linear, peak, softmax
from .plan import Cell, Kind, Plan
from .report import Report
from .results import CellResult, Contestant, Result

__all__ = ["measure_cell", "run"]

Progress = Callable[[int, int, str], None]
Makers = Sequence[tuple[str, Callable[[], Contestant]]]

CONTESTANTS: dict[Kind, Callable[[Cell, Plan], Makers]] = {
    "causal": softmax.causal,
    "training": softmax.training,
    "linear": linear.linear,
    "doubling": linear.doubling,
    "recurrent": linear.recurrent,
    "streaming": decode.streaming,
    "stepped": decode.stepped,
}


def run(
    plan: Plan,
    *,
    progress: Progress | None = None,
    sink: str | Path | None = None,
    resume: str | Path | None = None,
) -> Report:
    """Measure ``plan``; an interrupt (Ctrl-C) ends it with what is done so far.

    Args:
        progress: called as progress(done, total, label) before each cell and at the end.
        sink: file that is rewritten, atomically, after every cell.
        resume: report of an earlier run; its cells are kept if it was made with the same machine,
            versions and effort, else measured again. A file that does not exist is no error.
    """
    report = Report(environment.describe(()), plan.effort(), complete=False)
    if resume is not None and Path(resume).exists():
        report = _continued(report, Report.load(resume), plan)
    try:
        for done, cell in enumerate(cells := plan.cells()):
            if progress is not None:
                progress(done, len(cells), cell.label)
            if report.cell(cell.key) is None:
                report = report.adding(measure_cell(cell, plan))
                if sink is not None:
                    report.save(sink)
        report = report.completed()
        if progress is not None:
            progress(len(cells), len(cells), "done")
    except KeyboardInterrupt:
        pass
    if sink is not None:
        report.save(sink)
    return report


def measure_cell(cell: Cell, plan: Plan) -> CellResult:
    """Set up, verify and time the contestants of one cell."""
    if cell.kind == "memory":
        return CellResult(cell, tuple(_peak(name, cell) for name in peak.NAMES))
    settle_allocator()
    with threads(cell.threads), torch.set_grad_enabled(cell.kind == "training"):
        ready, wrong = _ready(CONTESTANTS[cell.kind](cell, plan))
        if cell.kind in ("recurrent", "streaming", "stepped"):
            timings = take_turns(ready, plan.repeats)
        else:
            timings = measure(
                [contestant.call for contestant in ready],
                repeats=plan.repeats,
                sample_seconds=plan.sample_seconds,
                most_seconds=plan.most_seconds,
            )
    timed = [Result(c.name, timing) for c, timing in zip(ready, timings, strict=True)]
    return CellResult(cell, (*timed, *wrong))


def take_turns(contestants: Sequence[Contestant], repeats: int) -> list[Timing]:
    """Seconds of one unit; all are called equally often, because their caches grow with calls."""
    samples: list[list[float]] = [[] for _ in contestants]
    for turn in range(repeats + 1):  # the first round warms up
        for n in range(len(contestants)):
            who = (n + turn) % len(contestants)
            start = time.perf_counter()
            contestants[who].call()
            seconds = time.perf_counter() - start
            if turn:
                samples[who].append(seconds / contestants[who].units)
    return [Timing.of(s, c.units) for s, c in zip(samples, contestants, strict=True)]


def _ready(makers: Makers) -> tuple[list[Contestant], list[Result]]:
    """The contestants that compute the right thing, and what is wrong with the others."""
    ready, wrong = [], []
    for name, make in makers:
        try:
            contestant = make()
            problem = contestant.problem()
        except Exception as error:  # one that fails is a result, not the end of the run
            problem = _line(error)
        if problem is None:
            ready.append(contestant)
        else:
            wrong.append(Result(name, problem=problem))
    return ready, wrong


def _peak(name: str, cell: Cell) -> Result:
    try:
        return Result(name, peak=peak.measure_peak(name, cell))
    except (RuntimeError, MemoryError, ValueError) as error:
        return Result(name, problem=_line(error))


def _continued(report: Report, earlier: Report, plan: Plan) -> Report:
    same = environment.same(report.environment, earlier.environment)
    if not same or earlier.effort != report.effort:
        return report
    cells = plan.cells()
    for result in earlier.cells:
        if result.cell in cells:
            report = report.adding(result)
    return report


def _line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
