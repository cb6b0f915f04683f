"""Runs a plan cell by cell, verifying every contestant before it is timed."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from whorl.bench import environment
from whorl.bench.contestants import (
    Contestant,
    ContestantMakers,
    describe_error,
    prepare_contestants,
)
from whorl.bench.measure import Timing, settle_allocator, use_threads
from whorl.bench.runner import BenchmarkProgress, run_cells

from . import decode, linear, peak, softmax
from .plan import AttentionCellKind, Cell, Plan
from .report import Report
from .results import CellResult, Result

__all__ = ["measure_cell", "run"]

CONTESTANTS: dict[AttentionCellKind, Callable[[Cell, Plan], ContestantMakers]] = {
    "causal": softmax.build_causal,
    "training": softmax.build_training,
    "linear": linear.build_linear,
    "doubling": linear.build_doubling,
    "recurrent": linear.build_recurrent,
    "streaming": decode.build_streaming,
    "stepped": decode.build_stepped,
}


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
    if cell.kind == "memory":
        return CellResult(cell, tuple(_measure_memory(name, cell) for name in softmax.MEMORY))
    settle_allocator()
    with use_threads(cell.threads), torch.set_grad_enabled(cell.kind == "training"):
        able, problems = prepare_contestants(CONTESTANTS[cell.kind](cell, plan))
        if cell.kind in ("recurrent", "streaming", "stepped"):
            timings = time_alternately(able, plan.repeats)
        else:
            timings = plan.time([contestant.call for contestant in able])
    timed = [Result(c.name, timing) for c, timing in zip(able, timings, strict=True)]
    wrong = [Result(name, problem=problem) for name, problem in problems.items()]
    return CellResult(cell, (*timed, *wrong))


def time_alternately(contestants: Sequence[Contestant], repeats: int) -> list[Timing]:
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


def _measure_memory(name: str, cell: Cell) -> Result:
    try:
        return Result(name, peak=peak.measure_peak(name, cell))
    except (RuntimeError, MemoryError, ValueError) as error:
        return Result(name, problem=describe_error(error))
