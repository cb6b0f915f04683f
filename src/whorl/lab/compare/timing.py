"""How many training steps fit into some minutes on this machine."""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import torch

from whorl.lab.architectures import build_model
from whorl.lab.config import RunConfig
from whorl.lab.data import DataSource, open_data_source
from whorl.lab.integrity import read_checked, write_checked
from whorl.lab.model import LanguageModel
from whorl.lab.optimization import (
    VALIDATIONS,
    TrainingOptimizer,
    compute_validation_loss,
    group_by_part,
    take_step,
)
from whorl.processes import ParallelModel, ProcessGroup, open_processes

from .plan import ComparisonPlan
from .speed import STEPS_PER_ROW

__all__ = ["estimate_steps", "fit_plan"]

_LEAST_STEPS = 40
_TIMED_STEPS = 3
# Seconds of imports, data and files of a run; and the slowdown of cores that share a cache.
_SECONDS_PER_RUN = 5.0
_SHARED_CACHE_FACTOR = 1.25


def estimate_steps(plan: ComparisonPlan, minutes: float, workers: int) -> int:
    """Steps of each run so that the whole plan takes about ``minutes``; times a few steps.

    At least 40, because fewer steps teach a model nothing; a very short time is exceeded.
    """
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0; got {minutes:g}.")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runs = dataclasses.replace(plan, seeds=1, thirds=False).list_runs()
        source = open_data_source(runs[0].config)
        per_step = fixed = 0.0
        for run in runs:
            model = build_model(run.config.model, vocab=source.vocab, longest=run.config.longest)
            model.reset_parameters(0)
            per_step += _time_step(model, source, run.config)
            evaluations = 1 + len(run.scalings)
            fixed += _SECONDS_PER_RUN + evaluations * _time_evaluation(model, source, run.config)
            fixed += VALIDATIONS * _time_validation(model, source)
    finally:
        torch.set_num_threads(threads)
    alone = STEPS_PER_ROW * per_step  # speed is measured after the runs
    if plan.thirds:
        per_step, fixed = per_step * 4 / 3, 2 * fixed
    room = (
        (minutes * 60 - alone)
        * min(workers, len(plan.list_runs()))
        / (plan.seeds * _SHARED_CACHE_FACTOR)
    )
    return max(_LEAST_STEPS, int((room - fixed) / per_step))


def _time_step(model: LanguageModel, source: DataSource, config: RunConfig) -> float:
    optimizer, parts = TrainingOptimizer(model, config.training), group_by_part(model)
    parallel = ParallelModel(ProcessGroup(), model, model.loss)
    best = float("inf")
    for step in range(1, _TIMED_STEPS + 1):
        start = time.perf_counter()
        take_step(parallel, optimizer, source, config.training, step, parts)
        best = min(best, time.perf_counter() - start)
    return best


def _time_validation(model: LanguageModel, source: DataSource) -> float:
    start = time.perf_counter()
    compute_validation_loss(model, source)
    return time.perf_counter() - start


@torch.no_grad()
def _time_evaluation(model: LanguageModel, source: DataSource, config: RunConfig) -> float:
    """Seconds of an evaluation: twice those of the longest length, from one window of it."""
    questions = source.get_evaluation(config.longest)
    start = time.perf_counter()
    model(questions.tokens[:1], context_length=config.longest)
    return 2 * config.evaluation.windows * (time.perf_counter() - start)


def fit_plan(plan: ComparisonPlan, minutes: float, folder: Path, workers: int) -> ComparisonPlan:
    """``plan`` with as many steps as fit into ``minutes``, the same at the next call.

    The number is stored in minutes.json in ``folder``. ValueError if that file was changed.
    """
    note = folder / "minutes.json"
    asked = {
        "minutes": minutes,
        "encodings": list(plan.encodings),
        "scalings": list(plan.scalings),
        "seeds": plan.seeds,
        "learning_rates": list(plan.learning_rates),
        "thirds": plan.thirds,
        "base": plan.base.to_dict(),
    }

    def choose_steps() -> int:
        if note.exists() and (found := _read_note(note))["asked"] == asked:
            return int(found["steps"])
        # Processes that train together are about as fast as so many workers.
        steps = estimate_steps(plan, minutes, workers if alone else processes.world)
        folder.mkdir(parents=True, exist_ok=True)
        write_checked(note, {"asked": asked, "steps": steps})
        return steps

    with open_processes() as processes:
        alone = processes.world == 1
        return _set_steps(plan, processes.run_on_main(choose_steps))


def _read_note(path: Path) -> dict[str, Any]:
    """What ``fit_plan`` stored: "asked" and "steps"; ValueError if it was changed."""
    try:
        return read_checked(path)
    except ValueError as error:
        raise ValueError(
            f"{str(path)!r} is damaged: {str(error).rstrip('.')}. Delete it; whorl compare then"
            " chooses the number of steps again, and runs with another number must be deleted too."
        ) from None


def _set_steps(plan: ComparisonPlan, steps: int) -> ComparisonPlan:
    """``plan`` with that many steps, of which at most a tenth are warm-up."""
    training = plan.base.training
    training = dataclasses.replace(training, steps=steps, warmup=min(training.warmup, steps // 10))
    return dataclasses.replace(plan, base=dataclasses.replace(plan.base, training=training))
