"""Likeness of tokens by distance: does a far one look as near as one two tokens away?

What an alias is, ``whorl.scaling.aliasing`` defines, for the doctor and ``whorl inspect`` too. Long
before there is one, likeness returns: it climbs again from its lowest, without getting so high.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from whorl.encodings import Encoding
from whorl.scaling.aliasing import Alike, alike, likeness

from .record import Record, fits, rope_of, whole

__all__ = ["Aliasing", "Return", "aliasing"]


@dataclass(frozen=True)
class Return(Record):
    """A distance that looks nearer than a smaller one, ``lowest_at``, the least alike before it."""

    distance: int
    similarity: float
    lowest_at: int
    lowest: float


@dataclass(frozen=True)
class Aliasing(Record):
    """Likeness by distance, lowest and highest in each bin; the first alias, the greatest returns.

    near: likeness at distance 2, which an alias reaches.
    """

    encoding: str
    length: int
    near: float
    distances: tuple[int, ...]  # where the highest of each bin is
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    alias: Alike | None
    returns: tuple[Return, ...]


@torch.no_grad()
def aliasing(rope: Encoding, length: int = 4096, *, count: int = 5, bins: int = 300) -> Aliasing:
    """The first distance up to ``length`` that looks as near as 2, and the greatest returns.

    Returns are the local maxima of likeness that rise most above the lowest value before them.

    >>> import whorl
    >>> found = aliasing(whorl.RoPE(8, base=10.0), 1000)
    >>> found.alias
    Alike(distance=37, similarity=0.498..., near=0.439...)
    >>> aliasing(whorl.RoPE(2), 1000).returns[0]  # 355 is close to 56.5 turns, 710 to 113
    Return(distance=710, similarity=0.99999..., lowest_at=355, lowest=-0.99999...)
    """
    inner = rope_of(rope, "aliasing")
    whole(length, "length", "aliasing", 2)
    whole(count, "count", "aliasing")
    whole(bins, "bins", "aliasing", 2, 10_000)
    fits(48 * length, length, "aliasing")
    inv_freq = inner.frequencies(length + 1).inv_freq.detach()
    if not bool(inv_freq.any()):
        raise ValueError(f"aliasing: {inner!r} turns no pair, so that all distances look alike.")
    curve = torch.cat([mean for _, mean in likeness(inv_freq, 0, length + 1)])
    found = alike(inv_freq, length + 1, most=None)
    return Aliasing(
        repr(inner), length, float(curve[2]), *_binned(curve, bins), found, _returns(curve, count)
    )


def _returns(curve: Tensor, count: int) -> tuple[Return, ...]:
    low, low_at = curve.cummin(0)
    around = torch.nn.functional.pad(curve, (0, 1), value=-torch.inf)
    peaks = 1 + ((around[1:-1] >= around[:-2]) & (around[1:-1] > around[2:])).nonzero().flatten()
    rise = curve[peaks] - low[peaks]
    peaks = peaks[rise > 1e-12][rise[rise > 1e-12].argsort(descending=True)][:count]
    return tuple(Return(int(d), float(curve[d]), int(low_at[d]), float(low[d])) for d in peaks)


def _binned(
    curve: Tensor, bins: int
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """Place of the highest, lowest and highest of each bin, ever wider; 0 is left out."""
    edges = sorted({round(len(curve) ** (n / bins)) for n in range(bins + 1)})
    parts = [(low, curve[low:high]) for low, high in pairwise(edges)]
    places = tuple(low + int(part.argmax()) for low, part in parts)
    ends = [torch.aminmax(part) for _, part in parts]
    return places, tuple(float(e.min) for e in ends), tuple(float(e.max) for e in ends)
