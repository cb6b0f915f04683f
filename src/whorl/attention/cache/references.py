"""The references of XPos in a cache: they move with the queries, block by block, row by row.

Keys carry zeta_i^(-(p - r)/s), so what is held is rescaled when r moves: by powers of two, exactly.
Going back a little is as exact; far back, keys that had vanished would be missing: refused.
"""

import torch
from torch import Tensor

from whorl.encodings import XPos

from .rotation import per_row
from .tokens import Tokens

__all__ = ["References"]


class References:
    """The reference of each row, and the furthest that it ever was."""

    def __init__(self, xpos: XPos, batch: int) -> None:
        self._xpos = xpos
        self.now, self._peaks = [0] * batch, [0] * batch

    def reorder(self, rows: list[int]) -> None:
        self.now, self._peaks = [self.now[n] for n in rows], [self._peaks[n] for n in rows]

    def ahead(self, tokens: Tokens, lengths: list[int]) -> list[int]:
        """The references for new tokens; ``lengths`` says what rows hold already."""
        found, dtype = list(self.now), tokens.k.dtype
        new = [row for row, count in enumerate(tokens.counts) if count]
        if not new:
            return found
        ends = torch.tensor([tokens.ends(row) for row in new], dtype=torch.float64)
        near = torch.as_tensor(self._xpos.reference_near(ends)).tolist()
        for row, at, (low, high) in zip(new, near, ends.tolist(), strict=True):
            found[row] = at
            self._check_between(low, high, dtype)
            # Taken back further, more than a rounding of what was lost to underflow is missing.
            if lengths[row] and self._peaks[row] - at > self._xpos.span(dtype):
                raise ValueError(
                    f"KVCache.update: XPos keys cannot go back from position {self._peaks[row]} to"
                    f" {at}, because far ones have vanished in {dtype}; reset() and feed the prompt"
                    " again."
                )
        return found

    def move(self, new: list[int], held: Tensor, lengths: list[int]) -> None:
        """Take rotated keys, [B, G, S, D], to new references, in place."""
        if new != self.now and held.shape[2]:
            old, now = (per_row(each, held.device) for each in (self.now, new))
            held.copy_(self._xpos.rescale(held, old=old, new=now))
        peaks = zip(self._peaks, new, lengths, strict=True)
        self._peaks = [max(peak, at) if length else at for peak, at, length in peaks]
        self.now = new

    def _check_between(self, low: float, high: float, dtype: torch.dtype) -> None:
        longest = int(2 * (self._xpos.span(dtype) - self._xpos.config.scale_base))
        if high - low > longest:
            raise ValueError(
                f"KVCache.update: XPos in {dtype} holds factors over about {longest} positions at a"
                f" time; got {low:g} to {high:g}. Feed the prompt in pieces."
            )
