"""Frequencies of a base, and measured numbers in the fewest digits that are within their error."""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["are_close", "compute_frequencies", "compute_tolerance", "list_roundings"]


def list_roundings(value: float, relative: float) -> Iterator[float]:
    """Roundings of a value to 1, 2, .. digits that are within a relative error, then the value.

    >>> list(list_roundings(9999.9999, 1e-6))[:1]
    [10000.0]
    """
    given = set()
    for digits in range(1, 17):
        rounded = float(f"{value:.{digits}g}")
        if rounded not in given and abs(rounded - value) <= relative * abs(value):
            given.add(rounded)
            yield rounded
    if value not in given:
        yield value


def compute_frequencies(base: float, pairs: int) -> Tensor:
    """Frequencies without scaling, base ^ (-i / pairs), float64 [pairs]."""
    return base ** -(torch.arange(pairs, dtype=torch.float64) / pairs)


def are_close(got: Tensor, want: Tensor, tolerance: Tensor) -> bool:
    """Whether every value is within its relative tolerance of the wanted one."""
    return bool(((got - want).abs() <= tolerance * want.abs()).all())


def compute_tolerance(inv_freq: Tensor, precision: float) -> Tensor:
    """Relative error allowed for each frequency, if it was computed with this unit rounding.

    A power base^e is as wrong as the rounding of e times ln base, so slow pairs may differ more.
    """
    size = inv_freq.abs().clamp(min=1e-30).log().abs()
    return precision * (6 + 3 * torch.where(inv_freq == 0, 0.0, size))
