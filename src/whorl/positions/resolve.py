"""Check the arguments ``positions`` and ``offset``, and turn them into one tensor of positions."""

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
_FLOATS = (torch.float64, torch.float32)


def resolve(
    positions: Tensor | None,
    offset: int | Tensor | Sequence[int],
    batch: int,
    length: int,
    device: torch.device,
    where: str,
    axes: int = 1,
) -> tuple[Tensor | None, int]:
    """Checked positions as (tensor, 0), or as (None, first) for first, first + 1, ...

    A tensor is [T] or [B, T], or with several ``axes`` [n, T] or [n, B, T]; offsets are added.
    Errors about rank, length, dtype or device begin with ``where``.
    """
    if positions is not None:
        positions = _check_positions(positions, batch, length, device, where, axes)
    elif type(offset) is int and (
        torch.compiler.is_compiling() or -POSITION_LIMIT < offset < POSITION_LIMIT
    ):
        return None, offset
    if not isinstance(offset, (Tensor, Sequence)) or isinstance(offset, str):
        first = _check_offset(offset, length, where)
        if positions is None:
            return None, first
        if not torch.compiler.is_compiling() and type(first) is int and first:
            _check_sum(positions, first, where)
        return positions + first, 0
    rows = offset if isinstance(offset, Tensor) else _convert_offsets(offset, device, where)
    if rows.dtype not in INTEGERS or rows.shape not in ((batch,), ()):
        raise ValueError(
            f"{where}: offset must be an int or integers [B], one for each of the {batch} batch"
            f" rows; got {rows.dtype} {list(rows.shape)}."
        )
    _check_device(rows, device, where, "offset")
    check_storage(rows, where, "offset")
    rows = rows.to(torch.int64).unsqueeze(-1)  # [B, 1], or [1] for one offset
    _check_sum(length if positions is None else positions, rows, where)
    if positions is None and length == 1:  # a decode step needs no arange and no sum
        return (rows if axes == 1 else rows.expand(axes, *rows.shape)), 0
    if positions is None:
        positions = torch.arange(length, device=device)
        if axes > 1:
            positions = positions.expand(axes, length)
    if axes > 1 and positions.dim() == 2 and rows.dim() == 2:
        positions = positions.unsqueeze(1)  # [n, 1, T]
    return positions + rows, 0


def _check_sum(positions: int | Tensor, offset: int | Tensor, where: str) -> None:
    """Raise ValueError if positions + offset overflow; an int n stands for positions 0 .. n - 1.

    Tensors on other devices are not checked, because reading them would mean waiting.
    """
    for x in (positions, offset):
        if isinstance(x, Tensor) and (
            not x.is_cpu or x.is_floating_point() or not has_values(x) or not x.numel()
        ):
            return
    ends = find_ends(positions) if isinstance(positions, Tensor) else (0, max(positions - 1, 0))
    shifts = find_ends(offset) if isinstance(offset, Tensor) else (offset, offset)
    low, high = (end + shift for end, shift in zip(ends, shifts, strict=True))
    if low < -(1 << 63) or high >= (1 << 63) - 1:
        raise ValueError(
            f"{where}: positions must lie within 2^63, because they are int64; got positions and"
            f" offsets whose sums go from {low} to {high}."
        )


def _check_offset(offset: Any, length: int, where: str) -> int:
    """The offset of all rows as an int; raises if it is not one or a position exceeds int64."""
    if isinstance(offset, torch.SymInt) or (torch.compiler.is_compiling() and type(offset) is int):
        return offset  # type: ignore[return-value]  # the value of a traced number is unknown
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


def _convert_offsets(offset: Sequence[int], device: torch.device, where: str) -> Tensor:
    try:
        return torch.as_tensor(offset, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(
            f"{where}: offset must be an int or one int64 for each batch row; got a"
            f" {type(offset).__name__} that cannot become such a tensor. Use torch.tensor([...])."
        ) from None


def _check_positions(
    positions: Tensor, batch: int, length: int, device: torch.device, where: str, axes: int
) -> Tensor:
    if not isinstance(positions, Tensor):
        raise TypeError(
            f"{where}: positions must be a tensor; got {type(positions).__name__}."
            " Use torch.tensor(...), or offset= for a shift."
        )
    if positions.dtype not in INTEGERS + _FLOATS:
        half = positions.dtype in (torch.float16, torch.bfloat16)
        why = ", because half precision merges neighbours (bfloat16 from 257 on)" if half else ""
        raise TypeError(
            f"{where}: positions must be integers, float32 or float64{why}; got {positions.dtype}."
            " Use positions.long() or positions.float() before any cast of the model."
        )
    _check_device(positions, device, where, "positions")
    check_storage(positions, where, "positions")
    positions = positions.to(torch.float64 if positions.is_floating_point() else torch.int64)
    if axes > 1:
        return _check_axes(positions, batch, length, where, axes)
    if positions.dim() not in (1, 2) or positions.shape[-1] != length:
        raise ValueError(
            f"{where}: positions must be [T] or [B, T] with T = {length};"
            f" got {list(positions.shape)}. Pass one position for each of the {length} tokens, or"
            " offset=."
        )
    # Not ``in (1, batch)``, which does not work with traced numbers.
    if positions.dim() == 2 and positions.shape[0] != 1 and positions.shape[0] != batch:
        raise ValueError(
            f"{where}: positions has {positions.shape[0]} rows but the batch has {batch};"
            " give one row for each sequence, or [T] for all."
        )
    return positions[0] if positions.dim() == 2 and positions.shape[0] == 1 else positions


def _check_axes(positions: Tensor, batch: int, length: int, where: str, axes: int) -> Tensor:
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


def _check_device(given: Tensor, device: torch.device, where: str, what: str) -> None:
    if given.device != device:
        raise ValueError(
            f"{where}: {what} is on {given.device} but x is on {device};"
            f" use {what}.to({str(device)!r})."
        )
