"""Aliasing: distant tokens that all pairs of a rotation together take for close ones.

    similarity(m) = mean_i cos(m theta_i)        over the pairs that rotate, theta_i != 0

The similarity is 1 at distance 0 and falls from there. A distance is an alias if its similarity is
at least that of distance 2, after the similarity had fallen to half of that. ``whorl inspect``,
``whorl doctor`` and ``whorl.analysis.aliasing`` share this definition.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["COSINE_LIMIT", "Alias", "find_alias", "iterate_similarity"]

#: Cosines that a search computes at most by default: 32,768 distances for 64 pairs.
COSINE_LIMIT = 2**21
_CHUNK = 4096


@dataclass(frozen=True)
class Alias:
    """A distance at which two tokens look as similar as they do at distance 2.

    similarity: at ``distance``; near: at distance 2.
    """

    distance: int
    similarity: float
    near: float

    def to_dict(self) -> dict[str, float]:
        return {"distance": self.distance, "similarity": self.similarity, "near": self.near}


def iterate_similarity(inv_freq: Tensor, start: int, end: int) -> Iterator[tuple[int, Tensor]]:
    """Chunks (first m, similarity float64) of similarity(m) for m = start .. end - 1."""
    theta = inv_freq[inv_freq != 0].double().abs()
    for first in range(start, end, _CHUNK):
        distance = torch.arange(first, min(first + _CHUNK, end), dtype=torch.float64)
        yield first, torch.cos(distance[:, None] * theta).mean(-1)


def find_alias(inv_freq: Tensor, length: int, *, most: int | None = COSINE_LIMIT) -> Alias | None:
    """The first alias below ``length``, or None if there is none.

    most: number of cosines to compute at most, which may end the search before ``length``; None
    computes all.

    >>> find_alias(10.0 ** -torch.arange(0, 1, 0.25), 1000)
    Alias(distance=37, similarity=0.498..., near=0.439...)
    """
    rotating = int((inv_freq != 0).sum())
    if not rotating or (most is not None and rotating > most // 128):
        return None
    length = length if most is None else min(length, most // rotating)
    near = float(next(iterate_similarity(inv_freq, 2, 3))[1])
    fallen = False
    for start, mean in iterate_similarity(inv_freq, 3, length):
        first = 0
        if not fallen:
            below = (mean <= 0.5 * near).nonzero()
            if not len(below):
                continue
            fallen, first = True, int(below[0])
        hits = (mean[first:] >= near).nonzero()
        if len(hits):
            at = first + int(hits[0])
            return Alias(start + at, float(mean[at]), near)
    return None
