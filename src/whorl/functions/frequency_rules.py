"""From rates to the shortest rule that gives them: a base, a base and a factor, or a list.

Rules are tried from the fewest numbers to the most; the first that reproduces every rate within the
function's own precision is taken, with its numbers rounded to as few digits as still do that:

    plain          base
    linear         base, factor
    proportional   base, share (and factor)
    by parts       base, factor, two corners: see by_parts.py
    own            one number for each pair

NTK is not in the list: it is a larger base.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.scaling import Linear, Proportional, Scaling

from .by_parts import USUAL_BASES, fit_by_parts
from .rounding import are_close, list_roundings

__all__ = [
    "FrequencyRule",
    "choose_share",
    "compute_frequencies",
    "describe_near_base",
    "find_near_base",
    "fit_base",
    "fit_rule",
    "list_frequencies",
]


@dataclass(frozen=True)
class FrequencyRule:
    """base and scaling that give the rates; base None: only the rates themselves do."""

    base: float | None
    scaling: Scaling | None = None
    rates: tuple[float, ...] | None = None


def compute_frequencies(base: float, pairs: int) -> Tensor:
    """base ^ (-i / pairs), float64."""
    return base ** -(torch.arange(pairs, dtype=torch.float64) / pairs)


def fit_rule(rates: Tensor, tolerance: Tensor, scale: float = 1.0) -> FrequencyRule:
    """The shortest rule for positive rates [P] (0 for pairs that stand still)."""
    for rule in (_fit_base_alone, _fit_linear, _fit_proportional):
        if (found := rule(rates, tolerance)) is not None:
            return found
    if bool((rates > 0).all()):
        parts = fit_by_parts(rates, tolerance, scale)
        if parts is not None:
            return FrequencyRule(*parts)
    return list_frequencies(rates, tolerance)


def list_frequencies(rates: Tensor, tolerance: Tensor) -> FrequencyRule:
    """The rates as a list, rounded as far as the tolerance allows."""
    pairs = zip(rates.tolist(), tolerance.tolist(), strict=True)
    listed = tuple(next(list_roundings(r, t / 4)) if r else 0.0 for r, t in pairs)
    return FrequencyRule(None, rates=listed)


def fit_base(rates: Tensor, tolerance: Tensor, pairs: int | None = None) -> float | None:
    """The base whose ladder of ``pairs`` steps begins with the rates; None if there is none."""
    steps = torch.arange(len(rates), dtype=torch.float64) / (pairs or len(rates))
    if abs(float(rates[0]) - 1) > float(tolerance[0]) or not bool((rates > 0).all()):
        return None
    if len(rates) == 1:
        return 10_000.0
    weight = 1 / tolerance[1:] ** 2
    logarithm = float(
        (weight * steps[1:] * -rates[1:].log()).sum() / (weight * steps[1:] ** 2).sum()
    )
    if not 1e-6 < logarithm < 700:
        return None
    slack = float((tolerance[1:] / steps[1:]).max())
    for base in _list_bases(math.exp(logarithm), slack):
        if are_close(base**-steps, rates, tolerance):
            return base
    return None


def _list_bases(value: float, slack: float) -> Iterator[float]:
    yield from (base for base in list_roundings(value, slack) if base > 1)


def _fit_base_alone(rates: Tensor, tolerance: Tensor) -> FrequencyRule | None:
    base = fit_base(rates, tolerance)
    return None if base is None else FrequencyRule(base)


def _fit_linear(rates: Tensor, tolerance: Tensor) -> FrequencyRule | None:
    if not bool((rates > 0).all()):
        return None
    for factor in list_roundings(1 / float(rates[0]), float(tolerance[0])):
        base = fit_base(rates * factor, tolerance)
        if base is not None:
            return FrequencyRule(base, Linear(factor))
    return None


def _fit_proportional(rates: Tensor, tolerance: Tensor) -> FrequencyRule | None:
    pairs = len(rates)
    turning = int((rates > 0).sum())
    if not 0 < turning < pairs or not bool((rates[:turning] > 0).all()):
        return None
    moving, allowed = rates[:turning], tolerance[:turning]
    for factor in list_roundings(1 / float(rates[0]), float(tolerance[0])):
        base = fit_base(moving * factor, allowed, pairs)
        if base is not None:
            return FrequencyRule(base, Proportional(choose_share(turning, pairs), factor))
    return None


def choose_share(turning: int, pairs: int) -> float:
    """A part of all pairs, in few digits, that makes ``turning`` of them turn."""
    for digits in range(1, 17):
        value = float(f"{turning / pairs:.{digits}g}")
        if value <= 1 and int(value * 2 * pairs // 2) == turning:
            return value
    return (turning + 0.5) / pairs


def find_near_base(rates: Tensor) -> tuple[float, list[int]] | None:
    """A usual base, or that of the slowest pair, that at least half of the rates fit; and the pairs

    that do not.
    """
    pairs, slowest = len(rates), float(rates[-1])
    fitted = slowest ** (-pairs / (pairs - 1)) if pairs > 1 and 0 < slowest < 1 else math.inf
    own = [next(list_roundings(fitted, 1e-7))] if 1 < fitted < 1e30 else []
    for base in (*USUAL_BASES, *own):
        off = (rates / compute_frequencies(base, len(rates)) - 1).abs() > 1e-5
        if 2 * int(off.sum()) <= len(rates) and len(rates) > 3:
            return base, off.nonzero().flatten().tolist()
    return None


def describe_near_base(rates: Tensor) -> str:
    """``nearly_base`` in words; "" if there is none."""
    if (found := find_near_base(rates)) is None:
        return ""
    base, pairs = found
    more = ", ..." if len(pairs) > 4 else ""
    return f"; of base {base:,.0f} would be all but pairs {', '.join(map(str, pairs[:4]))}{more}"
