"""Rows of frequencies that never change: a table of them, and what lies past it."""

from typing import NamedTuple

import torch
from torch import Tensor

from whorl._support.tensors import find_ends, has_values
from whorl.kernels import tables
from whorl.kernels.row_table import Table, TableRows

from .call import ResolvedPositions
from .row_builder import RowBuilder

__all__ = ["FixedRows", "RowsByLength"]


class FixedRows:
    """Rows of frequencies that never change, with a table of positions 0 .. N - 1.

    A plain object of plain tensors, so ``.half()`` and ``.to_empty()`` of a module do not change
    it. The table only saves time: rows past it, and those of float64 inputs, are the same numbers.
    """

    def __init__(self, builder: RowBuilder, table_length: int, unlimited: bool = False) -> None:
        self.builder = builder
        self.table = builder.build_table(table_length, unlimited)

    def move_to(self, device: torch.device) -> "FixedRows":
        """The same rows on another device."""
        moved = object.__new__(FixedRows)
        moved.builder = self.builder.move_to(device)
        moved.table = Table(self.table.entries.to(device))
        return moved

    def look_up_rows(self, positions: ResolvedPositions, length: int, dtype: torch.dtype) -> Tensor:
        """cos and sin, [T, 2, P] or [B, T, 2, P]; a view of the table if it has all of them."""
        values, first = positions
        if values is not None and values.requires_grad:
            return self.builder.build_rows(positions, length, dtype)
        table = self.table.entries
        if dtype == torch.float64:
            table = table[:0].double()
        inv_freq, scale, *options = self.builder
        arguments = (table, inv_freq, values, first, length, scale, *options)
        if torch.compiler.is_compiling():
            rows: Tensor = tables.LOOK_UP_ROWS(*arguments)
            return rows
        return tables.look_up_rows(*arguments)  # type: ignore[arg-type]  # scale is a number here

    def find_kernel_rows(self, positions: ResolvedPositions, length: int) -> TableRows | None:
        """Rows that the kernel reads in a table or builds itself; None if ``look_up_rows`` must."""
        values, first = positions
        if values is None:
            found = self.table.find_rows(first, length)
            return None if found is None else TableRows(*found)
        if values.is_floating_point():
            return None
        if self.builder.axes is not None and self.table.axes is None:  # made in a mode of torch
            return None
        if self.table.build is not None and not self._has_rows(values):
            return TableRows(Table(self.builder.build_rows(positions, length, torch.float32)))
        return TableRows(self.table, 0, values)

    def _has_rows(self, positions: Tensor) -> bool:
        if not positions.numel():
            return True
        low, high = find_ends(positions)
        return low >= 0 and high < self.table.count


class RowsByLength(NamedTuple):
    """Rows of contexts up to a limit, and of longer ones if these all share their frequencies."""

    limit: int
    short: FixedRows
    long: FixedRows | None

    def choose(self, context_length: int | Tensor) -> FixedRows | None:
        """The rows that serve all of these lengths; None if there are none."""
        if isinstance(context_length, int):
            least = most = context_length
        elif context_length.numel() and has_values(context_length):
            least, most = map(int, context_length.aminmax())
        else:
            return None
        if most <= self.limit:
            return self.short
        return self.long if least > self.limit else None
