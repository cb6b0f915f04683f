"""The lab's own learning rates: a search for each encoding, as learning_rates.json records it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whorl.lab.config import RunConfig

from .pool import ShowStatus
from .search import search_rates

__all__ = ["find_learning_rates"]


def find_learning_rates(
    encodings: Sequence[str],
    base: RunConfig,
    folder: str | Path,
    *,
    trials: int = 5,
    workers: int | None = None,
    show: ShowStatus | None = None,
) -> dict[str, Any]:
    """The losses of the trials of every encoding, and the best rates, with names in order."""
    found = search_rates(encodings, base, folder, trials=trials, workers=workers, show=show)
    names = sorted(found.trials)
    return {
        "chosen": {name: found.best[name].rates for name in names},
        "trials": {
            name: [{**trial.rates, "loss": round(trial.loss, 4)} for trial in found.trials[name]]
            for name in names
        },
    }
