"""How far back the rows of a cache can be taken, and where they then go on.

A row is marked before each call that gives it tokens, so that cropping those undoes the call. What
a window has dropped does not come back: a row cannot be taken back to before that, because the next
query would see a window with a hole in it.
"""

from typing import NamedTuple

from torch import Tensor

__all__ = ["Mark", "Marks"]


class Mark(NamedTuple):
    """A row at some time: its tokens, and the position that followed on."""

    length: int = 0
    next: int = 0


class Marks:
    """Of each row, how it was before its last call, and when a window last dropped some of it."""

    def __init__(self, batch: int) -> None:
        self._last, self._least = [Mark()] * batch, [Mark()] * batch

    def set(self, old: list[int], now: list[int], upto: list[int], counts: list[int]) -> None:
        """Before a call: lengths before and after old tokens were dropped, next positions, new."""
        for row, (before, length) in enumerate(zip(old, now, strict=True)):
            here = Mark(length, upto[row])
            if length < before:
                self._least[row] = here
            if length < before or counts[row]:
                self._last[row] = here

    def back(self, row: int, length: int) -> Mark:
        """The latest mark at or before ``length`` tokens: what came after it is still held."""
        last, least = self._last[row], self._least[row]
        if length < least.length:
            raise ValueError(
                f"KVCache.crop: row {row} can go back to {least.length} tokens, not to {length},"
                " because the window has dropped tokens that the next query would see; take back"
                " no more than the last call added, or reset() and feed the text again."
            )
        return last if length >= last.length else least

    def crop(self, row: int, length: int) -> None:
        """Tokens after the first ``length`` are gone."""
        if length < self._last[row].length:
            self._last[row] = self._least[row]

    def evict(self, gone: Tensor, lengths: list[int]) -> None:
        """Tokens are gone, [B, S] with each row at the end; ``lengths`` were held."""
        at_start = gone.cumsum(-1).tolist()
        for row, (length, sums) in enumerate(zip(lengths, at_start, strict=True)):
            begun = len(sums) - length
            for marks in (self._last, self._least):
                mark = marks[row]
                upto = begun + min(mark.length, length)
                if mark.length and upto:
                    before = sums[begun - 1] if begun else 0
                    marks[row] = Mark(mark.length - (sums[upto - 1] - before), mark.next)

    def reorder(self, rows: list[int]) -> None:
        self._last, self._least = ([m[n] for n in rows] for m in (self._last, self._least))
