"""Position vectors as DeBERTa projects them, and the memory that lets calls share them."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ProjectedVectors", "ProjectionMemory"]


class ProjectedVectors(NamedTuple):
    """K_r and Q_r of buckets first .. end - 1, [H, R, D]; None for a term that is left out."""

    first: int
    end: int
    keys: Tensor | None
    queries: Tensor | None

    def take_rows(self, first: int, end: int) -> "ProjectedVectors":
        """Those of fewer buckets."""
        keys, queries = (
            None if x is None else x[:, first - self.first : end - self.first]
            for x in (self.keys, self.queries)
        )
        return ProjectedVectors(first, end, keys, queries)

    def find_rows(self, buckets: Tensor) -> Tensor:
        """Their rows; a bucket that is not there is of a pair that will be masked."""
        return (buckets - self.first).clamp(0, self.end - self.first - 1)


class ProjectionMemory:
    """Projected vectors, with copies of what they were made from.

    Copies, because a write through ``.data`` leaves no other trace.
    """

    def __init__(self) -> None:
        self._entry: tuple[torch.dtype, list[Tensor], ProjectedVectors] | None = None

    def get(self, sources: list[Tensor], dtype: torch.dtype) -> ProjectedVectors | None:
        """What was made from tensors equal to ``sources``, or None."""
        entry = self._entry  # once: another thread may put in its own
        if entry is None or entry[0] != dtype or len(entry[1]) != len(sources):
            return None
        pairs = zip(entry[1], sources, strict=True)
        same = all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)
        return entry[2] if same else None

    def put(self, sources: list[Tensor], dtype: torch.dtype, made: ProjectedVectors) -> None:
        self._entry = (dtype, [x.detach().clone() for x in sources], made)
