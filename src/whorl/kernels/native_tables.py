"""Rows of cos and sin that the C library builds: those of a table, and those past it.

All rows that the library rotates by come from one C function, so a result does not depend on how
long the table is. They meet the precision that ``tables`` states,
but are not always those of torch's own cos and sin: of 1e8 entries a few differ by one bit.
"""

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from whorl._support.tensors import ORDINARY, is_intercepted

from . import native
from .row_table import Table

__all__ = ["build_steps", "build_table", "can_build", "read_rows"]

_JOB = struct.Struct("16q").pack
_CONSECUTIVE, _WHOLE, _FRACTIONS = 0, 1, 2
_KINDS = {torch.int64: _WHOLE, torch.float64: _FRACTIONS}
_STEPS = 32
_MOST_PAIRS = 8192


def can_build(
    dtype: torch.dtype,
    precision: str,
    tensors: Sequence[Tensor | float | None],
) -> bool:
    """Whether the library builds such rows: float32 from float64 angles, without a gradient.

    tensors: what they are built from, ordinary CPU tensors, numbers or None.
    """
    if dtype != torch.float32 or precision != "float64" or is_intercepted():
        return False
    for x in tensors:
        if not isinstance(x, Tensor):
            continue
        if type(x) not in ORDINARY or not x.is_cpu or x.is_neg():
            return False
        if x.requires_grad and torch.is_grad_enabled():
            return False
    return native.find_problem() is None


def build_steps(inv_freq: Tensor, growth: Tensor | None = None) -> Tensor | None:
    """What the kernel builds single rows from, float64 [32, 3, P]; None if P is too large."""
    if (pairs := inv_freq.shape[0]) > _MOST_PAIRS:
        return None
    inv_freq = inv_freq.detach().double().contiguous()
    steps = torch.empty(_STEPS, 3, pairs, dtype=torch.float64, device="cpu")
    factors = 0 if growth is None else growth.data_ptr()
    native.build_steps(inv_freq.data_ptr(), factors, pairs, steps.data_ptr())
    return steps


def build_table(
    positions: Tensor | None,
    first: int,
    length: int,
    inv_freq: Tensor,
    scale: float | Tensor,
    axes: Tensor | None = None,
    growth: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """Rows for ``positions`` [T] or [B, T], or first .. first + length - 1: [T, 2, P] or [B, ...].

    inv_freq: [P] or [B, P]. scale: a number, or [B]. axes: as for ``tables.angles``. growth:
    log2 of a factor per position, float64 [P]. steps: what ``build_steps`` made of inv_freq and
    growth; it is faster with them.
    """
    if positions is not None and axes is not None:
        rows = build_table(positions[0], 0, length, inv_freq, scale, None, growth)
        for axis in range(1, positions.shape[0]):
            others = build_table(positions[axis], 0, length, inv_freq, scale, None, growth)
            rows = torch.where(axes == axis, others, rows)
        return rows
    inv_freq = inv_freq.detach().double().contiguous()
    scales = torch.as_tensor(scale, dtype=torch.float64, device="cpu").contiguous()
    ranked = ((positions, 2), (inv_freq, 2), (scales, 1))
    leading = [t.shape[0] for t, rank in ranked if t is not None and t.dim() == rank]
    batch, kind, layout = max(leading, default=1), _CONSECUTIVE, (0, 0, 0)
    assert {*leading} <= {1, batch}, "the kernel would read past the shorter of them"
    if positions is not None:
        positions = positions.detach().to(
            torch.float64 if positions.is_floating_point() else torch.int64
        )
        kind, length = _KINDS[positions.dtype], positions.shape[-1]
        layout = (positions.data_ptr(), _get_batch_stride(positions, 2), positions.stride(-1))
    pairs = inv_freq.shape[-1]
    shape = (batch, length, 2, pairs) if leading else (length, 2, pairs)
    out = native.use_huge_pages(torch.empty(shape, dtype=torch.float32, device="cpu"))
    sizes = (first, batch, length, pairs, inv_freq.data_ptr(), _get_batch_stride(inv_freq, 2))
    known = [0 if t is None else t.data_ptr() for t in (steps, growth)]
    ends = (scales.data_ptr(), _get_batch_stride(scales, 1), *known, out.data_ptr(), 0)
    native.build_table(_JOB(kind, *layout, *sizes, *ends))
    return out


def read_rows(table: Table, first: int, length: int) -> Tensor:
    """Rows first .. first + length - 1, read from a table or built past it."""
    if first >= 0 and first + length <= table.count:
        return table.entries[first : first + length]
    assert table.steps is not None, "the caller knows that the table has these rows"
    inv_freq = table.steps[1, 0]
    return build_table(None, first, length, inv_freq, table.scale, None, table.growth, table.steps)


def _get_batch_stride(t: Tensor, rank: int) -> int:
    """Elements from one sequence to the next; 0 if all share them."""
    return t.stride(0) if t.dim() == rank and t.shape[0] > 1 else 0
