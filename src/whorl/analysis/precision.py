"""Error of tables of cos and sin by position, for the ways in which they are made.

    error(p) = max over pairs and nearby positions of |cos - cos*|, |sin - sin*|

against a reference of fifty digits. Angles formed in float32 lose one digit for every tenfold
position; a table in bfloat16 has three digits from the start; positions in bfloat16 are wrong from
257 on.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.encodings import Encoding, RoPE

from .exact import exact_tables
from .record import Record, rope_of, whole

__all__ = ["Precision", "precision"]

POSITIONS = (1, 10, 100, 257, 1_000, 4_000, 16_000, 64_000, 131_071, 1_000_000, 4_000_000)
_FARTHEST = 2**24

#: Positions to cos and sin, [T, R/2] each.
Tables = Callable[[Sequence[int]], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Precision(Record):
    """errors[name][n]: the largest error at and near positions[n]."""

    encoding: str
    positions: tuple[int, ...]
    errors: dict[str, tuple[float, ...]]


@torch.no_grad()
def precision(
    rope: Encoding,
    positions: Sequence[int] = POSITIONS,
    *,
    others: Mapping[str, Tables] | None = None,
    neighbours: int = 3,
) -> Precision:
    """How far tables are from the truth: angles in float64 and in float32, tables in bfloat16.

    others: further ways to make the tables of this rope, by name. neighbours: random positions
    within 1/16 below each that are measured with it.

    >>> import whorl
    >>> found = precision(whorl.RoPE(128), (100_000,))
    >>> found.errors["float64 angles"][0] < 6e-8 < 1e-3 < found.errors["float32 angles"][0]
    True
    """
    inner = rope_of(rope, "precision")
    if isinstance(positions, str) or not isinstance(positions, Sequence) or not len(positions):
        raise ValueError(f"precision: positions must be a list of ints; got {positions!r}.")
    places = tuple(whole(p, "each of positions", "precision", 0, _FARTHEST) for p in positions)
    whole(neighbours, "neighbours", "precision", 0, 100)
    groups = [_near(position, neighbours) for position in places]
    flat = [position for group in groups for position in group]
    truth = _truth(inner, flat)
    errors = {}
    for name, tables in {**_ways(inner), **(others or {})}.items():
        cos, sin = (x.double() for x in tables(flat))
        off = torch.maximum((cos - truth[0]).abs(), (sin - truth[1]).abs()).amax(-1)
        errors[name] = tuple(off.reshape(len(groups), -1).amax(-1).tolist())
    return Precision(repr(inner), places, errors)


def _truth(rope: RoPE, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Of a plain ladder from its base; a scaled one is taken for what it is in float64."""
    config = rope.config
    turns = rope.frequencies(max(positions) + 1)
    plain = config.scaling is None and config.inv_freq is None and config.frequencies == "fixed"
    plain = plain and config.direction == "forward"
    given = None if plain else turns.inv_freq.tolist()
    cos, sin = exact_tables(positions, config.width, config.base, inv_freq=given)
    return cos * turns.attention_scale, sin * turns.attention_scale


def _ways(rope: RoPE) -> dict[str, Tables]:
    def by(precision: str, rounded: torch.dtype | None = None) -> Tables:
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


def _near(position: int, count: int) -> list[int]:
    """The position and some below it, the same ones in every run."""
    chance = random.Random(position)
    return [position, *(position - chance.randint(0, position // 16) for _ in range(count))]
