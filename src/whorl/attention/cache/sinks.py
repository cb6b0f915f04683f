"""The first tokens of a stream, kept for good: unrotated copies, placed before the others afresh.

Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks,
https://arxiv.org/abs/2309.17453. There the whole cache is rotated anew for every token; scores
depend on differences only, so here the others keep their rotation and the sinks move to them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .rotation import Turning
from .slots import Slots, empty
from .tokens import Tokens, public

__all__ = ["Now", "Sinks"]


class Now(NamedTuple):
    """What holds of a cache's keys at a call.

    together: every row has the same positions. first: the position of the first sink that closes
    up to the window, where it is known without looking. tuned, refers: of each row, the length
    whose frequencies keys have, and XPos's reference.
    """

    together: bool
    first: int | None
    tuned: list[int]
    refers: list[int]


class Sinks:
    """The first ``count`` tokens of each row; ``closing``: they follow the window."""

    def __init__(self, count: int, closing: bool, turning: Turning) -> None:
        self.count, self._closing, self._turning = count, closing, turning
        self._held: dict[str, Tensor] = {}  # k unrotated, v and positions, [B, *, count, *]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._held.values())

    def open(self, like: dict[str, Tensor]) -> None:
        """Make memory for tokens such as ``like``."""
        if self.count:
            kept = {name: like[name] for name in ("k", "v", "positions")}
            self._held = {name: empty(x, x.shape[0], self.count) for name, x in kept.items()}

    def reorder(self, rows: Tensor) -> None:
        """Row n becomes what row ``rows[n]`` was."""
        for name, old in self._held.items():
            self._held[name] = empty(old, rows.shape[0], self.count)
            self._held[name].copy_(old[rows])

    def capture(self, tokens: Tokens, lengths: list[int]) -> None:
        """Copy those of the new tokens that are among the first of their row."""
        length = tokens.k.shape[2]
        if self.count and tokens.at.is_floating_point():
            with torch.inference_mode(False):
                self._held["positions"] = self._held["positions"].double()
        for row, have in enumerate(lengths if self.count else []):
            new = tokens.counts[row]
            take = min(self.count - have, new)
            if take > 0:
                those = slice(length - new, length - new + take)
                for name, x in (("k", tokens.k), ("v", tokens.v), ("positions", tokens.at)):
                    self._held[name][row, :, have : have + take] = x[row, :, those]

    def place(self, slots: Slots, now: Now) -> None:
        """Write each row's first tokens in front of its others."""
        if not self.count:
            return
        if not slots.ragged:
            return self._place(slots, slice(None), slots.start, min(self.count, slots.held), now)
        for row, slot in enumerate(slots.first):
            count = min(self.count, slots.end - slot)
            self._place(slots, slice(row, row + 1), slot, count, now)

    def _place(self, slots: Slots, rows: slice, slot: int, count: int, now: Now) -> None:
        kind, after = self._turning.kind, slot + self.count
        raw, v, at = (self._held[name][rows, :, :count] for name in ("k", "v", "positions"))
        closed_up = self._closing and after < slots.end
        if closed_up:
            oldest = slots.part("positions", rows, after, 1)
            at = oldest + torch.arange(-count, 0, device=at.device)[:, None]
        k = slots.part("k", rows, slot, count)
        slots.part("v", rows, slot, count).copy_(v)
        slots.part("positions", rows, slot, count).copy_(at)
        if kind == "stepped":
            slots.part("raw", rows, slot, count).copy_(raw)
        if kind in ("once", "stepped") and count:
            where: int | Tensor = public(at, now.together)
            if closed_up and now.first is not None:
                where = now.first  # the same, as the number it is
            self._turning.keys(raw, where, now.tuned[rows], now.refers[rows], out=k)
        else:
            k.copy_(raw)
