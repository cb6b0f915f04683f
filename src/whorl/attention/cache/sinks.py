"""The first tokens of each row, which a window never drops: unrotated copies that can be moved.

Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks,
https://arxiv.org/abs/2309.17453. There the whole cache is rotated again for every token; scores
depend on differences only, so here the other keys keep their rotation and the sinks move to them.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .new_tokens import NewTokens, convert_positions
from .rotation import CacheRotation
from .slots import TokenSlots, build_empty

__all__ = ["KeyState", "SinkTokens"]


class KeyState(NamedTuple):
    """How the keys of a cache are rotated at the moment.

    same_rows: every row has the same positions. first_sink: position of the first sink when sinks
    follow the window, if it is known without reading positions. context: the length whose
    frequencies the keys of each row have. references: of each row, where the rotation has them.
    """

    same_rows: bool
    first_sink: int | None
    context: list[int]
    references: list[int]


class SinkTokens:
    """The first ``count`` tokens of each row.

    follow_window: they are placed just before the oldest key of the window, not where they were.
    """

    def __init__(self, count: int, follow_window: bool, rotation: CacheRotation) -> None:
        self.count, self._follow_window, self._rotation = count, follow_window, rotation
        self._tensors: dict[str, Tensor] = {}  # k unrotated, v and positions, [B, *, count, *]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def allocate(self, like: dict[str, Tensor]) -> None:
        """Make memory for tokens of the shapes and dtypes of ``like``."""
        if self.count:
            held = {name: like[name] for name in ("k", "v", "positions")}
            self._tensors = {n: build_empty(x, x.shape[0], self.count) for n, x in held.items()}

    def reorder(self, rows: Tensor) -> None:
        """Row n becomes what row ``rows[n]`` was."""
        for name, old in self._tensors.items():
            self._tensors[name] = build_empty(old, rows.shape[0], self.count)
            self._tensors[name].copy_(old[rows])

    def copy(self, tokens: NewTokens, lengths: list[int]) -> None:
        """Copy those of the new tokens that are among the first of their row."""
        T = tokens.k.shape[2]
        if self.count and tokens.positions.is_floating_point():
            with torch.inference_mode(False):
                self._tensors["positions"] = self._tensors["positions"].double()
        sources = (("k", tokens.k), ("v", tokens.v), ("positions", tokens.positions))
        for row, length in enumerate(lengths if self.count else []):
            new = tokens.counts[row]
            count = min(self.count - length, new)
            if count > 0:
                first = slice(T - new, T - new + count)
                for name, x in sources:
                    self._tensors[name][row, :, length : length + count] = x[row, :, first]

    def write(self, slots: TokenSlots, state: KeyState) -> None:
        """Write the sinks of each row in front of its other tokens."""
        if not self.count:
            return
        if not slots.is_ragged:
            return self._write_rows(
                slots, slice(None), slots.start, min(self.count, slots.length), state
            )
        for row, slot in enumerate(slots.first):
            count = min(self.count, slots.end - slot)
            self._write_rows(slots, slice(row, row + 1), slot, count, state)

    def _write_rows(
        self, slots: TokenSlots, rows: slice, slot: int, count: int, state: KeyState
    ) -> None:
        kind, after = self._rotation.kind, slot + self.count
        raw, v, positions = (self._tensors[n][rows, :, :count] for n in ("k", "v", "positions"))
        moved = self._follow_window and after < slots.end
        if moved:
            oldest = slots.get_part("positions", rows, after, 1)
            positions = oldest + torch.arange(-count, 0, device=positions.device)[:, None]
        k = slots.get_part("k", rows, slot, count)
        slots.get_part("v", rows, slot, count).copy_(v)
        slots.get_part("positions", rows, slot, count).copy_(positions)
        if kind == "stepped":
            slots.get_part("raw", rows, slot, count).copy_(raw)
        if kind in ("once", "stepped") and count:
            where: int | Tensor = convert_positions(positions, state.same_rows)
            if moved and state.first_sink is not None:
                where = state.first_sink  # the same, as the number it is
            context, references = state.context[rows], state.references[rows]
            self._rotation.rotate_keys(raw, where, context, references, out=k)
        else:
            k.copy_(raw)
