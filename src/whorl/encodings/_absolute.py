"""What encodings that add a row for each position to the token embeddings share.

    embed(x)[b, t] = x[b, t] + row(position of token t in sequence b)

The sum is formed in the wider of the two dtypes and rounded once to that of x.
"""

from typing import Protocol

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl.positions import resolve

from .base import Encoding
from .rotary.call import ResolvedPositions

__all__ = ["Absolute"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class AbsoluteConfig(Protocol):
    """The option that every one of them has."""

    @property
    def dim(self) -> int: ...


class Absolute(Encoding):
    """An encoding that adds rows to embeddings; a subclass gives the rows in ``_get_rows``."""

    config: AbsoluteConfig  # type: ignore[assignment]  # a Config with this option

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        """Token embeddings [B, T, dim] plus the row of each position; same shape and dtype.

        positions: [T] or [B, T]; 0 .. T - 1 by default. ``offset`` (an int, or one per row) is
        added.
        """
        name = type(self).__name__
        batch, length = _check_embeddings(x, self.config.dim, name)
        where = resolve(positions, offset, batch, length, x.device, name)
        return (x + self._get_rows(where, length, x)).to(x.dtype)

    def _get_rows(self, where: ResolvedPositions, length: int, x: Tensor) -> Tensor:
        """[T, dim] or [B, T, dim] on the device of ``x``, float32 or wider unless trained."""
        raise NotImplementedError


def _check_embeddings(x: Tensor, dim: int, where: str) -> tuple[int, int]:
    """Batch size and length of ``x``; refuse all but floating-point [B, T, dim]."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{where}: x must be a tensor [B, T, E]; got {type(x).__name__}.")
    if x.dtype not in _DTYPES:
        raise TypeError(
            f"{where}: x must be float32, float64, bfloat16 or float16, because rows of fractions"
            f" are added to it; got {x.dtype}. Pass token embeddings, not token ids."
        )
    if x.dim() != 3 or x.shape[2] != dim:
        raise ValueError(
            f"{where}: x must be token embeddings [B, T, E] with E = dim = {dim};"
            f" got {list(x.shape)}. Give a single sequence a batch axis with x.unsqueeze(0)."
        )
    check_storage(x, where, "x")
    return x.shape[0], x.shape[1]
