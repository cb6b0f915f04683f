"""Numbers as people write them: the fewest digits that still reproduce what was measured."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["are_close", "compute_tolerance", "list_roundings"]


def list_roundings(value: float, relative: float) -> Iterator[float]:
    """``value`` in 1, 2, .. significant digits, where that is within ``relative`` of it; itself.

    >>> list(roundings(9999.9999, 1e-6))[:1]
    [10000.0]
    """
    seen = set()
    for digits in range(1, 17):
        rounded = float(f"{value:.{digits}g}")
        if rounded not in seen and abs(rounded - value) <= relative * abs(value):
            seen.add(rounded)
            yield rounded
    if value not in seen:
        yield value


def are_close(got: Tensor, want: Tensor, tolerance: Tensor) -> bool:
    """Whether every value is within its relative tolerance."""
    return bool(((got - want).abs() <= tolerance * want.abs()).all())


def compute_tolerance(rates: Tensor, precision: float) -> Tensor:
    """How far a rate may be from what its rule says, relative, by the precision it is made in.

    A power base^e in floating point inherits the rounding of e times ln base, so slow pairs are
    allowed more.
    """
    size = rates.abs().clamp(min=1e-30).log().abs()
    return precision * (6 + 3 * torch.where(rates == 0, torch.zeros_like(size), size))
