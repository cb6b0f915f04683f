"""Rows of cos and sin, built from frequencies by their definition."""

from typing import NamedTuple

import torch
from torch import Tensor

from whorl._support.tensors import is_intercepted
from whorl.kernels import native_tables, tables
from whorl.kernels.row_table import Table
from whorl.types import Precision

from .call import ResolvedPositions

__all__ = ["RowBuilder"]


class RowBuilder(NamedTuple):
    """Frequencies of all pairs, and the factors on cos and sin.

    inv_freq: [P], or [B, P]; [N, n, P] rotates every pair of N heads along all n axes.
    scale: factor on cos and sin, a number or [B].
    axes: int64 [P], the axis of the positions that pair i rotates by, if there are several.
    growth: log2 of a further factor per position, float64 [P].
    native: whether the C library builds the rows that it can build.
    """

    inv_freq: Tensor
    scale: float | Tensor
    precision: Precision
    axes: Tensor | None = None
    growth: Tensor | None = None
    native: bool = False

    def build_rows(
        self,
        positions: ResolvedPositions,
        length: int,
        dtype: torch.dtype,
        exponent: Tensor | None = None,
    ) -> Tensor:
        """cos and sin of each position, [T, 2, P] or [B, T, 2, P]; differentiable.

        [1, N, T, 2, P] or [B, N, T, 2, P] if every head has its own frequencies.
        exponent: log2 of a factor that is the same at every position, [P] or [B, P].
        """
        values, first = positions
        if self.inv_freq.dim() == 3:
            assert values is not None
            return tables.compute_rows(self._sum_over_axes(values), self.scale, dtype)
        axes = None if values is None else self.axes
        if exponent is None and self._can_build_natively(values, dtype):
            return native_tables.build_table(
                values, first, length, self.inv_freq, self.scale, axes, self.growth
            )
        if values is None:
            values = torch.arange(first, first + length, device=self.inv_freq.device)
        if self._can_build_in_parts(values, dtype, axes, exponent):
            assert not isinstance(self.scale, Tensor)
            return tables.build_float32_rows(values, self.inv_freq, self.scale, self.growth)
        angles = tables.compute_angles(values, self.inv_freq, self.precision, axes)
        exponents = None
        if self.growth is not None:
            exponents = tables.select_positions(values, axes).double() * self.growth
            if exponent is not None:
                constant = exponent if exponent.dim() == 1 else exponent.unsqueeze(1)
                exponents = exponents + constant
        return tables.compute_rows(angles, self.scale, dtype, exponents)

    def _sum_over_axes(self, positions: Tensor) -> Tensor:
        """Angles [B or 1, N, T, P] of heads whose pairs rotate along all axes at once."""
        coordinates = positions.movedim(0, -1).double()  # [T, n] or [B, T, n]
        if coordinates.dim() == 2:
            coordinates = coordinates.unsqueeze(0)
        return coordinates.unsqueeze(1) @ self.inv_freq.double()

    def _can_build_in_parts(
        self,
        positions: Tensor,
        dtype: torch.dtype,
        axes: Tensor | None,
        exponent: Tensor | None,
    ) -> bool:
        plain = axes is None and exponent is None and not isinstance(self.scale, Tensor)
        if not plain or self.precision != "float32" or positions.requires_grad:
            return False
        return positions.is_cpu and tables.can_build_float32(self.inv_freq, dtype)

    def _can_build_natively(self, positions: Tensor | None, dtype: torch.dtype) -> bool:
        given = (positions, self.inv_freq, self.scale)
        return self.native and native_tables.can_build(dtype, self.precision, given)

    def build_table(self, length: int, unlimited: bool) -> Table:
        """A table of positions 0 .. length - 1; ``unlimited`` ones serve all other positions too.

        Those rows are built by the kernel where it can, else by this object.
        """
        rows = self.build_rows((None, 0), length, torch.float32)
        by_row = self.inv_freq.dim() > 1 or isinstance(self.scale, Tensor)
        if by_row or not self.native:
            return Table(rows)
        build = self._build_consecutive if unlimited else None
        if is_intercepted():  # a tensor made there may have no memory that the kernel could read
            return Table(rows, build=build)
        steps = None
        if unlimited and self._can_build_natively(None, torch.float32):
            steps = native_tables.build_steps(self.inv_freq, self.growth)
        build = build if steps is None else None
        return Table(rows, steps, float(self.scale), self.growth, self.axes, build)

    def _build_consecutive(self, first: int, length: int) -> Tensor:
        return self.build_rows((None, first), length, torch.float32)

    def move_to(self, device: torch.device) -> "RowBuilder":
        """The same on another device."""
        axes, growth = (None if t is None else t.to(device) for t in (self.axes, self.growth))
        scale = self.scale.to(device) if isinstance(self.scale, Tensor) else self.scale
        inv_freq = self.inv_freq.to(device)
        return RowBuilder(inv_freq, scale, self.precision, axes, growth, self.native)
