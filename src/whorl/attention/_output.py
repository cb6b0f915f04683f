"""The result of attention that is computed in blocks of queries."""

import torch
from torch import Tensor

from whorl.kernels import native, ops

__all__ = ["Output", "build_zeros"]


def build_zeros(q: Tensor, *others: Tensor, width: int) -> Tensor:
    """Zeros [B, H, T, width] for queries that see no key, in the graph of all tensors given.

    Their gradients are zeros too: each takes part with none of its numbers, so NaN stays out.
    """
    parts = [x.unsqueeze(-1)[..., :0].sum().to(q.dtype) for x in (q, *others)]
    return q.new_zeros((*q.shape[:3], width)) + torch.stack(parts).sum()


class Output:
    """[B, H, T, Dv] in the dtype of q, from pieces [B, H, ., Dv] that are appended in order.

    Pieces that need no gradient are copied to their place and freed: the next ones use the same
    memory while it is in the cache of the processor. From the first piece that needs a gradient on,
    pieces are kept and joined at the end.
    """

    def __init__(self, q: Tensor, v: Tensor, *others: Tensor) -> None:
        self._like, self._shape = q, (*q.shape[:3], v.shape[3])
        self._others = (v, *others)  # in the graph of the result, even if it has no tokens
        self._out: Tensor | None = None
        self._pieces: list[Tensor] = []
        self._length = 0

    def append(self, piece: Tensor) -> None:
        """Add the result of the next queries."""
        first, self._length = self._length, self._length + piece.shape[2]
        if self._pieces or piece.requires_grad:
            if self._out is not None:
                self._pieces.append(self._out[:, :, :first])
                self._out = None
            self._pieces.append(piece)
            return
        if self._out is None:  # not before: a call with gradients never needs it
            # Of the piece, not of q: under vmap over v alone, only the piece has its axis.
            out = piece.new_empty(self._shape, dtype=self._like.dtype)
            self._out = native.use_huge_pages(out) if ops.is_plain((out,)) else out
        self._out[:, :, first : self._length] = piece

    def join(self) -> Tensor:
        """The result of all queries, none of which may be missing."""
        assert self._length == self._shape[2]
        if self._pieces:
            return torch.cat(self._pieces, 2)
        if self._out is None:
            return build_zeros(self._like, *self._others, width=self._shape[3])
        return self._out
