"""From what a user passes as positions and offset to tensors that an encoding can trust."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.tensors import POSITION_LIMIT, find_ends, has_values
from whorl._support.words import quote

__all__ = ["INTEGERS", "resolve"]

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_FRACTIONS = (torch.float64, torch.float32)


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
    if positions is not None:
        positions = _checked(positions, batch, length, device, where, axes)
    elif type(offset) is int and (
        torch.compiler.is_compiling() or -POSITION_LIMIT < offset < POSITION_LIMIT
    ):
        return None, offset
    if not isinstance(offset, (Tensor, Sequence)) or isinstance(offset, str):
        first = _checked_offset(offset, length, where)
        if positions is None:
            return None, first
        if not torch.compiler.is_compiling() and type(first) is int and first:
            _check_sum(positions, first, where)
        return positions + first, 0
    rows = offset if isinstance(offset, Tensor) else _offsets(offset, device, where)
    if rows.dtype not in INTEGERS or rows.shape not in ((batch,), ()):
        raise ValueError(
            f"{where}: offset must be an int or integers [B], one for each of the {batch} batch"
            f" rows; got {rows.dtype} {list(rows.shape)}."
        )
    _same_device(rows, device, where, "offset")
    check_storage(rows, where, "offset")
    rows = rows.to(torch.int64).unsqueeze(-1)  # [B, 1], or [1] for one offset
    _check_sum(length if positions is None else positions, rows, where)
    if positions is None and length == 1:  # a decode step: spare it an arange and a sum
        return (rows if axes == 1 else rows.expand(axes, *rows.shape)), 0
    if positions is None:
        positions = torch.arange(length, device=device)
        if axes > 1:
            positions = positions.expand(axes, length)
    if axes > 1 and positions.dim() == 2 and rows.dim() == 2:
        positions = positions.unsqueeze(1)  # [n, 1, T]
    return positions + rows, 0


def _check_sum(placed: int | Tensor, offset: int | Tensor, where: str) -> None:
    """Refuse positions that would wrap around; placed: they, or how many from 0 on.

    On other devices reading them would mean waiting.
    """
    for x in (placed, offset):
        if isinstance(x, Tensor) and (
            not x.is_cpu or x.is_floating_point() or not has_values(x) or not x.numel()
        ):
            return
    ends = find_ends(placed) if isinstance(placed, Tensor) else (0, max(placed - 1, 0))
    shifts = find_ends(offset) if isinstance(offset, Tensor) else (offset, offset)
    low, high = (at + shift for at, shift in zip(ends, shifts, strict=True))
    if low < -(1 << 63) or high >= (1 << 63) - 1:
        raise ValueError(
            f"{where}: positions must lie within 2^63, because they are int64; got positions and"
            f" offsets whose sums reach from {low} to {high}."
        )


def _checked_offset(offset: Any, length: int, where: str) -> int:
    """One offset for all rows, such that every position fits an int64."""
    if isinstance(offset, torch.SymInt) or (torch.compiler.is_compiling() and type(offset) is int):
        return offset  # type: ignore[return-value]  # a traced number must not be looked at
    try:
        first = operator.index(offset)
    except TypeError:
        first = None
    if first is None or isinstance(offset, (bool, Tensor)):
        raise TypeError(
            f"{where}: offset must be an int or one int per batch row; got {quote(offset)}."
        )
    if not -(1 << 63) <= first < (1 << 63) - length:
        raise ValueError(
            f"{where}: positions must lie within 2^63, because they are int64; got an offset of"
            f" {first.bit_length()} bits for {length} tokens."
        )
    return first


def _offsets(offset: Sequence[int], device: torch.device, where: str) -> Tensor:
    try:
        return torch.as_tensor(offset, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(
            f"{where}: offset must be an int or one int64 for each batch row; got a"
            f" {type(offset).__name__} that is no such row of numbers. Use torch.tensor([...])."
        ) from None


def _checked(
    positions: Tensor, batch: int, length: int, device: torch.device, where: str, axes: int
) -> Tensor:
    if not isinstance(positions, Tensor):
        raise TypeError(
            f"{where}: positions must be a tensor; got {type(positions).__name__}."
            " Use torch.tensor(...), or offset= for a shift."
        )
    if positions.dtype not in INTEGERS + _FRACTIONS:
        half = positions.dtype in (torch.float16, torch.bfloat16)
        why = ", because half precision merges neighbours (bfloat16 from 257 on)" if half else ""
        raise TypeError(
            f"{where}: positions must be integers, float32 or float64{why}; got {positions.dtype}."
            " Use positions.long() or positions.float() before any cast of the model."
        )
    _same_device(positions, device, where, "positions")
    check_storage(positions, where, "positions")
    positions = positions.to(torch.float64 if positions.is_floating_point() else torch.int64)
    if axes > 1:
        return _checked_axes(positions, batch, length, where, axes)
    if positions.dim() not in (1, 2) or positions.shape[-1] != length:
        raise ValueError(
            f"{where}: positions must be [T] or [B, T] with T = {length};"
            f" got {list(positions.shape)}. Cut or build them for {length} tokens, or pass offset=."
        )
    # Not ``in (1, batch)``: a traced number is found in no tuple.
    if positions.dim() == 2 and positions.shape[0] != 1 and positions.shape[0] != batch:
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
    if len(shape) == 3 and shape[1] != 1 and shape[1] != batch:
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
