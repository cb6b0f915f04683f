"""New tokens of a cache: their positions, and each row's padding moved to its front."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.positions import resolve

from .rotation import get_per_row

__all__ = ["NewTokens", "arrange_tokens", "convert_positions", "find_positions"]


class NewTokens(NamedTuple):
    """T new tokens; in each row the last ``counts[b]`` are real, the others padding."""

    k: Tensor
    v: Tensor
    positions: Tensor  # of the keys, [B, axes, T, 1]
    query_positions: Tensor  # in the order in which the queries came
    offset: int | None  # if positions are offset, offset + 1 ... in every row
    same_rows: bool  # every row has the same positions
    counts: list[int]
    is_continued: bool = True  # positions continue those before

    def find_ends(self, row: int) -> tuple[float, float]:
        """The smallest and the largest position of a row, which has at least one token."""
        if self.offset is not None:
            return self.offset, self.offset + self.counts[row] - 1
        real = self.positions[row, :, self.positions.shape[2] - self.counts[row] :]
        return real.min().item(), real.max().item()

    def find_next_positions(self, before: list[int]) -> list[int]:
        """The position after the largest so far of each row; before: without these tokens."""
        if self.offset is not None:
            return [self.offset + count for count in self.counts]
        return [
            max(old, math.floor(self.find_ends(row)[1]) + 1) if self.counts[row] else old
            for row, old in enumerate(before)
        ]


def arrange_tokens(
    k: Tensor,
    v: Tensor,
    positions: tuple[Tensor, int | None],
    mask: Tensor | None,
    lengths: list[int],
) -> NewTokens:
    """Tokens with padding set to 0 and moved to the front; lengths: tokens held of each row.

    positions: as ``find_positions`` gives them.
    """
    batch, count = k.shape[0], k.shape[2]
    values, offset = positions
    same_rows = batch == 1 or (values.shape[0] == 1 and mask is None)
    values = values.expand(batch, -1, -1).unsqueeze(-1)
    if mask is None:
        return NewTokens(k, v, values, values, offset, same_rows, [count] * batch)
    counts = mask.sum(-1).tolist()
    order = mask.to(torch.uint8).argsort(dim=-1, stable=True)
    aligned = bool((mask.gather(1, order) == mask).all())
    joins = any(n and c < count for n, c in zip(lengths, counts, strict=True))
    if values.shape[1] > 1 and (joins or not aligned):
        raise ValueError(
            "KVCache.update: mask must hide only padding to the left of a first prompt, because"
            f" with positions on {values.shape[1]} axes the order of tokens is that of their slots;"
            " got other padding. Move it to the left."
        )
    index, hidden = order[:, None, :, None], ~mask[:, None, :, None]
    k, v, key_positions = (
        x.gather(2, index.expand(-1, x.shape[1], -1, x.shape[3]))
        for x in (k.masked_fill(hidden, 0), v.masked_fill(hidden, 0), values)
    )
    return NewTokens(k, v, key_positions, values, None, same_rows, counts)


def find_positions(
    k: Tensor, positions: Tensor | None, mask: Tensor | None, following: list[int], axes: int
) -> tuple[Tensor, int | None]:
    """Positions of new tokens, [1, axes, T] or [B, axes, T], and their offset.

    The offset is None unless positions are consecutive in all rows. following: the next position of
    each row, where none are given.
    """
    batch, count, device = k.shape[0], k.shape[2], k.device
    if positions is not None:
        given, _ = resolve(positions, 0, batch, count, device, "KVCache.update", axes)
        assert given is not None
        one_row = given.dim() == (1 if axes == 1 else 2)
        if axes == 1:
            return (given[None, None] if one_row else given[:, None]), None
        return (given[None] if one_row else given.movedim(0, 1)), None
    first = get_per_row(following, device)
    if mask is None and not isinstance(first, Tensor):
        order = torch.arange(first, first + count, device=device)
        return order.expand(1, axes, count), first
    rank = torch.arange(count, device=device) if mask is None else mask.cumsum(-1) - 1
    starts = torch.tensor(following, device=device).unsqueeze(-1)
    values = (starts + rank).clamp(min=0)  # padding before all tokens has no position of its own
    return values.unsqueeze(1).expand(batch, axes, count), None


def convert_positions(positions: Tensor, same_rows: bool) -> Tensor:
    """Positions [B, axes, S, 1] in the shape that encodings take; one row if all are the same."""
    if positions.shape[1] == 1:
        return positions[0, 0, :, 0] if same_rows else positions[:, 0, :, 0]
    return positions[0, ..., 0] if same_rows else positions[..., 0].movedim(1, 0)
