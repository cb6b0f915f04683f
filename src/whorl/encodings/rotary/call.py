"""The arguments of one call of a rotation, checked and resolved to positions."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.positions import resolve

from .checks import check_input, check_pair, check_table
from .config import RotaryConfig

__all__ = [
    "KEY",
    "QUERY",
    "ResolvedPositions",
    "RotationCall",
    "find_context_length",
    "resolve_positions",
]

QUERY, KEY = 0, 1

# A tensor of positions, or None for first, first + 1, ... on every axis
ResolvedPositions = tuple[Tensor | None, int]


class RotationCall(NamedTuple):
    """Positions of the tokens of one call, and the direction of their rotation.

    role: QUERY or KEY, of a tensor that comes alone; a pair is queries and keys. key_exponent:
    log2 of a factor, [P] or [B, P], that keys are multiplied and queries divided by.
    """

    positions: Tensor | None = None
    key_positions: Tensor | None = None
    offset: int | Tensor = 0
    context_length: int | Tensor | None = None
    inverse: bool = False
    role: int = QUERY
    key_exponent: Tensor | None = None


def resolve_positions(
    xs: Sequence[Tensor], call: RotationCall, config: RotaryConfig, axes: int, where: str
) -> list[ResolvedPositions]:
    """Positions of each of ``xs``: the caller's, else offset, offset + 1, ...; checked."""
    x = xs[0]
    batch, length = check_input(x, config.head_dim, where, "x" if len(xs) == 1 else "q")
    found = [resolve(call.positions, call.offset, batch, length, x.device, where, axes)]
    if len(xs) == 2:
        k = xs[1]
        sizes = check_input(k, config.head_dim, where, "k")
        if sizes != (batch, length) or k.device != x.device or k.dtype != x.dtype:
            check_pair(x, k, call.key_positions, where)
        if call.key_positions is None:
            found.append(found[0])
        else:
            found.append(resolve(call.key_positions, 0, *sizes, k.device, where, axes))
    if config.table == "precomputed":
        for (values, first), tensor in zip(found, xs, strict=True):
            check_table(values, first, tensor.shape[2], config.table_length, where)
    return found


def find_context_length(
    positions: Sequence[ResolvedPositions], lengths: Sequence[int], axes: int
) -> int | Tensor:
    """Largest position + 1: one per row, [B], if rows have their own positions, else an int.

    Of a fraction the whole part counts, as in a cache: the token at 9.5 is the tenth.
    """
    consecutive = [
        first + length
        for (values, first), length in zip(positions, lengths, strict=True)
        if values is None
    ]
    found: int | Tensor = max([1, *consecutive])
    for values, _ in positions:
        if values is not None and values.shape[-1]:
            now = (values.amax(-1) if axes == 1 else values.amax((0, -1))).to(torch.int64) + 1
            found = torch.maximum(found, now) if isinstance(found, Tensor) else now.clamp(min=found)
    return found
