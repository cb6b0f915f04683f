"""Rows of cos and sin for the next positions of a stream: its steps stay fast past the table.

Where the kernel does not build the rows past a table itself, or frequencies follow the length,
those of each call take as long as four calls. Here the rows of many positions, at one length, are
built at once. They are the same numbers.
"""

import torch
from torch import Tensor

from whorl.kernels import ops

from .rotary import Rotary

__all__ = ["LookaheadRotation"]

_ROWS = 128


class LookaheadRotation:
    """Rotates at consecutive positions past the table of ``rotary``; its rows serve some calls."""

    def __init__(self, rotary: Rotary) -> None:
        self._rotary = rotary
        angles = rotary._angles  # None where frequencies follow the length: no table serves them
        self._known = 0 if angles is None else angles[0].table.count
        self._first, self._rows = 0, torch.empty(0)
        self._context: int | None = None

    @classmethod
    def of(cls, rotary: Rotary) -> "LookaheadRotation | None":
        """For a rotation by one number, alike for queries and keys, that takes any position.

        None also where the kernel builds its rows.
        """
        one = rotary._axes is None and rotary._growth is None and rotary.position_axes == 1
        if not one or rotary._trained or rotary.config.table == "precomputed":
            return None
        if rotary._angles is not None and rotary._angles[0].table.steps is not None:
            return None
        return cls(rotary)

    def rotate(
        self, xs: list[Tensor], first: int, outs: list[Tensor], context: int | Tensor | None
    ) -> bool:
        """Rotate tensors at positions first, first + 1 ... into ``outs``; False if it may not."""
        count = xs[0].shape[2]
        past = first + count > self._known and 0 < count <= _ROWS // 4
        if not past or xs[0].dtype == torch.float64 or isinstance(context, Tensor):
            return False
        at = first - self._first
        missing = at < 0 or at + count > len(self._rows) or context != self._context
        if missing or self._rows.device != xs[0].device:
            places = torch.arange(first, first + _ROWS, device=xs[0].device)
            cos_sin = self._rotary.tables(places, context_length=context)
            self._rows = torch.stack(cos_sin, dim=1)  # [N, 2, P]
            self._first, self._context, at = first, context, 0
        rows, rotary = self._rows[at : at + count], self._rotary
        ops.rotate(xs, [rows] * len(xs), rotary._band, False, rotary._impl, outs)
        return True
