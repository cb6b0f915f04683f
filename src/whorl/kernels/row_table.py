"""A table of rows of cos and sin as the C library reads it, and the rows that a call needs."""

import ctypes
import struct
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from whorl._support.tensors import POSITION_LIMIT

__all__ = ["Table", "TableRows"]

_ROW_SOURCE = struct.Struct("4qd").pack
# Rows past a table that torch builds at once, and the table holds for the next calls.
_RECENT_ROWS = 128


class Table:
    """Rows of cos and sin, [N, 2, P] or [B, N, 2, P]; float64 for float64 tensors, else float32.

    Row n of a table without B belongs to position n. From ``steps``, ``growth`` and ``scale`` the
    kernel builds the rows of all other positions itself; without steps, ``build`` makes the rows
    first .. first + length - 1, if it is there.
    axes: int64 [P], the axis of the positions that each pair rotates by, if there are several.
    """

    __slots__ = (
        "_recent",
        "_source",
        "axes",
        "batch",
        "batch_stride",
        "build",
        "count",
        "entries",
        "growth",
        "pairs",
        "pointer",
        "scale",
        "source_pointer",
        "steps",
    )

    def __init__(
        self,
        entries: Tensor,
        steps: Tensor | None = None,
        scale: float = 1.0,
        growth: Tensor | None = None,
        axes: Tensor | None = None,
        build: Callable[[int, int], Tensor] | None = None,
    ) -> None:
        self.entries = entries.contiguous()
        *_, self.count, _, self.pairs = entries.shape
        self.batch = entries.shape[0] if entries.dim() == 4 else 1
        self.batch_stride = 2 * self.pairs * self.count if self.batch != 1 else 0
        self.pointer = self.entries.data_ptr()
        self.steps, self.scale, self.growth, self.axes = steps, scale, growth, axes
        self.build = build
        self._recent: tuple[Table, int] | None = None
        self.source_pointer = 0  # of the whorl_row_source
        if steps is not None or axes is not None:
            pointers = [0 if t is None else t.data_ptr() for t in (steps, growth, axes)]
            count = 0 if axes is None else max(axes.tolist(), default=0) + 1
            self._source = ctypes.create_string_buffer(_ROW_SOURCE(*pointers, count, scale))
            self.source_pointer = ctypes.addressof(self._source)

    def has_rows(self, first: int, length: int) -> bool:
        """Whether there are rows first .. first + length - 1, or the kernel builds them."""
        if self.steps is not None:
            return -POSITION_LIMIT < first < POSITION_LIMIT
        return 0 <= first <= self.count - length

    def find_rows(self, first: int, length: int) -> "tuple[Table, int] | None":
        """A table that has these rows, and the index of the first; None if a call must build them.

        The rows of a few positions are stored for the next call, which may be that of another
        layer. If a call continues the last one, the rows of its successors are built with its own.
        """
        if self.has_rows(first, length):
            return self, first
        if self.build is None or length > _RECENT_ROWS // 4:
            return None
        if not -POSITION_LIMIT < first < POSITION_LIMIT:
            return None
        count = length
        if (recent := self._recent) is not None:  # read once: another thread may replace it
            table, index = recent[0], first - recent[1]
            if table.has_rows(index, length):
                return table, index
            count = _RECENT_ROWS if index <= table.count <= index + length else length
        with torch.inference_mode(False):  # they must serve training later
            table = Table(self.build(first, count))
        self._recent = table, first
        return table, 0


class TableRows(NamedTuple):
    """The rows of a table for the tokens of a tensor: first + t, or first + row_index[t].

    row_index: int64 [T] or [B, T]; [n, T] or [n, B, T] if the table has axes.
    """

    table: Table
    first: int = 0
    row_index: Tensor | None = None
