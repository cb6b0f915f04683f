"""Errors of tables of cos and sin by position, for several ways to compute them.

    error(p) = max over pairs and nearby positions of |cos - cos*|, |sin - sin*|

where cos* and sin* are exact, computed with 60 digits. Angles computed in float32 lose one digit
for every tenfold position; a table in bfloat16 has three digits from the start; positions in
bfloat16 are wrong from 257 on.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import torch
from torch import Tensor

from whorl.encodings import Encoding, RoPE

from .record import Record, check_int, check_ints, find_rope

__all__ = ["TablePrecision", "compute_exact_tables", "precision"]

POSITIONS = (1, 10, 100, 257, 1_000, 4_000, 16_000, 64_000, 131_071, 1_000_000, 4_000_000)
_POSITION_LIMIT = 2**24
# 2 pi with 60 digits: an angle of 2^24 radians, reduced to one rotation, still has 50 right digits.
_DIGITS = 60
_TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918")

#: A function from positions to cos and sin, [T, R/2] each.
TableFunction = Callable[[Sequence[int]], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class TablePrecision(Record):
    """errors[name][n]: the largest error of that table at and near positions[n]."""

    encoding: str
    positions: tuple[int, ...]
    errors: dict[str, tuple[float, ...]]


@torch.no_grad()
def precision(
    rope: Encoding,
    positions: Sequence[int] = POSITIONS,
    *,
    others: Mapping[str, TableFunction] | None = None,
    neighbours: int = 3,
) -> TablePrecision:
    """Errors of tables with angles in float64 or float32, and tables or positions in bfloat16.

    others: further functions for the tables of this rope, by name. neighbours: number of random
    positions to measure with each position, at most 1/16 below it.

    >>> import whorl
    >>> found = precision(whorl.RoPE(128), (100_000,))
    >>> found.errors["float64 angles"][0] < 6e-8 < 1e-3 < found.errors["float32 angles"][0]
    True
    """
    inner = find_rope(rope, "precision")
    checked = check_ints(positions, "positions", "precision", 0, _POSITION_LIMIT)
    check_int(neighbours, "neighbours", "precision", 0, 100)
    groups = [_sample_nearby(position, neighbours) for position in checked]
    flat = [position for group in groups for position in group]
    exact = _compute_exact(inner, flat)
    errors = {}
    for name, tables in {**_list_table_functions(inner), **(others or {})}.items():
        cos, sin = (x.double() for x in tables(flat))
        error = torch.maximum((cos - exact[0]).abs(), (sin - exact[1]).abs()).amax(-1)
        errors[name] = tuple(error.reshape(len(groups), -1).amax(-1).tolist())
    return TablePrecision(repr(inner), checked, errors)


def compute_exact_tables(
    positions: Sequence[int],
    head_dim: int,
    base: float,
    *,
    inv_freq: Sequence[float] | None = None,
) -> tuple[Tensor, Tensor]:
    """cos and sin of p base ** (-2 i / D), float64 [T, D/2], with errors below 1e-15.

    The angle is computed and reduced to -pi .. pi with 60 digits, and only then rounded to a float.
    inv_freq: frequencies to use instead of those of ``base``, without rounding.
    """
    with localcontext() as context:
        context.prec = _DIGITS
        if inv_freq is None:
            freqs = [Decimal(base) ** (Decimal(-2 * i) / head_dim) for i in range(head_dim // 2)]
        else:
            freqs = [Decimal(f) for f in inv_freq]
        rows = []
        for position in positions:
            angles = [position * freq for freq in freqs]
            rows.append([float(a - _TWO_PI * (a / _TWO_PI).to_integral_value()) for a in angles])
    cos = [[math.cos(angle) for angle in row] for row in rows]
    sin = [[math.sin(angle) for angle in row] for row in rows]
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)


def _compute_exact(rope: RoPE, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Exact cos and sin of a rope; scaled, given or trained frequencies count as exact."""
    config = rope.config
    used = rope.frequencies(max(positions) + 1)
    plain = config.scaling is None and config.inv_freq is None and config.frequencies == "fixed"
    plain = plain and config.direction == "forward"
    given = None if plain else used.inv_freq.tolist()
    cos, sin = compute_exact_tables(positions, config.width, config.base, inv_freq=given)
    return cos * used.attention_scale, sin * used.attention_scale


def _list_table_functions(rope: RoPE) -> dict[str, TableFunction]:
    def by(precision: str, rounded: torch.dtype | None = None) -> TableFunction:
        options = {**rope.config.to_dict(), "precision": precision, "table": "on_the_fly"}
        other = RoPE(**options)
        other.load_state_dict(rope.state_dict())

        def tables(positions: Sequence[int]) -> tuple[Tensor, Tensor]:
            found = other.tables(torch.tensor(positions), context_length=max(positions) + 1)
            return found if rounded is None else (found[0].to(rounded), found[1].to(rounded))

        return tables

    def coarse(positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        rounded = torch.tensor(positions, dtype=torch.float64).bfloat16().double()
        return rope.tables(rounded, context_length=max(positions) + 1)

    return {
        "float64 angles": by("float64"),
        "float32 angles": by("float32"),
        "bfloat16 table": by("float64", torch.bfloat16),
        "bfloat16 positions": coarse,
    }


def _sample_nearby(position: int, count: int) -> list[int]:
    """The position and some random ones below it, the same in every run."""
    source = random.Random(position)
    return [position, *(position - source.randint(0, position // 16) for _ in range(count))]
