"""The reference positions of rotated keys in a cache, for encodings with a span such as XPos.

They move with the queries, block by block and row by row, and the keys held are rescaled then: by
powers of two, exactly. Moving back a little is exact too; from further away keys have vanished and
would be missing, which is refused.
"""

import torch
from torch import Tensor

from whorl.encodings import Encoding

from .new_tokens import NewTokens
from .rotation import get_per_row

__all__ = ["CacheReferences"]


class CacheReferences:
    """The reference of each row, and the largest that it ever had."""

    def __init__(self, rotation: Encoding, batch: int) -> None:
        self._rotation, self._name = rotation, type(rotation).__name__
        self.current, self._largest = [0] * batch, [0] * batch

    def reorder(self, rows: list[int]) -> None:
        """Row n becomes what row ``rows[n]`` was."""
        self.current = [self.current[n] for n in rows]
        self._largest = [self._largest[n] for n in rows]

    def plan(self, tokens: NewTokens, lengths: list[int]) -> list[int]:
        """The references for new tokens; lengths: tokens that each row holds already."""
        found, dtype = list(self.current), tokens.k.dtype
        rows = [row for row, count in enumerate(tokens.counts) if count]
        if not rows:
            return found
        ends = torch.tensor([tokens.find_ends(row) for row in rows], dtype=torch.float64)
        near = torch.as_tensor(self._rotation.reference_near(ends)).tolist()
        for row, reference, (low, high) in zip(rows, near, ends.tolist(), strict=True):
            found[row] = reference
            self._check_range(low, high, dtype)
            # Further back, more than a rounding of what was lost to underflow is missing.
            span, largest = self._rotation.span(dtype), self._largest[row]
            if lengths[row] and span is not None and largest - reference > span:
                raise ValueError(
                    f"KVCache.update: positions must not go back by more than {span} with"
                    f" {self._name} in {dtype}, because factors of the keys held have vanished;"
                    f" got {reference} after {largest}. reset() and feed the prompt again."
                )
        return found

    def move(self, new: list[int], keys: Tensor, lengths: list[int]) -> None:
        """Rescale the rotated keys held, [B, G, S, D], to new references, in place."""
        if new != self.current and keys.shape[2]:
            before, after = (get_per_row(each, keys.device) for each in (self.current, new))
            keys.copy_(self._rotation.rescale(keys, old=before, new=after))
        rows = zip(self._largest, new, lengths, strict=True)
        self._largest = [max(most, now) if length else now for most, now, length in rows]
        self.current = new

    def _check_range(self, low: float, high: float, dtype: torch.dtype) -> None:
        longest = self._rotation.call_span(dtype)
        if longest is not None and high - low > longest:
            raise ValueError(
                f"KVCache.update: positions of one call must lie within {longest} of each other"
                f" with {self._name} in {dtype}, because factors grow with the distance;"
                f" got {low:g} to {high:g}. Feed the prompt in pieces."
            )
