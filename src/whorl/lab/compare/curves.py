"""Learning curves: validation loss by step, when it has flattened, and steps to reach a loss."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from .thresholds import FLAT_BELOW

__all__ = ["LearningCurve", "average_curves", "summarize_last_tenth"]


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

    def compute_improvement(self) -> float | None:
        """Share of the loss that the last tenth of the steps took away: (v90 - v100) / v90.

        v90 is the loss at the last point in the first 90 % of the steps; None if there is none.

        >>> round(LearningCurve((80, 90, 100), (3.0, 2.0, 1.9)).compute_improvement(), 6)
        0.05
        """
        before = bisect_right(self.steps, 0.9 * self.steps[-1]) if self.steps else 0
        if before == 0:
            return None
        loss = self.losses[before - 1]
        return (loss - self.last) / loss if loss else 0.0

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


def average_curves(curves: Sequence[LearningCurve]) -> dict[str, list[float]]:
    """Steps and mean losses of runs that differ in the seed only."""
    columns = zip(*(curve.losses for curve in curves), strict=True)
    return {"step": list(curves[0].steps), "loss": [fmean(column) for column in columns]}


def summarize_last_tenth(curves: Iterable[LearningCurve]) -> dict[str, Any]:
    """Mean improvement in the last tenth of the steps, and whether every curve is flat.

    A curve is flat if its improvement is below FLAT_BELOW.
    """
    found = [curve.compute_improvement() for curve in curves]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return {"improvement": None, "flat": False}
    return {"improvement": fmean(known), "flat": all(one < FLAT_BELOW for one in known)}
