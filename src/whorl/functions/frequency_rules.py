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
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.scaling import Linear, Proportional, Scaling

from .by_parts import USUAL_BASES, fit_by_parts
from .rounding import are_close, compute_frequencies, list_roundings

__all__ = ["FrequencyRule", "choose_share", "find_near_base", "fit_base", "fit_rule"]


@dataclass(frozen=True)
class FrequencyRule:
    """Base and scaling that give the frequencies, or base None and a list of all frequencies."""

    base: float | None
    scaling: Scaling | None = None
    inv_freq: tuple[float, ...] | None = None


def fit_rule(inv_freq: Tensor, tolerance: Tensor, scale: float = 1.0) -> FrequencyRule:
    """The rule with the fewest numbers for frequencies [P] >= 0."""
    if (found := _fit_few_numbers(inv_freq, tolerance)) is not None:
        return found
    if bool((inv_freq > 0).all()):
        parts = fit_by_parts(inv_freq, tolerance, scale)
        if parts is not None:
            return FrequencyRule(*parts)
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
    for base in list_roundings(math.exp(logarithm), slack):
        if base > 1 and are_close(base**-steps, inv_freq, tolerance):
            return base
    return None


def _fit_few_numbers(inv_freq: Tensor, tolerance: Tensor) -> FrequencyRule | None:
    """A base, with a factor or a share of pairs that rotate if needed, or None."""
    pairs, rotating = len(inv_freq), int((inv_freq > 0).sum())
    if not rotating or not bool((inv_freq[:rotating] > 0).all()):
        return None
    moving, allowed = inv_freq[:rotating], tolerance[:rotating]
    if rotating == pairs and (base := fit_base(moving, allowed)) is not None:
        return FrequencyRule(base)
    for factor in list_roundings(1 / float(moving[0]), float(allowed[0])):
        base = fit_base(moving * factor, allowed, pairs)
        if base is not None:
            share = choose_share(rotating, pairs)
            return FrequencyRule(
                base, Linear(factor) if rotating == pairs else Proportional(share, factor)
            )
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
