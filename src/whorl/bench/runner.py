"""Runs a plan cell by cell, verifying every contestant before it is timed."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from . import environment
from .accuracy import accuracy
from .case import Case
from .measure import measure, settle_allocator, threads
from .peers import COPY, Entry, Peer, chosen
from .plan import Cell, Plan
from .report import Report
from .results import CellResult, Result

__all__ = ["measure_cell", "run", "verify"]

Progress = Callable[[int, int, str], None]


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
    peers = chosen(plan.peers)
    report = Report(environment.describe(peers), plan.effort(), complete=False)
    if resume is not None and Path(resume).exists():
        report = _continued(report, Report.load(resume), plan)
    usable = [peer for peer in peers if peer.name not in report.environment["missing"]]
    tell = progress or _silent
    try:
        for done, cell in enumerate(cells := plan.cells()):
            tell(done, len(cells), cell.label)
            if report.cell(cell.key) is None:
                some = [p for p in usable if p.name != "hf-compiled" or plan.compiles(cell)]
                report = report.adding(measure_cell(cell, some, plan))
                _save(report, sink)
        if plan.accuracy and report.accuracy is None:
            tell(len(cells), len(cells), "accuracy of tables")
            report = report.adding(accuracy())
        report = report.completed()
        tell(len(cells), len(cells), "done")
    except KeyboardInterrupt:
        pass
    _save(report, sink)
    return report


def measure_cell(cell: Cell, peers: Sequence[Peer], plan: Plan) -> CellResult:
    """Set up, verify and time the contestants of one cell."""
    settle_allocator()
    with threads(cell.threads), torch.set_grad_enabled(cell.shape.kind == "training"):
        case = Case(cell)
        results: list[Result] = []
        entries: list[tuple[str, Entry]] = []
        for peer in peers:
            if not peer.supports(cell):
                continue
            try:
                for entry in peer.entries(case):
                    if problem := verify(peer, entry, case):
                        results.append(Result(peer.name, entry.mode, problem=problem))
                    else:
                        entries.append((peer.name, entry))
            except Exception as error:  # a peer that fails is a result, not the end of the run
                results.append(Result(peer.name, "", problem=_line(error)))
        case.reset(fill=0.0)
        calls = [entry.call for _, entry in entries]
        timings = measure(
            calls,
            repeats=plan.repeats,
            sample_seconds=plan.sample_seconds,
            most_seconds=plan.most_seconds,
        )
    timed = [
        Result(name, entry.mode, timing)
        for (name, entry), timing in zip(entries, timings, strict=True)
    ]
    return CellResult(cell, (*timed, *results))


def verify(peer: Peer, entry: Entry, case: Case) -> str | None:
    """None if the entry computes the rotation (``copy_`` need not), else what is wrong."""
    if peer.name == COPY:
        return None
    case.reset()
    return case.problem(entry.results(), own_angles=peer.own_angles)


def _continued(report: Report, earlier: Report, plan: Plan) -> Report:
    same = environment.same(report.environment, earlier.environment)
    if not same or earlier.effort != report.effort:
        return report
    keys = {cell.key for cell in plan.cells()}
    for cell in earlier.cells:
        if cell.cell.key in keys:
            report = report.adding(cell)
    return report if earlier.accuracy is None else report.adding(earlier.accuracy)


def _save(report: Report, sink: str | Path | None) -> None:
    if sink is not None:
        report.save(sink)


def _line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]


def _silent(done: int, total: int, label: str) -> None:
    pass
