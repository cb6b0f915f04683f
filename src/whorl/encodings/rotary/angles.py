"""Where the rows of cos and sin of a rotation come from, and a table of them."""

from typing import NamedTuple

import torch
from torch import Tensor

from whorl._support.tensors import find_ends
from whorl.kernels import native_tables, tables
from whorl.kernels.native import Table, TableRows
from whorl.kernels.watching import is_watched
from whorl.types import Precision

__all__ = ["FixedRows", "ResolvedPositions", "RowBuilder", "find_context_length"]

# Resolved positions: a tensor, or None for first, first + 1, ... on every axis
ResolvedPositions = tuple[Tensor | None, int]


class RowBuilder(NamedTuple):
    """By how much each pair turns per position, and the factor on its cos and sin.

    inv_freq [P], or [B, P]; scale a number, or [B]. axes: int64 [P], the axis of the positions that
    pair i turns by, where there are several. growth: log2 of a factor per position, float64 [P].
    inv_freq [N, n, P] turns every pair of N heads along all n axes. native: whether the C library
    builds the entries where it can.
    """

    inv_freq: Tensor
    scale: float | Tensor
    precision: Precision
    axes: Tensor | None = None
    growth: Tensor | None = None
    native: bool = False

    def entries(
        self, where: ResolvedPositions, length: int, dtype: torch.dtype, lift: Tensor | None = None
    ) -> Tensor:
        """[T, 2, P] or [B, T, 2, P], built from the definition; differentiable.

        [1, N, T, 2, P] or [B, N, T, 2, P] where heads turn differently.
        lift: log2 of a factor that is the same at every position, [P] or [B, P].
        """
        positions, first = where
        if self.inv_freq.dim() == 3:
            assert positions is not None
            coordinates = positions.movedim(0, -1).double()  # [T, n] or [B, T, n]
            if coordinates.dim() == 2:
                coordinates = coordinates.unsqueeze(0)
            turned = coordinates.unsqueeze(1) @ self.inv_freq.double()  # [B, N, T, P]
            return tables.compute_rows(turned, self.scale, dtype)
        axes = None if positions is None else self.axes
        if lift is None and self._can_build(positions, dtype):
            return native_tables.build_table(
                positions, first, length, self.inv_freq, self.scale, axes, self.growth
            )
        if positions is None:
            positions = torch.arange(first, first + length, device=self.inv_freq.device)
        turned = tables.compute_angles(positions, self.inv_freq, self.precision, axes)
        grown = None
        if self.growth is not None:
            grown = tables.select_positions(positions, axes).double() * self.growth
            if lift is not None:
                grown = grown + (lift if lift.dim() == 1 else lift.unsqueeze(1))
        return tables.compute_rows(turned, self.scale, dtype, grown)

    def _can_build(self, positions: Tensor | None, dtype: torch.dtype) -> bool:
        given = (positions, self.inv_freq, self.scale)
        return self.native and native_tables.can_build(dtype, self.precision, given)

    def table(self, length: int, endless: bool) -> Table:
        """Rows of positions 0 .. length - 1, and where it is ``endless`` those of all others."""
        entries = self.entries((None, 0), length, torch.float32)
        several = self.inv_freq.dim() > 1 or isinstance(self.scale, Tensor)
        if several or not self.native or is_watched():  # then addresses may be of no memory
            return Table(entries)
        steps, scale, axes = None, float(self.scale), self.axes
        if endless and self._can_build(None, torch.float32):
            steps = native_tables.build_steps(self.inv_freq, self.growth)
        build = self._build_some if endless and steps is None else None
        return Table(entries, steps, scale, self.growth, axes, build)

    def _build_some(self, first: int, length: int) -> Tensor:
        return self.entries((None, first), length, torch.float32)

    def on(self, device: torch.device) -> "RowBuilder":
        """The same on another device."""
        axes, growth = (None if t is None else t.to(device) for t in (self.axes, self.growth))
        scale = self.scale.to(device) if isinstance(self.scale, Tensor) else self.scale
        return RowBuilder(
            self.inv_freq.to(device), scale, self.precision, axes, growth, self.native
        )


class FixedRows:
    """Turns that never change, and a table of their cos and sin for positions 0 .. N - 1.

    A plain object of plain tensors, so ``.half()`` and ``.to_empty()`` on a module pass it by. The
    table is only a shortcut: past it, and for float64 inputs, the same numbers are built afresh.
    endless: whether the kernel does so.
    """

    def __init__(self, turns: RowBuilder, table_length: int, endless: bool = False) -> None:
        self.turns = turns
        self.table = turns.table(table_length, endless)

    def on(self, device: torch.device) -> "FixedRows":
        """The same angles on another device."""
        moved = object.__new__(FixedRows)
        moved.turns = self.turns.on(device)
        moved.table = Table(self.table.entries.to(device))
        return moved

    def rows(self, where: ResolvedPositions, length: int, dtype: torch.dtype) -> Tensor:
        """[T, 2, P] or [B, T, 2, P] for resolved positions; a view of the table where it can be."""
        positions, first = where
        if positions is not None and positions.requires_grad:
            return self.turns.entries(where, length, dtype)
        table = self.table.entries
        if dtype == torch.float64:
            table = table[:0].double()
        inv_freq, scale, *options = self.turns
        arguments = (table, inv_freq, positions, first, length, scale, *options)
        if torch.compiler.is_compiling():
            rows: Tensor = tables.LOOK_UP_ROWS(*arguments)
            return rows
        return tables.look_up_rows(*arguments)  # type: ignore[arg-type]  # fixed turns have one scale

    def shortcut(self, where: ResolvedPositions, length: int) -> TableRows | None:
        """Rows of the table, or that the kernel builds, or built here where it may not."""
        positions, first = where
        if positions is None:
            found = self.table.find(first, length)
            return None if found is None else TableRows(*found)
        if positions.is_floating_point():
            return None
        if self.turns.axes is not None and self.table.axes is None:  # made while torch looked on
            return None
        if self.table.build is not None and not self._has(positions):
            return TableRows(Table(self.turns.entries(where, length, torch.float32)))
        return TableRows(self.table, 0, positions)

    def _has(self, positions: Tensor) -> bool:
        if not positions.numel():
            return True
        low, high = find_ends(positions)
        return low >= 0 and high < self.table.count


def find_context_length(
    where: list[ResolvedPositions], lengths: list[int], axes: int
) -> int | Tensor:
    """Largest position + 1: of each row where rows have their own positions, else of all.

    Of a fraction the whole part counts, as in a cache: the token at 9.5 is the tenth.
    """
    known = [
        first + length
        for (values, first), length in zip(where, lengths, strict=True)
        if values is None
    ]
    found: int | Tensor = max([1, *known])
    for values, _ in where:
        if values is not None and values.shape[-1]:
            now = (values.amax(-1) if axes == 1 else values.amax((0, -1))).to(torch.int64) + 1
            found = torch.maximum(found, now) if isinstance(found, Tensor) else now.clamp(min=found)
    return found
