"""Learning curves: validation loss by step, steps to reach a loss, and what the last ones bring."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

__all__ = ["LearningCurve", "average_curves", "compute_last_tenth"]


@dataclass(frozen=True)
class LearningCurve:
    """Validation losses of one run after some of its steps, in ascending order."""

    steps: tuple[int, ...]
    losses: tuple[float, ...]

    @classmethod
    def from_metrics(cls, lines: Iterable[Mapping[str, Any]]) -> "LearningCurve":
        """The curve of a run, from the lines of its metrics that have a validation loss."""
        points = [
            (one["step"], one["validation_loss"]) for one in lines if "validation_loss" in one
        ]
        return cls(tuple(step for step, _ in points), tuple(loss for _, loss in points))

    @property
    def last(self) -> float:
        return self.losses[-1]

    def find_step(self, target: float) -> float | None:
        """First step at which the loss is down to ``target``, on straight lines between points.

        The first point counts as the step if it is below already; None if no point is.

        >>> LearningCurve((10, 20), (3.0, 2.0)).find_step(2.25)
        17.5
        """
        if self.losses and self.losses[0] <= target:
            return float(self.steps[0])
        points = zip(self.steps, self.losses, strict=True)
        for (before, above), (after, below) in pairwise(points):
            if below <= target:
                return before + (after - before) * (above - target) / (above - below)
        return None

    def shift(self, nats: float) -> "LearningCurve":
        """The same curve, higher by ``nats``."""
        return LearningCurve(self.steps, tuple(loss + nats for loss in self.losses))


def average_curves(curves: Sequence[LearningCurve]) -> dict[str, list[Any]]:
    """Steps, mean losses and the losses of each run, of runs that differ in the seed only."""
    columns = zip(*(curve.losses for curve in curves), strict=True)
    return {
        "step": list(curves[0].steps),
        "loss": [fmean(column) for column in columns],
        "seeds": [list(curve.losses) for curve in curves],
    }


def compute_last_tenth(pairs: Sequence[tuple[LearningCurve, LearningCurve]]) -> float | None:
    """Share of the loss that the last tenth of the steps took away; None without losses.

    pairs: curves of runs with a third of the steps, and with all of them. Between their last losses
    the loss is taken to fall as a power of the number of steps. The end of a single curve says
    nothing about it, because the learning rate falls to zero there.

    >>> short, full = LearningCurve((100,), (2.0,)), LearningCurve((300,), (1.8,))
    >>> round(compute_last_tenth([(short, full)]), 4)
    0.0101
    """
    if not pairs or any(not curve.losses for pair in pairs for curve in pair):
        return None
    short, full = (fmean(curve.last for curve in column) for column in zip(*pairs, strict=True))
    if not (math.isfinite(short) and math.isfinite(full) and short > 0 and full > 0):
        return None
    before, now = pairs[0]
    more = now.steps[-1] / before.steps[-1]  # about three, by rounding
    if more <= 1:
        return None
    return float(1 - 0.9 ** (math.log(short / full) / math.log(more)))
