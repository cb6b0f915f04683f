"""Rows of cos and sin for the next positions of a stream: its steps stay fast past the table.

A rotation reads its table, and past it, or where frequencies follow the length, builds the rows of
each call, which takes as long as four calls. Here those of many positions, at one length, are built
at once. They are the same numbers.
"""

import torch
from torch import Tensor

from whorl.encodings import RoPE
from whorl.kernels import ops
from whorl.kernels.native import Band

__all__ = ["Ahead"]

_ROWS = 128


class Ahead:
    """Rotates at consecutive positions past the table of ``rotary``; its rows serve some calls."""

    def __init__(self, rotary: RoPE) -> None:
        config = rotary.config
        self._rotary = rotary
        follows = config.scaling is not None and config.scaling.follows_length
        self._known = config.table_length if config.table == "hybrid" and not follows else 0
        self._band = Band(config.layout, config.out_layout or config.layout, config.rotary_start)
        self._impl = ops.chosen_impl(config.impl, type(rotary).__name__)
        self._first, self._rows = 0, torch.empty(0)
        self._context: int | None = None

    @classmethod
    def of(cls, rotary: object) -> "Ahead | None":
        """For RoPE whose frequencies are fixed and which takes any position."""
        if type(rotary) is not RoPE or rotary.config.frequencies != "fixed":
            return None
        return None if rotary.config.table == "precomputed" else cls(rotary)

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
        rows = self._rows[at : at + count]
        ops.rotate(xs, [rows] * len(xs), self._band, False, self._impl, outs)
        return True
