"""Frequencies, wavelengths and angles of RoPE, pair by pair.

    theta_i = base ** (-2 i / R)      wavelength_i = 2 pi / theta_i      angle_i(p) = p theta_i

A pair that turns fully within the context has met every angle there; one that does not meets new
angles past it, which is why long contexts need scalings.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from whorl.encodings import Encoding

from .record import Record, rope_of, rows, whole

__all__ = ["Angles", "Circle", "FrequencyTable", "angles", "circle", "frequencies"]


@dataclass(frozen=True)
class FrequencyTable(Record):
    """Of each pair: radians per position, positions per turn, turns within the context."""

    encoding: str
    inv_freq: tuple[float, ...]
    wavelengths: tuple[float, ...]
    mean: float
    minimum: float
    attention_scale: float
    context: int | None
    turns: tuple[float, ...] | None
    #: Pairs that turn fully within the context, the fastest ones.
    full_turns: int | None


@dataclass(frozen=True)
class Angles(Record):
    """radians[n][i]: by how much pair i has turned at positions[n]; wrapped to -pi .. pi beside."""

    encoding: str
    positions: tuple[int, ...]
    pairs: tuple[int, ...]
    radians: tuple[tuple[float, ...], ...]
    wrapped: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Circle(Record):
    """Where the vector (1, 0) of each pair goes: x[i][p] = cos, y[i][p] = sin of its angle at p."""

    encoding: str
    pairs: tuple[int, ...]
    length: int
    x: tuple[tuple[float, ...], ...]
    y: tuple[tuple[float, ...], ...]


def frequencies(
    rope: Encoding, *, context: int | None = None, window: int | None = None
) -> FrequencyTable:
    """Inverse frequencies and wavelengths, set against a context of so many tokens.

    window: tokens that one sees at most, where that is less; turns are counted within it.

    >>> import whorl
    >>> table = frequencies(whorl.RoPE(128), context=4096)
    >>> [round(f, 6) for f in table.inv_freq[:3]], table.full_turns
    ([1.0, 0.865964, 0.749894], 46)
    """
    inner = rope_of(rope, "frequencies")
    if context is not None:
        whole(context, "context", "frequencies")
    found = inner.frequencies(context)
    inv_freq = found.inv_freq.detach().abs()
    if context is not None and window is not None:
        context = min(context, whole(window, "window", "frequencies"))
    turns = None if context is None else (context * inv_freq / math.tau).tolist()
    return FrequencyTable(
        encoding=repr(inner),
        inv_freq=tuple(inv_freq.tolist()),
        wavelengths=tuple((math.tau / inv_freq).tolist()),
        mean=float(inv_freq.mean()),
        minimum=float(inv_freq.min()),
        attention_scale=float(found.attention_scale),
        context=context,
        turns=None if turns is None else tuple(turns),
        full_turns=None if turns is None else sum(t >= 1 for t in turns),
    )


def angles(
    rope: Encoding, positions: Sequence[int] = (0, 1, 4, 8), *, pairs: int | None = None
) -> Angles:
    """By how much each of the first pairs has turned at each position.

    >>> import whorl
    >>> angles(whorl.RoPE(4), (0, 2)).radians
    ((0.0, 0.0), (2.0, 0.02))
    """
    inner = rope_of(rope, "angles")
    places = _positions(positions)
    inv_freq = inner.frequencies(max(places) + 1).inv_freq.detach()
    count = inv_freq.shape[0]
    count = count if pairs is None else whole(pairs, "pairs", "angles", 1, count)
    turned = torch.tensor(places, dtype=torch.float64).outer(inv_freq[:count])
    wrapped = torch.remainder(turned + math.pi, math.tau) - math.pi
    return Angles(repr(inner), places, tuple(range(count)), rows(turned), rows(wrapped))


def circle(rope: Encoding, *, pairs: Sequence[int] | None = None, length: int = 32) -> Circle:
    """The paths of some pairs on the circle, from the encoding's own tables.

    pairs: which ones; by default four, spread from the fastest to the slowest.
    """
    inner = rope_of(rope, "circle")
    whole(length, "length", "circle", 1, 100_000)
    count = inner.config.width // 2
    if pairs is None:
        pairs = sorted({round(n * (count - 1) / 3) for n in range(4)})
    chosen = tuple(whole(pair, "each of pairs", "circle", 0, count - 1) for pair in pairs)
    if not chosen:
        raise ValueError("circle: pairs must name at least one pair.")
    cos, sin = inner.tables(torch.arange(length), context_length=length)
    scale = float(inner.frequencies(length).attention_scale)
    x, y = ((table.detach().double() / scale).T[list(chosen)] for table in (cos, sin))
    return Circle(repr(inner), chosen, length, rows(x), rows(y))


def _positions(positions: Sequence[int]) -> tuple[int, ...]:
    if isinstance(positions, str) or not isinstance(positions, Sequence) or not len(positions):
        raise ValueError(f"angles: positions must be a list of ints; got {positions!r}.")
    return tuple(whole(p, "each of positions", "angles", 0, 2**53) for p in positions)
