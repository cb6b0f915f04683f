"""Means with intervals, for few seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

__all__ = ["Estimate", "over_seeds", "over_windows"]

# 97.5 % points of Student's t for 1, 2, ... degrees of freedom; the normal one beyond.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_NORMAL = 1.96


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval, whose ends are None where one value gives none."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def over_seeds(values: Sequence[float]) -> Estimate:
    """Mean over seeds; the interval by Student's t.

    >>> print(over_seeds([1.0, 1.1, 1.2]))
    1.10 [0.85, 1.35]
    """
    if len(values) < 2:
        return Estimate(fmean(values))
    degrees = len(values) - 1
    factor = _T[degrees - 1] if degrees <= len(_T) else _NORMAL
    return _around(values, factor)


def over_windows(values: Sequence[float]) -> Estimate:
    """Mean over windows of text, of which there are many; the interval by the normal law."""
    return Estimate(fmean(values)) if len(values) < 2 else _around(values, _NORMAL)


def _around(values: Sequence[float], factor: float) -> Estimate:
    mean, half = fmean(values), factor * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)
