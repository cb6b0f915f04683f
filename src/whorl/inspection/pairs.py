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

# Cosines that the search for look-alike distances may take: 32,768 tokens for 64 pairs.
_MOST = 2**21


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
    return float((rounded.double() - exact).abs().max()) if exact.numel() else 0.0


@dataclass(frozen=True)
class Alike:
    """Aliasing: tokens ``distance`` apart look as alike as neighbours do.

    similarity: the mean of cos(distance theta) over the pairs that turn; near: at distance 2.
    """

    distance: int
    similarity: float
    near: float


def alike(inv_freq: Tensor, length: int) -> Alike | None:
    """The first distance that looks as near as 2, past the first fall to half of that.

    Looked for below ``length``, within ``_MOST`` cosines.
    """
    theta = inv_freq[inv_freq != 0].abs()
    if not 0 < len(theta) <= _MOST // 128:
        return None
    length = min(length, _MOST // len(theta))
    near = float(torch.cos(2 * theta).mean())
    fallen = False
    for start in range(3, length, 4096):
        distance = torch.arange(start, min(start + 4096, length), dtype=torch.float64)
        mean = torch.cos(distance[:, None] * theta).mean(-1)
        if not fallen:
            below = (mean <= 0.5 * near).nonzero()
            if not len(below):
                continue
            fallen = True
            mean, distance = mean[int(below[0]) :], distance[int(below[0]) :]
        hits = (mean >= near).nonzero()
        if len(hits):
            first = int(hits[0])
            return Alike(int(distance[first]), float(mean[first]), near)
    return None
