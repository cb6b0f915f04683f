"""Positions of tokens: from padding masks, packed documents and sequence shards.

Everything here returns int64 positions [T] or [B, T] for the ``positions=`` of any encoding.

>>> import torch, whorl
>>> whorl.positions.from_mask(torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])).tolist()
[[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
>>> whorl.positions.from_cu_seqlens(torch.tensor([0, 3, 5])).tolist()
[0, 1, 2, 0, 1]
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

__all__ = ["from_cu_seqlens", "from_documents", "from_mask", "shard"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_FRACTIONS = (torch.float64, torch.float32)


def from_mask(mask: Tensor) -> Tensor:
    """Positions that count real tokens only, for left or right padding; mask [B, T], 1 keeps.

    Padding gets 0, the position of the first token: it is masked out anyway.
    """
    _check_tensor(mask, "from_mask", "mask")
    if mask.dim() != 2:
        raise ValueError(
            f"from_mask: mask must be [B, T], one row per sequence; got {list(mask.shape)}."
            " Pass the attention mask of the tokenizer, not the expanded [B, 1, T, S] one."
        )
    kept = mask.to(torch.int64)
    fractions = mask.is_floating_point()
    if fractions or (kept.numel() and not bool(((kept == 0) | (kept == 1)).all())):
        came = f"{mask.dtype}" if fractions else f"values from {kept.min()} to {kept.max()}"
        raise ValueError(
            f"from_mask: mask must be boolean, or integers 0 (padding) and 1 (token); got {came}."
            " An additive mask of 0 and -inf becomes one by `mask == 0`."
        )
    return (kept.cumsum(-1) - 1).clamp(min=0)


def from_documents(ids: Tensor) -> Tensor:
    """Positions that start again at 0 wherever the document id changes; ids [T] or [B, T]."""
    _check_tensor(ids, "from_documents", "ids")
    if ids.dim() not in (1, 2) or ids.dtype not in _INTEGERS:
        raise ValueError(
            "from_documents: ids must be integers [T] or [B, T], one document id per token;"
            f" got {ids.dtype} {list(ids.shape)}."
        )
    index = torch.arange(ids.shape[-1], device=ids.device)
    starts = torch.ones_like(ids, dtype=torch.bool)
    starts[..., 1:] = ids[..., 1:] != ids[..., :-1]
    begun = torch.where(starts, index, 0).cummax(-1).values  # where each token's document began
    return index - begun


def from_cu_seqlens(cu_seqlens: Tensor) -> Tensor:
    """Positions [T] of documents packed one after the other; cu_seqlens [N + 1] = 0, ..., T."""
    _check_tensor(cu_seqlens, "from_cu_seqlens", "cu_seqlens")
    if cu_seqlens.dim() != 1 or cu_seqlens.dtype not in _INTEGERS or not cu_seqlens.numel():
        raise ValueError(
            "from_cu_seqlens: cu_seqlens must be integers [N + 1], the ends of N documents after a"
            f" leading 0; got {cu_seqlens.dtype} {list(cu_seqlens.shape)}."
        )
    ends = cu_seqlens.to(torch.int64)
    lengths = ends.diff()
    if int(ends[0]) != 0 or (lengths.numel() and int(lengths.min()) < 0):
        raise ValueError(
            "from_cu_seqlens: cu_seqlens must start at 0 and never decrease;"
            f" got {cu_seqlens.tolist()[:8]}. From lengths it is made by"
            " `F.pad(lengths.cumsum(0), (1, 0))`."
        )
    begun = torch.repeat_interleave(ends[:-1], lengths)
    return torch.arange(int(ends[-1]), device=ends.device) - begun


def shard(
    positions: int | Tensor,
    rank: int,
    world: int,
    order: Literal["contiguous", "zigzag"] = "contiguous",
) -> Tensor:
    """The positions that one of ``world`` ranks holds of a sequence split over them.

    positions: the length of the whole sequence, or its positions [T] or [B, T] (packed documents).
    "contiguous" gives rank r the r-th of ``world`` pieces; "zigzag" cuts 2 ``world`` pieces and
    gives it pieces r and 2 world - 1 - r, which balances causal attention.

    >>> shard(8, rank=0, world=2, order="zigzag").tolist()
    [0, 1, 6, 7]
    """
    if isinstance(positions, int):
        positions = torch.arange(max(positions, 0))
    _check_tensor(positions, "shard", "positions")
    if type(rank) is not int or type(world) is not int:
        raise TypeError(f"shard: rank and world must be ints; got {rank!r} and {world!r}.")
    if order not in ("contiguous", "zigzag"):
        raise ValueError(f"shard: order must be 'contiguous' or 'zigzag'; got {order!r}.")
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
        raise TypeError(f"{where}: {what} must be a tensor; got {given!r}. Use torch.tensor(...).")


def resolve(
    positions: Tensor | None,
    offset: int | Tensor | Sequence[int],
    batch: int,
    length: int,
    device: torch.device,
    where: str,
    axes: int = 1,
) -> tuple[Tensor | None, int]:
    """Positions as (tensor or None, first); None stands for first, first + 1, ... without a tensor.

    A tensor is [T] or [B, T], with several ``axes`` [n, T] or [n, B, T]. Raises for the wrong rank,
    length, dtype or device, in the name of ``where``.
    """
    if positions is None and type(offset) is int:
        return None, offset
    if positions is not None:
        positions = _checked(positions, batch, length, device, where, axes)
    if offset is None or isinstance(offset, (bool, float, str)):
        raise TypeError(f"{where}: offset must be an int or one int per batch row; got {offset!r}.")
    if not isinstance(offset, (Tensor, Sequence)):
        return (None, offset) if positions is None else (positions + offset, 0)
    rows = torch.as_tensor(offset, device=device) if not isinstance(offset, Tensor) else offset
    if rows.dtype not in _INTEGERS or rows.shape not in ((batch,), ()):
        raise ValueError(
            f"{where}: offset must be an int or integers [B], one for each of the {batch} batch"
            f" rows; got {rows.dtype} {list(rows.shape)}."
        )
    _same_device(rows, device, where, "offset")
    rows = rows.to(torch.int64).unsqueeze(-1)  # [B, 1], or [1] for one offset
    if positions is None and length == 1:  # a decode step: spare it an arange and a sum
        return (rows if axes == 1 else rows.expand(axes, *rows.shape)), 0
    if positions is None:
        positions = torch.arange(length, device=device)
        if axes > 1:
            positions = positions.expand(axes, length)
    if axes > 1 and positions.dim() == 2 and rows.dim() == 2:
        positions = positions.unsqueeze(1)  # [n, 1, T]
    return positions + rows, 0


def _checked(
    positions: Tensor, batch: int, length: int, device: torch.device, where: str, axes: int
) -> Tensor:
    if not isinstance(positions, Tensor):
        raise TypeError(
            f"{where}: positions must be a tensor; got {type(positions).__name__}."
            " Use torch.tensor(...), or offset= for a shift."
        )
    if positions.dtype not in _INTEGERS + _FRACTIONS:
        half = positions.dtype in (torch.float16, torch.bfloat16)
        why = ", because half precision merges neighbours (bfloat16 from 257 on)" if half else ""
        raise TypeError(
            f"{where}: positions must be integers, float32 or float64{why}; got {positions.dtype}."
            " Use positions.long() or positions.float() before any cast of the model."
        )
    _same_device(positions, device, where, "positions")
    positions = positions.to(torch.float64 if positions.is_floating_point() else torch.int64)
    if axes > 1:
        return _checked_axes(positions, batch, length, where, axes)
    if positions.dim() not in (1, 2) or positions.shape[-1] != length:
        raise ValueError(
            f"{where}: positions must be [T] or [B, T] with T = {length};"
            f" got {list(positions.shape)}. Cut or build them for {length} tokens, or pass offset=."
        )
    if positions.dim() == 2 and positions.shape[0] not in (1, batch):
        raise ValueError(
            f"{where}: positions has {positions.shape[0]} rows but the batch has {batch};"
            " give one row for each sequence, or [T] for all."
        )
    return positions[0] if positions.dim() == 2 and positions.shape[0] == 1 else positions


def _checked_axes(positions: Tensor, batch: int, length: int, where: str, axes: int) -> Tensor:
    shape = positions.shape
    if len(shape) == 1 and shape[0] == length:
        return positions.expand(axes, length)
    if len(shape) not in (2, 3) or shape[0] != axes or shape[-1] != length:
        raise ValueError(
            f"{where}: positions must be [n, T] or [n, B, T] with n = {axes} axes and T = {length};"
            f" got {list(shape)}. Stack one row for each axis: torch.stack((rows, columns))."
        )
    if len(shape) == 3 and shape[1] not in (1, batch):
        raise ValueError(
            f"{where}: positions has {shape[1]} rows for each axis but the batch has {batch};"
            " give one row for each sequence, or [n, T] for all."
        )
    return positions[:, 0] if len(shape) == 3 and shape[1] == 1 else positions


def _same_device(given: Tensor, device: torch.device, where: str, what: str) -> None:
    if given.device != device:
        raise ValueError(
            f"{where}: {what} is on {given.device} but x is on {device};"
            f" use {what}.to({str(device)!r})."
        )
