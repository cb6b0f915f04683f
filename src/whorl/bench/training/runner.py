"""Runs a plan cell by cell, verifying every model before its steps are timed."""

from pathlib import Path

import torch

from whorl.bench import environment
from whorl.bench.contestants import prepare_contestants
from whorl.bench.measure import settle_allocator, use_threads
from whorl.bench.runner import BenchmarkProgress, run_cells

from .contestants import build_contestants, count_parameters
from .plan import Cell, Plan
from .report import Report
from .results import CellResult, Result

__all__ = ["measure_cell", "run"]


def run(
    plan: Plan,
    *,
    progress: BenchmarkProgress | None = None,
    sink: str | Path | None = None,
    resume: str | Path | None = None,
) -> Report:
    """Measure ``plan``; the options are those of ``run_cells``."""
    return run_cells(
        Report(environment.describe_environment(), plan.effort()),
        plan.cells(),
        lambda cell: measure_cell(cell, plan),
        progress=progress,
        sink=sink,
        resume=resume,
    )


def measure_cell(cell: Cell, plan: Plan) -> CellResult:
    """Set up, verify and time the contestants of one cell."""
    settle_allocator()
    with use_threads(cell.threads), torch.random.fork_rng(devices=[]):
        able, problems = prepare_contestants(build_contestants(cell, plan))
        timings = plan.time([contestant.call for contestant in able])
    timed = [
        Result(contestant.name, timing, *count_parameters(contestant.name, cell))
        for contestant, timing in zip(able, timings, strict=True)
    ]
    wrong = [Result(name, problem=problem) for name, problem in problems.items()]
    return CellResult(cell, (*timed, *wrong))
