"""Measures a plan of the attention benchmark; every contestant is verified before it is timed."""

from collections.abc import Callable

import torch

from whorl._support.threads import use_threads
from whorl.bench.contestants import (
    ContestantMakers,
    describe_error,
    prepare_contestants,
    time_alternately,
)
from whorl.bench.measure import prepare_allocator
from whorl.bench.runner import make_run

from . import decode, linear, peak, softmax
from .plan import AttentionCellKind, Cell, CellResult, Plan, Result
from .report import Report

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


def measure_cell(cell: Cell, plan: Plan) -> CellResult:
    """The results of one cell, whose contestants are verified and then timed."""
    if cell.kind == "memory":
        return CellResult(cell, tuple(_measure_memory(name, cell) for name in softmax.MEMORY))
    prepare_allocator()
    with use_threads(cell.threads), torch.set_grad_enabled(cell.kind == "training"):
        able, problems = prepare_contestants(CONTESTANTS[cell.kind](cell, plan))
        if cell.kind in ("recurrent", "streaming", "stepped"):
            timings = time_alternately(able, plan.repeats)
        else:
            timings = plan.time_calls([contestant.call for contestant in able])
    timed = [Result(c.name, timing) for c, timing in zip(able, timings, strict=True)]
    wrong = [Result(name, problem=problem) for name, problem in problems.items()]
    return CellResult(cell, (*timed, *wrong))


def _measure_memory(name: str, cell: Cell) -> Result:
    try:
        return Result(name, peak=peak.measure_peak(name, cell))
    except (RuntimeError, MemoryError, ValueError) as error:
        return Result(name, problem=describe_error(error))


run = make_run(Report, lambda cell, plan: measure_cell(cell, plan))
