"""Frequencies, wavelengths and angles of RoPE, pair by pair.

    theta_i = base ** (-2 i / R)      wavelength_i = 2 pi / theta_i      angle_i(p) = p theta_i

A pair that rotates fully within the context has taken every angle there. A pair whose wavelength is
longer than the context has out-of-distribution angles past it, so longer contexts need scalings.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from whorl.encodings import Encoding

from .record import Record, check_int, check_ints, convert_to_rows, find_rope

__all__ = ["Circle", "FrequencyTable", "PairAngles", "angles", "circle", "frequencies"]


@dataclass(frozen=True)
class FrequencyTable(Record):
    """Radians per position, wavelength, and rotations within the context, of each pair."""

    encoding: str
    inv_freq: tuple[float, ...]
    wavelengths: tuple[float, ...]
    mean: float
    minimum: float
    attention_scale: float
    context: int | None
    rotations: tuple[float, ...] | None
    #: Number of pairs that rotate fully within the context.
    full_rotations: int | None
    #: The same within the trained length, without the scaling; None if there is none.
    unscaled: "FrequencyTable | None" = None

    json_names: ClassVar[Mapping[str, str]] = {"rotations": "turns", "full_rotations": "full_turns"}


@dataclass(frozen=True)
class PairAngles(Record):
    """radians[n][i]: the angle of pair i at positions[n]; ``wrapped`` has it in -pi .. pi."""

    encoding: str
    positions: tuple[int, ...]
    pairs: tuple[int, ...]
    radians: tuple[tuple[float, ...], ...]
    wrapped: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Circle(Record):
    """The vector (1, 0) of each pair after rotation: x[i][p] = cos, y[i][p] = sin of its angle."""

    encoding: str
    pairs: tuple[int, ...]
    length: int
    x: tuple[tuple[float, ...], ...]
    y: tuple[tuple[float, ...], ...]


def frequencies(
    rope: Encoding, *, context: int | None = None, window: int | None = None
) -> FrequencyTable:
    """Frequencies and wavelengths, and rotations within a context of so many tokens.

    window: the attention window in tokens; if it is shorter, rotations are counted within it.

    >>> import whorl
    >>> table = frequencies(whorl.RoPE(128), context=4096)
    >>> [round(f, 6) for f in table.inv_freq[:3]], table.full_rotations
    ([1.0, 0.865964, 0.749894], 46)
    """
    inner = find_rope(rope, "frequencies")
    if context is not None:
        check_int(context, "context", "frequencies")
    found = inner.frequencies(context)
    inv_freq = found.inv_freq.detach().abs()
    if context is not None and window is not None:
        context = min(context, check_int(window, "window", "frequencies"))
    rotations = None if context is None else (context * inv_freq / math.tau).tolist()
    return FrequencyTable(
        encoding=repr(inner),
        inv_freq=tuple(inv_freq.tolist()),
        wavelengths=tuple((math.tau / inv_freq).tolist()),
        mean=float(inv_freq.mean()),
        minimum=float(inv_freq.min()),
        attention_scale=float(found.attention_scale),
        context=context,
        rotations=None if rotations is None else tuple(rotations),
        full_rotations=None if rotations is None else sum(r >= 1 for r in rotations),
    )


def angles(
    rope: Encoding, positions: Sequence[int] = (0, 1, 4, 8), *, pairs: int | None = None
) -> PairAngles:
    """The angle of each of the first pairs at each position.

    >>> import whorl
    >>> angles(whorl.RoPE(4), (0, 2)).radians
    ((0.0, 0.0), (2.0, 0.02))
    """
    inner = find_rope(rope, "angles")
    checked = check_ints(positions, "positions", "angles", 0, 2**53)
    inv_freq = inner.frequencies(max(checked) + 1).inv_freq.detach()
    count = inv_freq.shape[0]
    count = count if pairs is None else check_int(pairs, "pairs", "angles", 1, count)
    radians = torch.tensor(checked, dtype=torch.float64).outer(inv_freq[:count])
    wrapped = torch.remainder(radians + math.pi, math.tau) - math.pi
    return PairAngles(
        encoding=repr(inner),
        positions=checked,
        pairs=tuple(range(count)),
        radians=convert_to_rows(radians),
        wrapped=convert_to_rows(wrapped),
    )


def circle(rope: Encoding, *, pairs: Sequence[int] | None = None, length: int = 32) -> Circle:
    """The paths of some pairs on the circle, from the encoding's own tables.

    pairs: their indices; by default four, from the fastest to the slowest.
    """
    inner = find_rope(rope, "circle")
    check_int(length, "length", "circle", 1, 100_000)
    count = inner.config.width // 2
    if pairs is None:
        pairs = sorted({round(n * (count - 1) / 3) for n in range(4)})
    chosen = tuple(check_int(pair, "each of pairs", "circle", 0, count - 1) for pair in pairs)
    if not chosen:
        raise ValueError("circle: pairs must have at least one pair; got none.")
    cos, sin = inner.tables(torch.arange(length), context_length=length)
    scale = float(inner.frequencies(length).attention_scale)
    x, y = ((table.detach().double() / scale).T[list(chosen)] for table in (cos, sin))
    return Circle(repr(inner), chosen, length, convert_to_rows(x), convert_to_rows(y))
