"""Wavelengths of pairs, and which pairs complete a rotation within a number of tokens.

A pair with frequency theta completes a rotation after 2 pi / theta tokens, its wavelength. If the
wavelength is longer than the trained length, training covers a part of the circle only, and longer
texts contain out-of-distribution angles.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["CompletePairs", "compute_wavelengths", "count_complete", "measure_angle_error"]


@dataclass(frozen=True)
class CompletePairs:
    """How many pairs complete a rotation within ``tokens``.

    never: pairs that rotate, but not once around; first: the fastest of them.
    """

    tokens: int
    complete: int
    never: int
    first: int | None


def compute_wavelengths(inv_freq: Tensor) -> list[float | None]:
    """Tokens in a full rotation of each pair; None for a pair that does not rotate."""
    values = [abs(v) for v in inv_freq.tolist()]
    return [math.tau / v if v and math.isfinite(math.tau / v) else None for v in values]


def count_complete(inv_freq: Tensor, tokens: int) -> CompletePairs:
    """Count the pairs that complete a rotation within ``tokens``, and those that do not.

    >>> count_complete(torch.tensor([1.0, 0.01, 0.0]), 100)
    CompletePairs(tokens=100, complete=1, never=1, first=1)
    """
    found = compute_wavelengths(inv_freq)
    never = [i for i, length in enumerate(found) if length is not None and length > tokens]
    complete = sum(length is not None and length <= tokens for length in found)
    return CompletePairs(tokens, complete, len(never), never[0] if never else None)


def measure_angle_error(inv_freq: Tensor, length: int) -> float:
    """Largest error, in radians, of angles computed in float32 at the last positions below length.

    inv_freq: float64. Position, frequency and their product are rounded, as in float32 tables.
    """
    last = torch.arange(max(0, length - 256), length, dtype=torch.float64)
    exact = last[:, None] * inv_freq
    rounded = last.float()[:, None] * inv_freq.float()
    return float((rounded.double() - exact).abs().max()) if exact.numel() else 0.0
