"""Similarity of tokens by distance: does a far token look as near as one two tokens away?

``whorl.scaling.aliasing`` defines what an alias is, for ``whorl doctor`` and ``whorl inspect`` too.
Even without an alias, the similarity has peaks: it rises again from its lowest value, but not as
high as at distance 2.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding
from whorl.scaling.aliasing import Alias, find_alias, iterate_similarity

from .record import Record, check_int, check_memory, find_rope

__all__ = ["Aliasing", "SimilarityPeak", "aliasing"]


@dataclass(frozen=True)
class SimilarityPeak(Record):
    """A distance with a larger similarity than ``lowest_at``, the least similar distance before."""

    distance: int
    similarity: float
    lowest_at: int
    lowest: float


@dataclass(frozen=True)
class Aliasing(Record):
    """Similarity by distance, lowest and highest in each bin; the first alias, the largest peaks.

    near: similarity at distance 2; an alias has at least that.
    """

    encoding: str
    length: int
    near: float
    distances: tuple[int, ...]  # of the highest similarity in each bin
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    alias: Alias | None
    returns: tuple[SimilarityPeak, ...]


@torch.no_grad()
def aliasing(rope: Encoding, length: int = 4096, *, count: int = 5, bins: int = 300) -> Aliasing:
    """The first distance up to ``length`` that looks as near as 2, and the largest peaks.

    Peaks (``returns``) are the local maxima that rise most above the lowest value before them.

    >>> import whorl
    >>> found = aliasing(whorl.RoPE(8, base=10.0), 1000)
    >>> found.alias
    Alias(distance=37, similarity=0.498..., near=0.439...)
    >>> aliasing(whorl.RoPE(2), 1000).returns[0]  # 355 is close to 56.5 rotations, 710 to 113
    SimilarityPeak(distance=710, similarity=0.99999..., lowest_at=355, lowest=-0.99999...)
    """
    inner = find_rope(rope, "aliasing")
    check_int(length, "length", "aliasing", 2)
    check_int(count, "count", "aliasing")
    check_int(bins, "bins", "aliasing", 2, 10_000)
    check_memory(48 * length, length, "aliasing")
    inv_freq = inner.frequencies(length + 1).inv_freq.detach()
    if not bool(inv_freq.any()):
        raise ValueError(
            "aliasing: rope must rotate at least one pair, because otherwise all distances look"
            f" alike; got {quote(inner)}."
        )
    curve = torch.cat([mean for _, mean in iterate_similarity(inv_freq, 0, length + 1)])
    found = find_alias(inv_freq, length + 1, most=None)
    return Aliasing(
        repr(inner),
        length,
        float(curve[2]),
        *_find_bin_ranges(curve, bins),
        found,
        _find_peaks(curve, count),
    )


def _find_peaks(curve: Tensor, count: int) -> tuple[SimilarityPeak, ...]:
    low, low_at = curve.cummin(0)
    around = torch.nn.functional.pad(curve, (0, 1), value=-torch.inf)
    peaks = 1 + ((around[1:-1] >= around[:-2]) & (around[1:-1] > around[2:])).nonzero().flatten()
    rise = curve[peaks] - low[peaks]
    peaks = peaks[rise > 1e-12][rise[rise > 1e-12].argsort(descending=True)][:count]
    return tuple(
        SimilarityPeak(int(d), float(curve[d]), int(low_at[d]), float(low[d])) for d in peaks
    )


def _find_bin_ranges(
    curve: Tensor, bins: int
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """Distance of the highest value, lowest and highest value of each bin, without distance 0.

    Bins become wider with distance.
    """
    edges = sorted({round(len(curve) ** (n / bins)) for n in range(bins + 1)})
    parts = [(low, curve[low:high]) for low, high in pairwise(edges)]
    distances = tuple(low + int(part.argmax()) for low, part in parts)
    ends = [torch.aminmax(part) for _, part in parts]
    return distances, tuple(float(e.min) for e in ends), tuple(float(e.max) for e in ends)
