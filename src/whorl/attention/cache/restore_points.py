"""How far back each row of a cache can be cropped, and which position it continues at then.

A point is recorded before each call that adds tokens to a row, so that cropping these tokens undoes
the call. Tokens that a window dropped do not come back: a row cannot be cropped to a length from
before that, because the window of the next query would have a gap.
"""

from typing import NamedTuple

from torch import Tensor

__all__ = ["RestorePoint", "RestorePoints"]


class RestorePoint(NamedTuple):
    """A row at an earlier time: its number of tokens, and the position of the next token."""

    length: int = 0
    next_position: int = 0


class RestorePoints:
    """Two points of each row: before its last call, and when a window last dropped tokens of it."""

    def __init__(self, batch: int) -> None:
        self._last, self._earliest = [RestorePoint()] * batch, [RestorePoint()] * batch

    def record(
        self, old: list[int], now: list[int], next_positions: list[int], counts: list[int]
    ) -> None:
        """Record all rows before a call.

        old, now: lengths before and after old tokens were dropped. counts: new tokens of each row.
        """
        for row, (before, length) in enumerate(zip(old, now, strict=True)):
            point = RestorePoint(length, next_positions[row])
            if length < before:
                self._earliest[row] = point
            if length < before or counts[row]:
                self._last[row] = point

    def find(self, row: int, length: int) -> RestorePoint:
        """The latest point with at most ``length`` tokens; what came after it is still held."""
        last, earliest = self._last[row], self._earliest[row]
        if length < earliest.length:
            raise ValueError(
                f"KVCache.crop: length must leave row {row} at least {earliest.length} tokens,"
                " because the window has dropped tokens before them that the next query would see;"
                f" got {length}. Crop no more than the last call added, or reset() and feed the"
                " text again."
            )
        return last if length >= last.length else earliest

    def crop(self, row: int, length: int) -> None:
        """Forget the points of a row after its first ``length`` tokens."""
        if length < self._last[row].length:
            self._last[row] = self._earliest[row]

    def evict(self, dropped: Tensor, lengths: list[int]) -> None:
        """Subtract evicted tokens, [B, S] with each row at the end, from the points' lengths."""
        totals = dropped.cumsum(-1).tolist()
        for row, (length, sums) in enumerate(zip(lengths, totals, strict=True)):
            first = len(sums) - length
            for points in (self._last, self._earliest):
                point = points[row]
                stop = first + min(point.length, length)
                if point.length and stop:
                    before = sums[first - 1] if first else 0
                    remaining = point.length - (sums[stop - 1] - before)
                    points[row] = RestorePoint(remaining, point.next_position)

    def reorder(self, rows: list[int]) -> None:
        """Row n becomes what row ``rows[n]`` was."""
        self._last, self._earliest = ([p[n] for n in rows] for p in (self._last, self._earliest))
