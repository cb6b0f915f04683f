"""Trials of learning rates: every encoding gets the same number of them.

The first three trials differ in the rate of the layers' matrices. The last two keep the best of
these and differ in the rate of the encoding's own parameters, or again in that of the matrices if
the encoding has none. The trial with the lowest loss on the validation text wins; held-out text is
not looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whorl.lab.architectures import build_model
from whorl.lab.config import EvaluationConfig, RunConfig
from whorl.lab.data import open_data_source
from whorl.lab.optimization import group_parameters
from whorl.lab.runs import Run
from whorl.lab.specs import name_folder

from .plan import PlannedRun
from .pool import ShowStatus, run_all

__all__ = ["RateGrid", "find_learning_rates"]


@dataclass(frozen=True)
class RateGrid:
    """Learning rates of the trials, each in ascending order.

    matrices: the first trials. more_matrices: the last ones of encodings without parameters.
    encoding: an odd number; its middle is used in the first trials, the others in the last ones.
    """

    matrices: tuple[float, ...] = (0.005, 0.01, 0.02)
    more_matrices: tuple[float, ...] = (0.0025, 0.04)
    encoding: tuple[float, ...] = (0.01, 0.05, 0.2)


def find_learning_rates(
    encodings: Sequence[str],
    base: RunConfig,
    folder: str | Path,
    *,
    grid: RateGrid | None = None,
    workers: int = 1,
    show: ShowStatus | None = None,
) -> dict[str, Any]:
    """Train every encoding at each rate of its trials below ``folder``; the losses and the best.

    Trials that are already there are not trained again.
    """
    grid = grid or RateGrid()
    base = replace(base, evaluation=EvaluationConfig(multiples=(1.0,), windows=8))
    middle = grid.encoding[len(grid.encoding) // 2]
    first = [
        plan_trial(base, name, matrices=rate, encoding=middle)
        for name in encodings
        for rate in grid.matrices
    ]
    losses = _train_trials(first, Path(folder), workers, show)
    second = []
    for name in encodings:
        best = _find_best(losses, name)
        if _has_parameters(base, name):
            matrices = best.config.training.learning_rate
            others = [(matrices, rate) for rate in grid.encoding if rate != middle]
        else:
            others = [(rate, middle) for rate in grid.more_matrices]
        second += [plan_trial(base, name, matrices=m, encoding=e) for m, e in others]
    losses |= _train_trials(second, Path(folder), workers, show)
    return {
        "chosen": {
            name: _get_rates(base, _find_best(losses, name), name) for name in sorted(encodings)
        },
        "trials": {
            name: [
                {**_get_rates(base, trial, name), "loss": round(loss, 4)}
                for trial, loss in losses.items()
                if trial.config.model.encoding == name
            ]
            for name in sorted(encodings)
        },
    }


def plan_trial(base: RunConfig, name: str, *, matrices: float, encoding: float) -> PlannedRun:
    """One trial of an encoding: the rate of matrices and that of its own parameters."""
    training = replace(base.training, learning_rate=matrices, encoding_learning_rate=encoding)
    config = replace(base, model=replace(base.model, encoding=name), training=training)
    return PlannedRun(f"{name_folder(name)}-matrices{matrices:g}-encoding{encoding:g}", config)


def _train_trials(
    trials: Sequence[PlannedRun], folder: Path, workers: int, show: ShowStatus | None
) -> dict[PlannedRun, float]:
    """The last validation loss of each trial; a trial that diverged has an infinite loss."""
    if not trials:
        return {}
    source = open_data_source(trials[0].config)
    folder.mkdir(parents=True, exist_ok=True)
    statuses = run_all(
        trials, folder, source.about, workers=workers, show=show or (lambda statuses: None)
    )
    found = {}
    for trial, status in zip(trials, statuses, strict=True):
        if status.state == "done":
            found[trial] = float(Run(folder / trial.name).read_metrics()[-1]["validation_loss"])
        elif "diverged" in status.reason:
            found[trial] = float("inf")
        else:
            raise ValueError(f"{trial.name} did not finish: {status.reason or status.state}.")
    return found


def _find_best(losses: Mapping[PlannedRun, float], name: str) -> PlannedRun:
    mine = {trial: loss for trial, loss in losses.items() if trial.config.model.encoding == name}
    return min(mine, key=lambda trial: mine[trial])


def _get_rates(base: RunConfig, trial: PlannedRun, name: str) -> dict[str, float]:
    """The rates of a trial; without the encoding's own if it has no parameters."""
    training = trial.config.training
    rates = {"learning_rate": training.learning_rate}
    if _has_parameters(base, name):
        rates["encoding_learning_rate"] = training.encoding_learning_rate
    return rates


def _has_parameters(base: RunConfig, name: str) -> bool:
    config = replace(base.model, encoding=name)
    model = build_model(config, vocab=2, longest=base.longest)
    return bool(group_parameters(model)["encoding"])
