"""Rotation of a stream past its table, with the rows of many positions built at once.

If the kernel cannot build the rows past a table itself, or if frequencies follow the context
length, building the rows of one decode step takes as long as four rotations. Here the rows of many
positions are built in one go, all at the same context length. They are the same numbers.
"""

import torch
from torch import Tensor

from whorl.kernels import ops

from .rotary import Rotary

__all__ = ["LookaheadRotation"]

_ROWS = 128


class LookaheadRotation:
    """Rotates tensors at consecutive positions past the table of ``rotary``."""

    def __init__(self, rotary: Rotary) -> None:
        self._rotary = rotary
        table = rotary._rows.shared_table  # None if frequencies follow the context length
        self._table_length = 0 if table is None else table.count
        self._first, self._rows = 0, torch.empty(0)
        self._context_length: int | None = None

    @classmethod
    def create(cls, rotary: Rotary) -> "LookaheadRotation | None":
        """A rotation with lookahead; None if it is not possible, or if the kernel does as well.

        Possible for rotations on one axis, the same for queries and keys, that take any position.
        """
        one = rotary._axes is None and rotary._growth is None and rotary.position_axes == 1
        if not one or rotary._is_trained or rotary.config.table == "precomputed":
            return None
        table = rotary._rows.shared_table
        if table is not None and table.steps is not None:
            return None
        return cls(rotary)

    def rotate(
        self,
        xs: list[Tensor],
        first: int,
        outs: list[Tensor],
        context_length: int | Tensor | None,
    ) -> bool:
        """Rotate tensors at positions first, first + 1, ... into ``outs``.

        False, with nothing written, if the table has the rows, or too many rows are needed, or rows
        of the batch differ in their context length.
        """
        count = xs[0].shape[2]
        past = first + count > self._table_length and 0 < count <= _ROWS // 4
        if not past or xs[0].dtype == torch.float64 or isinstance(context_length, Tensor):
            return False
        start = first - self._first
        missing = start < 0 or start + count > len(self._rows)
        missing = missing or context_length != self._context_length
        if missing or self._rows.device != xs[0].device:
            positions = torch.arange(first, first + _ROWS, device=xs[0].device)
            cos_sin = self._rotary.tables(positions, context_length=context_length)
            self._rows = torch.stack(cos_sin, dim=1)  # [N, 2, P]
            self._first, self._context_length, start = first, context_length, 0
        rows, rotary = self._rows[start : start + count], self._rotary
        ops.rotate(xs, [rows] * len(xs), rotary._channels, False, rotary._impl, outs)
        return True
