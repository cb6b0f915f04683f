"""New tokens of a cache: where they are, and each row's real ones moved behind its padding."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.positions import resolve

from .checks import check_mask
from .rotation import per_row

__all__ = ["Tokens", "arrange", "placed", "public", "real"]


class Tokens(NamedTuple):
    """T new tokens; of each row the last ``counts[b]`` are real."""

    k: Tensor
    v: Tensor
    at: Tensor  # positions of the keys, [B, n, T, 1]
    query_at: Tensor  # of the queries, in the order they came
    offset: int | None  # where positions are offset, offset + 1 ... in every row
    together: bool  # every row has the same positions
    counts: list[int]
    counted: bool = True  # positions follow on from those before

    def ends(self, row: int) -> tuple[float, float]:
        """The smallest and the largest position of a row's tokens, of which there are some."""
        if self.offset is not None:
            return self.offset, self.offset + self.counts[row] - 1
        real = self.at[row, :, self.at.shape[2] - self.counts[row] :]
        return real.min().item(), real.max().item()

    def follow(self, upto: list[int]) -> list[int]:
        """The position after the largest so far, of each row."""
        if self.offset is not None:
            return [self.offset + count for count in self.counts]
        return [
            max(before, math.floor(self.ends(row)[1]) + 1) if self.counts[row] else before
            for row, before in enumerate(upto)
        ]


def arrange(
    k: Tensor, v: Tensor, where: tuple[Tensor, int | None], mask: Tensor | None, held: list[int]
) -> Tokens:
    """Tokens at ``where``, padding zeroed and in front; ``held`` has the length of each row."""
    batch, count = k.shape[0], k.shape[2]
    at, offset = where
    together = batch == 1 or (at.shape[0] == 1 and mask is None)
    at = at.expand(batch, -1, -1).unsqueeze(-1)
    if mask is None:
        return Tokens(k, v, at, at, offset, together, [count] * batch)
    counts = mask.sum(-1).tolist()
    order = mask.to(torch.uint8).argsort(dim=-1, stable=True)
    aligned = bool((mask.gather(1, order) == mask).all())
    joins = any(n and c < count for n, c in zip(held, counts, strict=True))
    if at.shape[1] > 1 and (joins or not aligned):
        raise ValueError(
            f"KVCache.update: with positions on {at.shape[1]} axes the order of tokens is that of"
            " their slots, so only padding to the left of a first prompt can be taken out; got"
            " other padding. Move it to the left."
        )
    index, hidden = order[:, None, :, None], ~mask[:, None, :, None]
    k, v, keys_at = (
        x.gather(2, index.expand(-1, x.shape[1], -1, x.shape[3]))
        for x in (k.masked_fill(hidden, 0), v.masked_fill(hidden, 0), at)
    )
    return Tokens(k, v, keys_at, at, None, together, counts)


def placed(
    k: Tensor, positions: Tensor | None, mask: Tensor | None, upto: list[int], axes: int
) -> tuple[Tensor, int | None]:
    """Positions of new tokens [1, n, T] or [B, n, T], and the first where they are plain."""
    batch, count, device = k.shape[0], k.shape[2], k.device
    if positions is not None:
        given, _ = resolve(positions, 0, batch, count, device, "KVCache.update", axes)
        assert given is not None
        one = given.dim() == (1 if axes == 1 else 2)
        if axes == 1:
            return (given[None, None] if one else given[:, None]), None
        return (given[None] if one else given.movedim(0, 1)), None
    first = per_row(upto, device)
    if mask is None and not isinstance(first, Tensor):
        plain = torch.arange(first, first + count, device=device)
        return plain.expand(1, axes, count), first
    rank = torch.arange(count, device=device) if mask is None else mask.cumsum(-1) - 1
    begin = torch.tensor(upto, device=device).unsqueeze(-1)
    at = (begin + rank).clamp(min=0)  # padding in front of everything has no position of its own
    return at.unsqueeze(1).expand(batch, axes, count), None


def real(mask: Tensor | None, k: Tensor) -> Tensor | None:
    """The mask of new tokens, or None where all are real."""
    if mask is None:
        return None
    mask = check_mask(mask, k.shape[0], k.shape[2], k.device)
    return None if bool(mask.all()) else mask


def public(at: Tensor, together: bool) -> Tensor:
    """Positions [B, n, S, 1] as encodings take them; one row where all are alike."""
    if at.shape[1] == 1:
        return at[0, 0, :, 0] if together else at[:, 0, :, 0]
    return at[0, ..., 0] if together else at[..., 0].movedim(1, 0)
