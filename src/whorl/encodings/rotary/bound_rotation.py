"""A rotation that is prepared once for tensors that stay at their addresses."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whorl.kernels import native, ops

if TYPE_CHECKING:
    from .rotary import Rotary

__all__ = ["BoundRotation"]


class BoundRotation:
    """What ``bind`` of a rotation returns: call it with the offset of each step.

    Everything but the offset is checked beforehand. If the kernel cannot take the tensors as they
    are, or has no rows for the positions, a call does what ``forward`` with ``out`` does.
    """

    def __init__(self, rotary: "Rotary", q: Tensor, k: Tensor, outs: tuple[Tensor, Tensor]) -> None:
        self._rotary, self._xs, self._outs, self._length = rotary, (q, k), outs, q.shape[2]
        self._prepared: native.PreparedRotation | None = None
        self._inference = any(out.is_inference() for out in outs)
        self._prepare()

    def __call__(self, offset: int = 0) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys of positions offset, offset + 1, ...; returns the results."""
        prepared, outs = self._prepared, self._outs
        if (
            prepared is not None
            and type(offset) is int
            and prepared.table.has_rows(offset, self._length)
            and prepared.is_valid()
            and (not self._inference or torch.is_inference_mode_enabled())
            and ops.is_plain(self._xs, gradless=True)
        ):
            prepared(offset)
        else:
            self._rotary(*self._xs, offset=offset, out=outs)
            if prepared is not None and not prepared.is_valid():
                self._prepare()  # something was resized
        return outs

    def _prepare(self) -> None:
        self._prepared = None
        rotary = self._rotary
        table = rotary._rows.shared_table
        if table is None or rotary._impl != "native" or not table.has_rows(0, self._length):
            return
        if self._xs[0].dtype != torch.float64 and ops.is_plain(self._xs, gradless=True):
            channels = rotary._channels
            self._prepared = native.prepare_rotation(self._xs, self._outs, table, channels)
