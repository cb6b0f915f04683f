"""Memory of a cache: tensors with one slot per token, added at the end and dropped at the front.

    | free | first[b] ... tokens of row b ... | free to append |
           ^ start, the longest row's first   ^ end            ^ capacity

Every row ends at ``end``, so a shorter one has unused slots in front. Dropping at either end only
changes a number. The tokens move to the front of the memory when as many were dropped, or to a
memory of twice the size. So a token is copied a constant number of times, however many follow it.
"""

import torch
from torch import Tensor

__all__ = ["TokenSlots", "build_empty"]

_LEAST = 16


class TokenSlots:
    """Named tensors [B, *, C, *] with one slot per token on their third axis."""

    def __init__(self, capacity: int) -> None:
        self._least = max(capacity, _LEAST)
        self.buffers: dict[str, Tensor] = {}
        self.start = self.end = 0
        self.first: list[int] = []  # the slot of each row's first token

    @property
    def length(self) -> int:
        """Slots in use: the tokens of the longest row."""
        return self.end - self.start

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [self.end - slot for slot in self.first]

    @property
    def is_ragged(self) -> bool:
        """Whether a row is shorter than the longest."""
        return any(slot != self.start for slot in self.first)

    @property
    def capacity(self) -> int:
        return next(iter(self.buffers.values())).shape[2] if self.buffers else 0

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers.values())

    def allocate(self, like: dict[str, Tensor], count: int) -> None:
        """Make memory for ``count`` tokens shaped like ``like``, unless the old memory fits."""
        old = self.buffers
        reusable = old.keys() == like.keys() and all(_fits(old[n], x) for n, x in like.items())
        if not reusable:
            # The capacity that was asked for, if the first tokens fit: the caller knows the rest.
            size = self._least if count <= self._least else 2 * count
            self.buffers = {name: build_empty(x, x.shape[0], size) for name, x in like.items()}
        self.clear()
        self.first = [0] * next(iter(like.values())).shape[0]

    def clear(self) -> None:
        """Forget all tokens; the memory stays."""
        self.start = self.end = 0
        self.first = []

    @property
    def device(self) -> torch.device:
        found = next(iter(self.buffers.values()), None)
        return torch.device("cpu") if found is None else found.device

    def view(self, name: str) -> Tensor:
        """The tokens held, [B, *, S, *], without a copy."""
        return self.buffers[name][:, :, self.start : self.end]

    def get_free(self, name: str, count: int) -> Tensor:
        """The next ``count`` free slots, which ``reserve`` made."""
        return self.buffers[name][:, :, self.end : self.end + count]

    def get_part(self, name: str, rows: slice, slot: int, count: int) -> Tensor:
        """Slots slot .. slot + count - 1 of some rows."""
        return self.buffers[name][rows, :, slot : slot + count]

    def get_last(self, name: str, row: int, count: int) -> Tensor:
        """The newest ``count`` tokens of a row, [*, count, *]."""
        return self.buffers[name][row, :, self.end - count : self.end]

    def get_first_tokens(self, name: str) -> Tensor:
        """The first token of each row, [B, *, 1, *]; of an empty row, anything."""
        tokens = self.view(name)
        if not self.is_ragged:
            return tokens[:, :, :1]
        index = (self._get_first() - self.start).clamp(max=self.length - 1)[:, :, None, None]
        return tokens.gather(2, index.expand(-1, tokens.shape[1], 1, tokens.shape[3]))

    def get_mask(self) -> Tensor | None:
        """Mask [B, S], False for unused slots in front of shorter rows; None if there are none."""
        if not self.is_ragged:
            return None
        return self._list_slots() >= self._get_first()

    def get_order(self, count: int) -> tuple[Tensor, Tensor]:
        """The order of the newest ``count`` tokens, and of all, in their rows: [S] or [B, S]."""
        order = self._list_slots() - (self._get_first() if self.is_ragged else self.start)
        return order[..., self.length - count :], order

    def reserve(self, count: int) -> None:
        """Make sure that ``count`` more tokens fit."""
        need = self.length + count
        oversized = self.start > 8 * need  # after a long prompt, for example
        if self.end + count <= self.capacity and not oversized:
            return
        size = max(self._least, 2 * need)
        reuse = self.start >= self.length and need <= self.capacity and not oversized
        for name, buffer in self.buffers.items():
            target = buffer if reuse else build_empty(buffer, buffer.shape[0], size)
            target[:, :, : self.length] = self.view(name)
            self.buffers[name] = target
        self.first = [slot - self.start for slot in self.first]
        self.start, self.end = 0, self.length

    def extend(self, counts: list[int], count: int) -> None:
        """Add ``count`` slots that were filled; in each row the last counts[b] of them are tokens.

        Padding between a row's old tokens and its new ones is removed.
        """
        lengths = self.lengths
        self.end += count
        if all(new == count for new in counts):
            return
        if not any(old and new < count for old, new in zip(lengths, counts, strict=True)):
            rows = zip(self.first, lengths, counts, strict=True)
            self.first = [slot if old else self.end - new for slot, old, new in rows]
            self.start = min(self.first)
            return
        slots = self._list_slots()
        old = (slots >= self._get_first()) & (slots < self.end - count)
        first_new = self.end - torch.tensor(counts, device=self.device).unsqueeze(-1)
        self.keep(old | (slots >= first_new))

    def keep_first(self, lengths: Tensor) -> None:
        """Keep the first ``lengths[b]`` tokens of each row."""
        slots, first = self._list_slots(), self._get_first()
        self.keep((slots >= first) & (slots < first + lengths.to(self.device).unsqueeze(-1)))

    def drop_front(self, count: int) -> None:
        """Drop the oldest ``count`` slots."""
        self.start += count
        self.first = [max(slot, self.start) for slot in self.first]

    def drop_back(self, count: int) -> None:
        """Drop the newest ``count`` slots."""
        self.end -= count
        self.first = [min(slot, self.end) for slot in self.first]
        self.start = min(self.first)

    def keep(self, wanted: Tensor) -> None:
        """Keep the tokens where ``wanted`` [B, S] is true, in their order."""
        order = wanted.to(torch.uint8).argsort(dim=-1, stable=True)[:, None, :, None]
        counts = wanted.sum(-1).tolist()
        for name in self.buffers:
            view = self.view(name)
            view.copy_(view.gather(2, order.expand(-1, view.shape[1], -1, view.shape[3])))
        self.first = [self.end - count for count in counts]
        self.start = min(self.first)

    def reorder(self, rows: Tensor) -> None:
        """Row n becomes what row ``rows[n]`` was."""
        for name, buffer in self.buffers.items():
            target = build_empty(buffer, rows.shape[0], buffer.shape[2])
            target[:, :, self.start : self.end] = self.view(name)[rows]
            self.buffers[name] = target
        self.first = [self.first[row] for row in rows.tolist()]
        self.start = min(self.first, default=self.end)

    def widen(self, name: str) -> None:
        """Convert integers to float64, because fractions came."""
        with torch.inference_mode(False):
            self.buffers[name] = self.buffers[name].double()

    def _list_slots(self) -> Tensor:
        return torch.arange(self.start, self.end, device=self.device)

    def _get_first(self) -> Tensor:
        return torch.tensor(self.first, device=self.device).unsqueeze(-1)  # [B, 1]


def build_empty(like: Tensor, rows: int, size: int) -> Tensor:
    """An uninitialized tensor [rows, *, size, *] that may be written to outside inference mode."""
    with torch.inference_mode(False):
        return like.new_empty(rows, like.shape[1], size, like.shape[3])


def _fits(buffer: Tensor, x: Tensor) -> bool:
    """Whether a buffer can hold tokens like ``x``."""
    same = [buffer.shape[n] == x.shape[n] for n in (0, 1, 3)]
    return all(same) and buffer.dtype == x.dtype and buffer.device == x.device
