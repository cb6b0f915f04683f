"""Means with 95 % intervals, for few seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

__all__ = ["Estimate", "estimate"]

# 97.5 % points of Student's t for 1, 2, ... degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_NORMAL = 1.95996


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval; low and high are None if there is one value."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def format_percent(self) -> str:
        """The same for a share, in whole per cent: "31 % [25 %, 37 %]"."""
        if self.low is None or self.high is None:
            return f"{100 * self.mean:.0f} %"
        low, high = 100 * self.low, 100 * self.high
        return f"{100 * self.mean:.0f} % [{low:.0f} %, {high:.0f} %]"


def estimate(values: Sequence[float]) -> Estimate:
    """Mean of ``values``, and its interval by Student's t distribution.

    >>> print(estimate([1.0, 1.1, 1.2]))
    1.10 [0.85, 1.35]
    """
    if not all(map(math.isfinite, values)):
        return Estimate(math.nan)
    mean = fmean(values)
    if len(values) < 2:
        return Estimate(mean)
    half = _compute_t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def _compute_t_quantile(degrees: int) -> float:
    """97.5 % point of Student's t: from a table, for many degrees of freedom from a series."""
    if degrees <= len(_T):
        return _T[degrees - 1]
    z = _NORMAL
    more = (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    return z + more
