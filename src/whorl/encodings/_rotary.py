"""What rotations share: the way from positions to rotated queries and keys."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from whorl.kernels import native, ops, tables
from whorl.kernels.native import Band, Rows, Table
from whorl.kernels.tables import Precision, table_dtype
from whorl.positions import resolve
from whorl.scaling import Frequencies

from ._checks import (
    check_context,
    check_input,
    check_no_gradient,
    check_outputs,
    check_pair,
    check_table,
)
from .base import Encoding

__all__ = ["Angles", "Rotary", "TableStrategy", "Where"]

TableStrategy = Literal["hybrid", "precomputed", "on_the_fly"]

# Resolved positions: a tensor, or None for first, first + 1, ...
Where = tuple[Tensor | None, int]


class RotaryConfig(Protocol):
    """The options that every rotation has."""

    @property
    def head_dim(self) -> int: ...
    @property
    def precision(self) -> Precision: ...
    @property
    def table(self) -> TableStrategy: ...
    @property
    def table_length(self) -> int: ...


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
        """The same angles on another device."""
        moved = object.__new__(Angles)
        moved.scale, moved.precision = self.scale, self.precision
        moved.inv_freq = self.inv_freq.to(device)
        moved.table = Table(self.table.entries.to(device))
        return moved

    def rows(self, where: Where, length: int, dtype: torch.dtype) -> Tensor:
        """[T, 2, P] or [B, T, 2, P] for resolved positions; a view of the table where it can be."""
        positions, first = where
        table = self.table.entries
        if dtype == torch.float64:
            table = table[:0].double()
        if positions is not None and positions.requires_grad:
            turns = tables.angles(positions, self.inv_freq, self.precision)
            return tables.entries(turns, self.scale, dtype)
        arguments = (table, self.inv_freq, positions, first, length, self.scale, self.precision)
        if torch.compiler.is_compiling():
            rows: Tensor = tables.lookup_op(*arguments)
            return rows
        return tables.lookup(*arguments)

    def shortcut(self, where: Where, length: int) -> Rows | None:
        """Rows of the table without a copy; an index may still turn out to lie past it."""
        positions, first = where
        if positions is None:
            within = first >= 0 and first + length <= self.table.count
            return Rows(self.table, first) if within else None
        if positions.is_floating_point() or not self.table.count:
            return None
        return Rows(self.table, 0, positions)


class Rotary(Encoding):
    """A rotation of queries and keys: what RoPE and its relatives do alike.

    A subclass fills ``_impl``, ``_band`` and ``_angles`` in ``_derive`` and gives its frequencies
    in ``_frequencies``. All of it follows from the config, so none of it is saved or cast.
    """

    config: RotaryConfig  # type: ignore[assignment]  # a Config with these options

    _impl: str
    _band: Band
    _angles: Angles | None  # None where frequencies are trained or follow the length
    _moved: Angles | None = None  # the same on the device of the last call, if that is not the CPU

    _DERIVED: ClassVar[tuple[str, ...]] = ("_impl", "_band", "_angles", "_moved")

    @property
    def _follows_length(self) -> bool:
        return False

    def _derive(self) -> None:
        raise NotImplementedError

    def _frequencies(self, context_length: int | Tensor | None, where: str) -> Frequencies:
        """Frequencies in the precision of the config, with gradients where they are trained."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self._DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        with torch.inference_mode(False):  # constants must serve training later
            self._derive()

    def _rotate(
        self,
        xs: tuple[Tensor, ...],
        positions: Tensor | None,
        key_positions: Tensor | None,
        offset: int | Tensor,
        context_length: int | Tensor | None,
        outs: tuple[Tensor, ...] | None,
        inverse: bool = False,
    ) -> list[Tensor]:
        where = self._where(xs, positions, key_positions, offset)
        if context_length is not None:
            check_context(context_length, type(self).__name__, xs[0].shape[0])
        if outs is not None:
            check_outputs(outs, xs, type(self).__name__)
        band = self._band.reversed() if inverse else self._band
        if short := self._shortcut(xs, where, inverse):
            done = native.rotate(xs, outs, short, band, inverse)
            if done is not None:
                return done
        rows = self._rows(where, xs, context_length, -1 if inverse else 1)
        if outs is not None:
            check_no_gradient(rows, type(self).__name__)
        return ops.rotate(xs, rows, band, inverse, self._impl, outs)

    def _where(
        self,
        xs: tuple[Tensor, ...],
        positions: Tensor | None,
        key_positions: Tensor | None,
        offset: int | Tensor,
    ) -> list[Where]:
        """Check inputs and resolve the positions of each."""
        x, config, name = xs[0], self.config, type(self).__name__
        batch, length = check_input(x, config.head_dim, name, "x" if len(xs) == 1 else "q")
        where = [resolve(positions, offset, batch, length, x.device, name)]
        if len(xs) == 2:
            k = xs[1]
            keys = check_input(k, config.head_dim, name, "k")
            if keys != (batch, length) or k.device != x.device or k.dtype != x.dtype:
                check_pair(x, k, key_positions, name)
            if key_positions is None:
                where.append(where[0])
            else:
                where.append(resolve(key_positions, 0, *keys, k.device, name))
        if config.table == "precomputed":
            for (values, first), tensor in zip(where, xs, strict=True):
                check_table(values, first, tensor.shape[2], config.table_length, name)
        return where

    def _shortcut(
        self, xs: tuple[Tensor, ...], where: list[Where], inverse: bool
    ) -> list[Rows] | None:
        """Table rows to rotate by without tracing, gradients or copies, where that is possible."""
        angles = self._angles
        if angles is None or self._impl != "native" or not ops.is_plain(xs, gradless=True):
            return None
        if xs[0].dtype == torch.float64 or (inverse and angles.scale != 1.0):
            return None
        rows = angles.shortcut(where[0], xs[0].shape[2])
        if rows is None or len(xs) == 1:
            return None if rows is None else [rows]
        if where[1] is where[0]:
            return [rows, rows]
        key_rows = angles.shortcut(where[1], xs[1].shape[2])
        return None if key_rows is None else [rows, key_rows]

    def _rows(
        self,
        where: list[Where],
        xs: Sequence[Tensor],
        context_length: int | Tensor | None,
        power: int = 1,
    ) -> list[Tensor]:
        """cos and sin for each of ``xs``; the attention scale to the given power."""
        lengths, device, dtype = [x.shape[2] for x in xs], xs[0].device, table_dtype(xs[0])
        if self._angles is not None and (power == 1 or self._angles.scale == 1.0):
            angles = self._angles_on(device)

            def of(place: Where, length: int) -> Tensor:
                return angles.rows(place, length, dtype)
        else:
            if context_length is None and self._follows_length:
                context_length = _longest(where, lengths)
            turns = self._frequencies(context_length, type(self).__name__)
            inv_freq, scale = turns.inv_freq.to(device), turns.attention_scale**power

            def of(place: Where, length: int) -> Tensor:
                values, first = place
                if values is None:
                    values = torch.arange(first, first + length, device=device)
                turned = tables.angles(values, inv_freq, self.config.precision)
                return tables.entries(turned, scale, dtype)

        rows = of(where[0], lengths[0])
        if len(xs) == 1:
            return [rows]
        return [rows, rows if where[1] is where[0] else of(where[1], lengths[1])]

    def _angles_on(self, device: torch.device) -> Angles:
        assert self._angles is not None
        if device.type == "cpu":
            return self._angles
        if self._moved is None or self._moved.inv_freq.device != device:
            moved = self._angles.on(device)
            if not torch.compiler.is_compiling():
                self._moved = moved
            return moved
        return self._moved

    def _turn_rotated(self, k: Tensor, rows: Tensor) -> Tensor:
        """Turn what is rotated already: it is in the layout that the rotation wrote."""
        length, band = k.shape[2], self._band
        rows = rows.expand(*rows.shape[:-3], length, *rows.shape[-2:])
        written = Band(band.out_layout, band.out_layout, band.start)
        return ops.rotate([k], [rows], written, False, self._impl)[0]


def _longest(where: list[Where], lengths: list[int]) -> int | Tensor:
    """Largest position + 1: of each row where rows have their own positions, else of all."""
    known = [
        first + length
        for (values, first), length in zip(where, lengths, strict=True)
        if values is None
    ]
    longest: int | Tensor = max([1, *known])
    for values, _ in where:
        if values is not None and values.shape[-1]:
            now = values.amax(-1) + 1
            if isinstance(longest, Tensor):
                longest = torch.maximum(longest, now)
            else:
                longest = now.clamp(min=longest)
    return longest
