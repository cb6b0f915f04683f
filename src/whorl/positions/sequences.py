"""Positions of sequences: with padding, packed with others, or split over ranks."""

from typing import Literal

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.words import quote

from .resolve import INTEGERS

__all__ = ["from_cu_seqlens", "from_documents", "from_mask", "shard"]


def from_mask(mask: Tensor) -> Tensor:
    """Positions [B, T] that count only real tokens, for left or right padding.

    mask: [B, T], 1 for real tokens. Padding gets position 0; a mask hides it from attention anyway.
    """
    _check_tensor(mask, "from_mask", "mask")
    if mask.dim() != 2:
        raise ValueError(
            f"from_mask: mask must be [B, T], one row per sequence; got {list(mask.shape)}."
            " Pass the attention mask of the tokenizer, not the expanded [B, 1, T, S] one."
        )
    real = mask.to(torch.int64)
    is_float = mask.is_floating_point()
    if is_float or (real.numel() and not bool(((real == 0) | (real == 1)).all())):
        came = f"{mask.dtype}" if is_float else f"values from {real.min()} to {real.max()}"
        raise ValueError(
            f"from_mask: mask must be boolean, or integers 0 (padding) and 1 (token); got {came}."
            " An additive mask of 0 and -inf becomes one by `mask == 0`."
        )
    return (real.cumsum(-1) - 1).clamp(min=0)


def from_documents(ids: Tensor) -> Tensor:
    """Positions that restart at 0 wherever the document id changes; ids [T] or [B, T]."""
    _check_tensor(ids, "from_documents", "ids")
    if ids.dim() not in (1, 2) or ids.dtype not in INTEGERS:
        raise ValueError(
            "from_documents: ids must be integers [T] or [B, T], one document id per token;"
            f" got {ids.dtype} {list(ids.shape)}."
        )
    index = torch.arange(ids.shape[-1], device=ids.device)
    start = torch.where(find_starts(ids), index, 0).cummax(-1).values  # of each token's document
    return index - start


def find_starts(ids: Tensor) -> Tensor:
    """Whether a token is the first of its document: bool in the shape of ids, [T] or [B, T]."""
    first = torch.arange(ids.shape[-1], device=ids.device) == 0
    return first | (ids != ids.roll(1, -1))  # a slice of T - 1 would make torch.export demand T > 1


def from_cu_seqlens(cu_seqlens: Tensor) -> Tensor:
    """Positions [T] of documents packed one after the other; cu_seqlens [N + 1] = 0, ..., T."""
    _check_tensor(cu_seqlens, "from_cu_seqlens", "cu_seqlens")
    if cu_seqlens.dim() != 1 or cu_seqlens.dtype not in INTEGERS or not cu_seqlens.numel():
        raise ValueError(
            "from_cu_seqlens: cu_seqlens must be integers [N + 1], the ends of N documents after a"
            f" leading 0; got {cu_seqlens.dtype} {list(cu_seqlens.shape)}."
        )
    ends = cu_seqlens.to(torch.int64)
    lengths = ends.diff()
    if int(ends[0]) != 0 or (lengths.numel() and int(lengths.min()) < 0):
        raise ValueError(
            "from_cu_seqlens: cu_seqlens must start at 0 and never decrease;"
            f" got {cu_seqlens.tolist()[:8]}. Make it from lengths by"
            " `F.pad(lengths.cumsum(0), (1, 0))`."
        )
    starts = torch.repeat_interleave(ends[:-1], lengths)
    return torch.arange(int(ends[-1]), device=ends.device) - starts


def shard(
    positions: int | Tensor,
    rank: int,
    world: int,
    order: Literal["contiguous", "zigzag"] = "contiguous",
) -> Tensor:
    """The positions of the tokens that one rank holds if a sequence is split over ``world`` ranks.

    positions: the length of the whole sequence, or its positions [T] or [B, T] (packed documents).
    order: "contiguous" gives rank r the r-th of ``world`` pieces. "zigzag" splits the sequence into
    2 ``world`` pieces and gives rank r the pieces r and 2 world - 1 - r: balanced causal attention.

    >>> shard(8, rank=0, world=2, order="zigzag").tolist()
    [0, 1, 6, 7]
    """
    if isinstance(positions, int):
        positions = torch.arange(max(positions, 0))
    _check_tensor(positions, "shard", "positions")
    if type(rank) is not int or type(world) is not int:
        raise TypeError(
            f"shard: rank and world must be ints; got {quote(rank)} and {quote(world)}."
        )
    if order not in ("contiguous", "zigzag"):
        raise ValueError(f"shard: order must be 'contiguous' or 'zigzag'; got {quote(order)}.")
    if not 0 <= rank < world:
        raise ValueError(
            f"shard: rank must be in 0 .. world - 1; got rank {rank} of world {world}."
        )
    length, pieces = positions.shape[-1], world if order == "contiguous" else 2 * world
    if length % pieces:
        raise ValueError(
            f"shard: the length must divide into {pieces} equal pieces ({order}, world {world});"
            f" got {length}. Pad the sequence to {-(-length // pieces) * pieces}."
        )
    parts = positions.reshape(*positions.shape[:-1], pieces, length // pieces)
    held = [rank] if order == "contiguous" else [rank, 2 * world - 1 - rank]
    return parts[..., held, :].flatten(-2)


def _check_tensor(given: object, where: str, what: str) -> None:
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{where}: {what} must be a tensor; got {quote(given)}. Use torch.tensor(...)."
        )
    check_storage(given, where, what)
