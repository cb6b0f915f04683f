"""The rule with the fewest numbers that gives measured frequencies.

Rules are tried in this order. The first that gives every frequency within the precision of the
function is taken, and its numbers are rounded to as few digits as possible:

    base           base
    linear         base, factor
    proportional   base, share of pairs that rotate (and factor)
    by parts       base, factor, two corners: see by_parts.py
    list           one number for each pair

NTK is not among them: it is a larger base.
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
    """Base and scaling that give the frequencies, or base None and a list of all frequencies."""

    base: float | None
    scaling: Scaling | None = None
    inv_freq: tuple[float, ...] | None = None


def compute_frequencies(base: float, pairs: int) -> Tensor:
    """Frequencies without scaling, base ^ (-i / pairs), float64 [pairs]."""
    return base ** -(torch.arange(pairs, dtype=torch.float64) / pairs)


def fit_rule(inv_freq: Tensor, tolerance: Tensor, scale: float = 1.0) -> FrequencyRule:
    """The rule with the fewest numbers for frequencies [P] >= 0."""
    for rule in (_fit_base_alone, _fit_linear, _fit_proportional):
        if (found := rule(inv_freq, tolerance)) is not None:
            return found
    if bool((inv_freq > 0).all()):
        parts = fit_by_parts(inv_freq, tolerance, scale)
        if parts is not None:
            return FrequencyRule(*parts)
    return list_frequencies(inv_freq, tolerance)


def list_frequencies(inv_freq: Tensor, tolerance: Tensor) -> FrequencyRule:
    """The rule that lists all frequencies, rounded as far as the tolerance allows."""
    pairs = zip(inv_freq.tolist(), tolerance.tolist(), strict=True)
    listed = tuple(next(list_roundings(r, t / 4)) if r else 0.0 for r, t in pairs)
    return FrequencyRule(None, inv_freq=listed)


def fit_base(inv_freq: Tensor, tolerance: Tensor, pairs: int | None = None) -> float | None:
    """Base of the first frequencies of ``pairs`` pairs, all of them by default, or None."""
    steps = torch.arange(len(inv_freq), dtype=torch.float64) / (pairs or len(inv_freq))
    if abs(float(inv_freq[0]) - 1) > float(tolerance[0]) or not bool((inv_freq > 0).all()):
        return None
    if len(inv_freq) == 1:
        return 10_000.0
    weight = 1 / tolerance[1:] ** 2
    logarithm = float(
        (weight * steps[1:] * -inv_freq[1:].log()).sum() / (weight * steps[1:] ** 2).sum()
    )
    if not 1e-6 < logarithm < 700:
        return None
    slack = float((tolerance[1:] / steps[1:]).max())
    for base in _list_bases(math.exp(logarithm), slack):
        if are_close(base**-steps, inv_freq, tolerance):
            return base
    return None


def _list_bases(value: float, slack: float) -> Iterator[float]:
    yield from (base for base in list_roundings(value, slack) if base > 1)


def _fit_base_alone(inv_freq: Tensor, tolerance: Tensor) -> FrequencyRule | None:
    base = fit_base(inv_freq, tolerance)
    return None if base is None else FrequencyRule(base)


def _fit_linear(inv_freq: Tensor, tolerance: Tensor) -> FrequencyRule | None:
    if not bool((inv_freq > 0).all()):
        return None
    for factor in list_roundings(1 / float(inv_freq[0]), float(tolerance[0])):
        base = fit_base(inv_freq * factor, tolerance)
        if base is not None:
            return FrequencyRule(base, Linear(factor))
    return None


def _fit_proportional(inv_freq: Tensor, tolerance: Tensor) -> FrequencyRule | None:
    pairs = len(inv_freq)
    rotating = int((inv_freq > 0).sum())
    if not 0 < rotating < pairs or not bool((inv_freq[:rotating] > 0).all()):
        return None
    moving, allowed = inv_freq[:rotating], tolerance[:rotating]
    for factor in list_roundings(1 / float(inv_freq[0]), float(tolerance[0])):
        base = fit_base(moving * factor, allowed, pairs)
        if base is not None:
            return FrequencyRule(base, Proportional(choose_share(rotating, pairs), factor))
    return None


def choose_share(rotating: int, pairs: int) -> float:
    """A share of all pairs, in few digits, that rounds to ``rotating`` of them."""
    for digits in range(1, 17):
        value = float(f"{rotating / pairs:.{digits}g}")
        if value <= 1 and int(value * 2 * pairs // 2) == rotating:
            return value
    return (rotating + 0.5) / pairs


def find_near_base(inv_freq: Tensor) -> tuple[float, list[int]] | None:
    """A base that at least half of the frequencies fit, and the pairs that do not, or None.

    Usual bases are tried, then the base of the slowest pair.
    """
    pairs, slowest = len(inv_freq), float(inv_freq[-1])
    fitted = slowest ** (-pairs / (pairs - 1)) if pairs > 1 and 0 < slowest < 1 else math.inf
    own = [next(list_roundings(fitted, 1e-7))] if 1 < fitted < 1e30 else []
    for base in (*USUAL_BASES, *own):
        off = (inv_freq / compute_frequencies(base, len(inv_freq)) - 1).abs() > 1e-5
        if 2 * int(off.sum()) <= len(inv_freq) and len(inv_freq) > 3:
            return base, off.nonzero().flatten().tolist()
    return None


def describe_near_base(inv_freq: Tensor) -> str:
    """The base that most frequencies fit, in words, or "" if there is none."""
    if (found := find_near_base(inv_freq)) is None:
        return ""
    base, pairs = found
    more = ", ..." if len(pairs) > 4 else ""
    listed = ", ".join(map(str, pairs[:4]))
    return f"; all but pairs {listed}{more} would fit base {base:,.0f}"
