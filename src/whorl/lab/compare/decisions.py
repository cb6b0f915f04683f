"""On which side of a bound a number is, and whether more training steps could move it.

The number is above the bound if its whole 95 % interval is, by more than other seeds may change
it; below it in the same way; else it is open. It has *settled* if another change as large as that
since a third of the steps would leave it there.
"""

import math
from typing import Literal

from .statistics import Estimate

__all__ = ["LEAST_GAIN", "Side", "explain_open", "find_side", "has_settled"]

Side = Literal["above", "below", "open"]

#: A model counts as trained if its loss is this many nats below that of token frequencies.
LEAST_GAIN = 0.5


def find_side(value: Estimate, bound: float, noise: float = 0.0) -> Side:
    """The side of ``bound`` on which ``value`` is; within ``noise`` of the bound it is open.

    >>> find_side(Estimate(0.3, 0.2, 0.4), 0.0), find_side(Estimate(0.3, 0.2, 0.4), 0.0, 0.25)
    ('above', 'open')
    """
    if value.low is None or value.high is None:
        return "open"
    if value.low > bound + noise:
        return "above"
    return "below" if value.high < bound - noise else "open"


def has_settled(side: Side, value: Estimate, before: float, bound: float, noise: float) -> bool:
    """Whether the side stays if the value changes again as much as since ``before``.

    What is uncertain in a value counts for both of them. A number that is open has settled if it
    has changed by no more than that.
    """
    known = value.low is not None and value.high is not None
    uncertain = max(noise, (value.high - value.low) / 2 if known else 0.0)  # type: ignore[operator]
    later, margin = 2 * value.mean - before, math.sqrt(5) * uncertain
    if side == "above":
        return later > bound + margin
    if side == "below":
        return later < bound - margin
    return not known or abs(value.mean - before) <= math.sqrt(2) * uncertain


def explain_open(value: Estimate, bound: float, noise: float) -> str:
    """Why a number is on no side of ``bound``."""
    if value.low is None or value.high is None:
        return "a loss is not finite" if math.isnan(value.mean) else "one value has no interval"
    if noise and not value.low <= bound <= value.high:
        return f"a difference within {noise:.2g}, which another seed may reverse"
    return f"the interval contains {bound:g}"
