"""Aliasing: far tokens that look as near as close ones, to all pairs of a rotation together.

    likeness(m) = mean_i cos(m theta_i)          over the pairs that turn, theta_i != 0

It is 1 at distance 0 and falls from there. A distance is an alias if it looks as near as 2 does,
after likeness had fallen to half of that. This is the one definition that ``whorl inspect``, the
doctor and ``whorl.analysis.aliasing`` share.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["MOST", "Alike", "alike", "likeness"]

#: Cosines that a search may take where nothing else is said: 32,768 tokens for 64 pairs.
MOST = 2**21
_CHUNK = 4096


@dataclass(frozen=True)
class Alike:
    """An alias: tokens ``distance`` apart look as alike as those two apart do.

    similarity: likeness at the distance; near: at distance 2.
    """

    distance: int
    similarity: float
    near: float

    def to_dict(self) -> dict[str, float]:
        return {"distance": self.distance, "similarity": self.similarity, "near": self.near}


def likeness(inv_freq: Tensor, start: int, end: int) -> Iterator[tuple[int, Tensor]]:
    """likeness(m) for m = start .. end - 1, in chunks: each with its first m, float64."""
    theta = inv_freq[inv_freq != 0].double().abs()
    for first in range(start, end, _CHUNK):
        distance = torch.arange(first, min(first + _CHUNK, end), dtype=torch.float64)
        yield first, torch.cos(distance[:, None] * theta).mean(-1)


def alike(inv_freq: Tensor, length: int, *, most: int | None = MOST) -> Alike | None:
    """The first alias below ``length``, or None; ``most`` cosines are looked at, all for None.

    >>> alike(10.0 ** -torch.arange(0, 1, 0.25), 1000)
    Alike(distance=37, similarity=0.498..., near=0.439...)
    """
    turning = int((inv_freq != 0).sum())
    if not turning or (most is not None and turning > most // 128):
        return None
    length = length if most is None else min(length, most // turning)
    near = float(next(likeness(inv_freq, 2, 3))[1])
    fallen = False
    for start, mean in likeness(inv_freq, 3, length):
        first = 0
        if not fallen:
            below = (mean <= 0.5 * near).nonzero()
            if not len(below):
                continue
            fallen, first = True, int(below[0])
        hits = (mean[first:] >= near).nonzero()
        if len(hits):
            at = first + int(hits[0])
            return Alike(start + at, float(mean[at]), near)
    return None
