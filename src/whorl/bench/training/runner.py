"""Measures a plan of the training benchmark; every model is verified before it is timed."""

import torch

from whorl._support.threads import use_threads
from whorl.bench.contestants import prepare_contestants
from whorl.bench.measure import prepare_allocator
from whorl.bench.runner import make_run

from .contestants import build_contestants, count_parameters
from .plan import Cell, CellResult, Plan, Result
from .report import Report

__all__ = ["measure_cell", "run"]


def measure_cell(cell: Cell, plan: Plan) -> CellResult:
    """The results of one cell, whose contestants are verified and then timed."""
    prepare_allocator()
    with use_threads(cell.threads), torch.random.fork_rng(devices=[]):
        able, problems = prepare_contestants(build_contestants(cell, plan))
        timings = plan.time_calls([contestant.call for contestant in able])
    timed = [
        Result(contestant.name, timing, *count_parameters(contestant.name, cell))
        for contestant, timing in zip(able, timings, strict=True)
    ]
    wrong = [Result(name, problem=problem) for name, problem in problems.items()]
    return CellResult(cell, (*timed, *wrong))


run = make_run(Report, lambda cell, plan: measure_cell(cell, plan))
