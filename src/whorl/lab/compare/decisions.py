"""On which side of a bound a number is, and whether more training steps could move it.

The number is above the bound if its whole 95 % interval is, by more than other seeds may change
it; below it in the same way; else it is open. It has *settled* if changes as large as those since a
third of the steps would leave it there: of all rows together and, unless their curves are flat, of
one row while the others stay. Where the number would stay, but not by more than seeds may change
it, more steps are not what is missing: seeds are.
"""

import math
from collections.abc import Sequence
from typing import Literal

from .statistics import Estimate

__all__ = [
    "LEAST_GAIN",
    "LEAST_SHARE",
    "Side",
    "explain_open",
    "find_side",
    "has_settled",
    "would_stay",
]

Side = Literal["above", "below", "open"]

#: A model counts as trained if its loss is this many nats below that of token frequencies.
LEAST_GAIN = 0.5
#: And one of a task if its accuracy has come this part of the way from guessing to always right.
LEAST_SHARE = 0.1


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


def has_settled(
    side: Side,
    value: Estimate,
    changes: Sequence[float],
    bound: float,
    noise: float,
    *,
    flat: bool = False,
) -> bool:
    """Whether the side stays if the rows change again as much as since a third of the steps.

    What is uncertain in a value counts for both of them. A number that is open has settled if it
    has changed by no more than that.

    changes: what each row has added to the value. flat: whether the curves of all rows are, so that
    one row will not change while the others stay.

    >>> has_settled("above", Estimate(0.14, 0.13, 0.15), [0.3, -0.25], 0.0, 0.01)
    False
    >>> has_settled("above", Estimate(0.14, 0.13, 0.15), [0.3, -0.25], 0.0, 0.01, flat=True)
    True
    """
    known = value.low is not None and value.high is not None
    uncertain = max(noise, (value.high - value.low) / 2 if known else 0.0)  # type: ignore[operator]
    margin = math.sqrt(5) * uncertain
    if side != "open":
        return would_stay(side, value, changes, bound, margin, flat=flat)
    possible = _list_possible(changes, flat)
    return not known or all(abs(change) <= math.sqrt(2) * uncertain for change in possible)


def would_stay(
    side: Side,
    value: Estimate,
    changes: Sequence[float],
    bound: float,
    margin: float = 0.0,
    *,
    flat: bool = False,
) -> bool:
    """Whether a number above or below ``bound`` is there by ``margin`` after the same changes.

    >>> would_stay("above", Estimate(0.14, 0.13, 0.15), [0.3, -0.1], 0.0)
    True
    """
    possible = _list_possible(changes, flat)
    if side == "above":
        return all(value.mean + change > bound + margin for change in possible)
    return side == "below" and all(value.mean + change < bound - margin for change in possible)


def _list_possible(changes: Sequence[float], flat: bool) -> list[float]:
    """Changes that more steps may bring: of all rows together, and of each row alone."""
    return [sum(changes), *([] if flat else changes)]


def explain_open(value: Estimate, bound: float, noise: float) -> str:
    """Why a number is on no side of ``bound``."""
    if value.low is None or value.high is None:
        return "a loss is not finite" if math.isnan(value.mean) else "one value has no interval"
    if noise and not value.low <= bound <= value.high:
        return f"a difference within {noise:.2g}, which another seed may reverse"
    return f"the interval contains {bound:g}"
