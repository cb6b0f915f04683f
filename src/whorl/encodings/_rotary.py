"""What rotations share: checks of their inputs, and the way from positions to rotated tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from whorl.kernels import native, ops, tables
from whorl.kernels.native import Band, Rows, Table

__all__ = ["Angles", "check_input", "check_output", "needs_grad", "turn"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Angles:
    """Frequencies, their scale, and a table of cos and sin for positions 0 .. N - 1.

    A plain object of plain tensors, so ``.half()`` and ``.to_empty()`` on a module pass it by. The
    table is only a shortcut: past it, and for float64 inputs, the same numbers are built afresh.
    """

    def __init__(self, inv_freq: Tensor, scale: float, precision: str, table_length: int) -> None:
        self.inv_freq = inv_freq
        self.scale = scale
        self.precision = precision
        turns = tables.angles(torch.arange(table_length, device="cpu"), inv_freq, precision)
        self.table = Table(tables.entries(turns, scale, torch.float32))

    def on(self, device: torch.device) -> "Angles":
        """These angles on another device; itself where they already are."""
        if self.inv_freq.device == device:
            return self
        moved = object.__new__(Angles)
        moved.scale, moved.precision = self.scale, self.precision
        moved.inv_freq = self.inv_freq.to(device)
        moved.table = Table(self.table.entries.to(device))
        return moved

    def rows(self, where: tuple[Tensor | None, int], length: int, dtype: torch.dtype) -> Tensor:
        """[T, 2, P] or [B, T, 2, P] for resolved positions; a view of the table where it can be."""
        positions, first = where
        table = self.table.entries
        if dtype == torch.float64:
            table = table[:0].double()
        arguments = (table, self.inv_freq, positions, first, length, self.scale, self.precision)
        if torch.compiler.is_compiling():
            rows: Tensor = tables.lookup_op(*arguments)
            return rows
        return tables.lookup(*arguments)

    def shortcut(self, where: tuple[Tensor | None, int], length: int) -> Rows | None:
        """Rows of the table without a copy; an index may still turn out to lie past it."""
        positions, first = where
        if positions is None:
            within = first >= 0 and first + length <= self.table.count
            return Rows(self.table, first) if within else None
        return None if positions.is_floating_point() else Rows(self.table, 0, positions)


def turn(
    xs: Sequence[Tensor],
    rows: Sequence[Tensor],
    band: Band,
    *,
    impl: str,
    transpose: bool = False,
    outs: Sequence[Tensor] | None = None,
) -> list[Tensor]:
    """Rotate ``xs`` by one table of rows each, into ``outs`` where given."""
    same = len(xs) == 1 or xs[0].dtype == xs[1].dtype
    if impl == "native" and same and ops.is_plain(xs) and not needs_grad(*rows):
        done = native.rotate(xs, outs, [Rows(Table(r)) for r in rows], band, transpose)
        assert done is not None, "a table with one row per position has every row"
        return done
    results = ops.rotate(xs, rows, band, transpose, impl)
    if outs is None:
        return results
    for out, result in zip(outs, results, strict=True):
        out.copy_(result)
    return list(outs)


def needs_grad(*tensors: Tensor) -> bool:
    """Whether a gradient must flow through any of ``tensors``."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def check_input(x: Tensor, head_dim: int, where: str, what: str) -> tuple[int, int]:
    """Batch size and length of ``x``; refuse all but floating-point [B, H, T, head_dim]."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{where}: {what} must be a tensor [B, H, T, D]; got {type(x).__name__}.")
    if x.dtype not in _DTYPES:
        raise TypeError(
            f"{where}: {what} must be float32, float64, bfloat16 or float16, because rotated values"
            f" are fractions; got {x.dtype}. Convert it with {what}.float()."
        )
    shape = x.shape
    if len(shape) != 4 or shape[3] != head_dim:
        raise ValueError(
            f"{where}: {what} must be [B, H, T, D] with D = head_dim = {head_dim};"
            f" got {list(shape)}. Reshape a [B, T, H * D] tensor with"
            f" {what}.unflatten(-1, (-1, {head_dim})).transpose(1, 2)."
        )
    return shape[0], shape[2]


def check_output(out: Tensor, x: Tensor, where: str) -> None:
    """Refuse an ``out`` that cannot take the result; ``x`` itself is welcome."""
    if out is not x:
        if not isinstance(out, Tensor) or out.shape != x.shape or out.dtype != x.dtype:
            got = (
                f"{out.dtype} {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            )
            raise ValueError(
                f"{where}: out must have the shape and dtype of x, {x.dtype} {list(x.shape)};"
                f" got {got}."
            )
        if out.device != x.device:
            raise ValueError(f"{where}: out is on {out.device} but x is on {x.device}.")
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{where}: cannot write into a tensor where a gradient is needed; call it under"
            " torch.no_grad(), or without in-place and out=."
        )
    shared = 0 in out.stride() and not torch.compiler.is_compiling()
    if shared and any(n > 1 and step == 0 for n, step in zip(out.shape, out.stride(), strict=True)):
        raise ValueError(
            f"{where}: cannot write into an expanded tensor, because several elements share one"
            " place in memory; use .clone() first."
        )
