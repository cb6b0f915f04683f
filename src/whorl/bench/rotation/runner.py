"""Runs a plan cell by cell, verifying every contestant before it is timed."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from whorl.bench import environment
from whorl.bench._run import Progress, error_line, run_cells
from whorl.bench.measure import measure, settle_allocator, threads

from .accuracy import accuracy
from .case import Case
from .peers import COPY, Entry, Peer, chosen
from .plan import Cell, Plan
from .report import Report
from .results import CellResult, Result
from .worker import can_isolate, server

__all__ = ["measure_cell", "run", "verify"]


def run(
    plan: Plan,
    *,
    progress: Progress | None = None,
    sink: str | Path | None = None,
    resume: str | Path | None = None,
) -> Report:
    """Measure ``plan``; the options are those of ``run_cells``."""
    peers = chosen(plan.peers)
    report = Report(environment.describe(peers), plan.effort())
    usable = [peer for peer in peers if peer.name not in report.environment["missing"]]
    cells = plan.cells()

    def one(cell: Cell) -> CellResult:
        some = [p for p in usable if p.name != "hf-compiled" or plan.compiles(cell)]
        return measure_one(cell, some, plan)

    def finish(report: Report, tell: Progress) -> Report:
        if not plan.accuracy or report.accuracy is not None:
            return report
        tell(len(cells), len(cells), "accuracy of tables")
        return report.with_accuracy(accuracy())

    options: dict[str, Any] = {"progress": progress, "sink": sink, "resume": resume}
    with server() if plan.isolated and can_isolate() else nullcontext(measure_cell) as measure_one:
        return run_cells(report, cells, one, finish=finish, **options)


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
                results.append(Result(peer.name, "", problem=error_line(error)))
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
