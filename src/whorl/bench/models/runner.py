"""Measures a plan of the benchmark of models."""

import math
import subprocess
import sys
from contextlib import ExitStack

from whorl._support import memory
from whorl._support.threads import use_threads
from whorl.bench.contestants import collect_samples, describe_error, prepare_contestants
from whorl.bench.measure import Timing
from whorl.bench.runner import make_run

from .contestants import build_call, build_contestants
from .plan import INSTALLED, STOCK, Cell, CellResult, Plan, Result
from .report import Report

__all__ = ["main", "measure_cell", "run"]


def measure_cell(cell: Cell, plan: Plan) -> CellResult:
    """The results of one cell; models that must agree are compared before they are timed."""
    if cell.work == "memory":
        return CellResult(cell, tuple(_measure_memory(name, cell) for name in (STOCK, INSTALLED)))
    samples: dict[str, list[float]] = {}
    units: dict[str, int] = {}
    for _ in range(plan.starts):
        with ExitStack() as processes:
            able, problems = prepare_contestants(build_contestants(cell, processes))
            rounds, seconds = (
                math.ceil(plan.repeats / plan.starts),
                plan.least_seconds / plan.starts,
            )
            for each, found in zip(able, collect_samples(able, rounds, seconds), strict=True):
                samples.setdefault(each.name, []).extend(found)
                units[each.name] = each.units
        if problems:  # a model that is wrong once has no time
            break
    timed = [
        Result(name, Timing.from_samples(found, units[name]))
        for name, found in samples.items()
        if name not in problems
    ]
    wrong = [Result(name, problem=problem) for name, problem in problems.items()]
    return CellResult(cell, (*timed, *wrong))


def _measure_memory(name: str, cell: Cell) -> Result:
    """The memory that a model needs besides its weights, measured in a separate process."""
    code = f"from {__name__} import main; main()"
    command = [sys.executable, "-c", code, name, cell.model, str(cell.length), str(cell.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Result(name, problem=describe_error(RuntimeError(last)))
    return Result(name, peak=int(done.stdout))


def main() -> None:
    """The separate process: takes contestant, model, length and threads from the command line."""
    name, model, length, threads = sys.argv[1:]
    with use_threads(int(threads)):
        cell = Cell(model, "prefill", int(length), 1, int(threads))
        call, _ = build_call(name, cell)
        before = memory.reset_peak()
        call()
        print(max(0, memory.read_peak() - before))


run = make_run(Report, lambda cell, plan: measure_cell(cell, plan))
