"""What the pairs of a rotation do within a number of tokens: wavelengths, and which never turn.

A pair with frequency theta comes round after 2 pi / theta tokens, its wavelength. One whose
wavelength is longer than the texts of training has seen a part of the circle only, and meets new
angles in longer texts.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Alike", "Turns", "alike", "angle_error", "turns", "wavelengths"]

# Cosines that the search for look-alike distances may take: a tenth of a second.
_MOST = 2**23


@dataclass(frozen=True)
class Turns:
    """Which pairs complete a turn within ``tokens``.

    never: pairs that turn, but not once around; first: the fastest of them.
    """

    tokens: int
    complete: int
    never: int
    first: int | None


def wavelengths(inv_freq: Tensor) -> list[float | None]:
    """Tokens in a full turn of each pair, None for one that never turns."""
    values = [abs(v) for v in inv_freq.tolist()]
    return [math.tau / v if v and math.isfinite(math.tau / v) else None for v in values]


def turns(inv_freq: Tensor, tokens: int) -> Turns:
    """Count the pairs that come round within ``tokens``, and those that do not.

    >>> turns(torch.tensor([1.0, 0.01, 0.0]), 100)
    Turns(tokens=100, complete=1, never=1, first=1)
    """
    found = wavelengths(inv_freq)
    never = [i for i, length in enumerate(found) if length is not None and length > tokens]
    complete = sum(length is not None and length <= tokens for length in found)
    return Turns(tokens, complete, len(never), never[0] if never else None)


def angle_error(inv_freq: Tensor, length: int) -> float:
    """Largest error, in radians, of angles formed in float32 at the last positions below length.

    inv_freq: float64. Both factors and their product are rounded, as where a model is run with
    float32 tables.
    """
    last = torch.arange(max(0, length - 256), length, dtype=torch.float64)
    exact = last[:, None] * inv_freq
    rounded = last.float()[:, None] * inv_freq.float()
    return float((rounded.double() - exact).abs().max()) if len(last) else 0.0


@dataclass(frozen=True)
class Alike:
    """The distance that looks most like distance 0 once every pair has come round.

    start: the longest wavelength; similarity: mean of cos(distance theta) over the pairs that turn.
    """

    start: float
    distance: int
    similarity: float


def alike(inv_freq: Tensor, length: int) -> Alike | None:
    """Aliasing: None while some pair that turns has not come round within ``length``."""
    theta = inv_freq[inv_freq != 0].abs()
    if not len(theta):
        return None
    start = math.tau / float(theta.min())
    first = math.ceil(start * 0.75)  # nearer ones are like 0 because they are near it
    if not start < length:
        return None
    last = min(length, first + max(1, _MOST // len(theta)))
    best, where = -1.0, first
    for low in range(first, last, 65_536):
        distances = torch.arange(low, min(low + 65_536, last), dtype=torch.float64)
        mean = torch.cos(distances[:, None] * theta).mean(-1)
        top = int(mean.argmax())
        if float(mean[top]) > best:
            best, where = float(mean[top]), low + top
    return Alike(start, where, best)
