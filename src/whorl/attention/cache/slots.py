"""Memory of a cache: tensors that hold one token per slot, appended at the end, dropped in front.

    | free | first[b] ... tokens of row b ... | room to append |
           ^ start, the longest row's first   ^ end            ^ capacity

Every row ends at ``end``, so a shorter one has unused slots in front. Dropping from either end
moves a number; what is held moves to the front of the memory once as much was dropped, or into
twice the room. So a token is copied a constant number of times, however many follow it.
"""

import torch
from torch import Tensor

__all__ = ["Slots", "empty"]

_FEWEST = 16


class Slots:
    """Named tensors [B, *, C, *] with one slot per token on their third axis."""

    def __init__(self, capacity: int) -> None:
        self._fewest = max(capacity, _FEWEST)
        self.buffers: dict[str, Tensor] = {}
        self.start = self.end = 0
        self.first: list[int] = []  # the slot of each row's first token

    @property
    def held(self) -> int:
        """Slots in use, which is the length of the longest row."""
        return self.end - self.start

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [self.end - slot for slot in self.first]

    @property
    def ragged(self) -> bool:
        """Whether a row is shorter than the longest."""
        return any(slot != self.start for slot in self.first)

    @property
    def capacity(self) -> int:
        return next(iter(self.buffers.values())).shape[2] if self.buffers else 0

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers.values())

    def open(self, like: dict[str, Tensor], count: int) -> None:
        """Make memory for tokens such as ``like``, unless that of before fits."""
        old = self.buffers
        kept = old.keys() == like.keys() and all(_alike(old[n], x) for n, x in like.items())
        if not kept:
            # As many as were asked for, if the first tokens fit: the caller knows what will come.
            size = self._fewest if count <= self._fewest else 2 * count
            self.buffers = {name: empty(x, x.shape[0], size) for name, x in like.items()}
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
        """What is held, [B, *, S, *], without a copy."""
        return self.buffers[name][:, :, self.start : self.end]

    def room(self, name: str, count: int) -> Tensor:
        """The next ``count`` slots, for which there was made room."""
        return self.buffers[name][:, :, self.end : self.end + count]

    def part(self, name: str, rows: slice, slot: int, count: int) -> Tensor:
        """Slots slot .. slot + count - 1 of some rows."""
        return self.buffers[name][rows, :, slot : slot + count]

    def last(self, name: str, row: int, count: int) -> Tensor:
        """The newest ``count`` tokens of a row, [*, count, *]."""
        return self.buffers[name][row, :, self.end - count : self.end]

    def firsts(self, name: str) -> Tensor:
        """What each row's first token has, [B, *, 1, *]; of an empty row, anything."""
        whole = self.view(name)
        if not self.ragged:
            return whole[:, :, :1]
        begun = (self._begun() - self.start).clamp(max=self.held - 1)[:, :, None, None]
        return whole.gather(2, begun.expand(-1, whole.shape[1], 1, whole.shape[3]))

    def valid(self) -> Tensor | None:
        """[B, S], False in front of shorter rows; None where there are none."""
        if not self.ragged:
            return None
        return self._inside() >= self._begun()

    def order(self, count: int) -> tuple[Tensor, Tensor]:
        """Places of the newest ``count`` tokens, and of all, in their rows: [S] or [B, S]."""
        places = self._inside() - (self._begun() if self.ragged else self.start)
        return places[..., self.held - count :], places

    def reserve(self, count: int) -> None:
        """Make room for ``count`` more tokens."""
        need = self.held + count
        bloated = self.start > 8 * need  # after a long prompt, say
        if self.end + count <= self.capacity and not bloated:
            return
        size = max(self._fewest, 2 * need)
        in_place = self.start >= self.held and need <= self.capacity and not bloated
        for name, buffer in self.buffers.items():
            target = buffer if in_place else empty(buffer, buffer.shape[0], size)
            target[:, :, : self.held] = self.view(name)
            self.buffers[name] = target
        self.first = [slot - self.start for slot in self.first]
        self.start, self.end = 0, self.held

    def extend(self, counts: list[int], count: int) -> None:
        """Take in ``count`` slots that were filled, of which each row's last counts[b] are tokens.

        Padding between a row's old tokens and its new ones is closed up.
        """
        held = self.lengths
        self.end += count
        if all(new == count for new in counts):
            return
        if not any(old and new < count for old, new in zip(held, counts, strict=True)):
            rows = zip(self.first, held, counts, strict=True)
            self.first = [slot if old else self.end - new for slot, old, new in rows]
            self.start = min(self.first)
            return
        inside = self._inside()
        old = (inside >= self._begun()) & (inside < self.end - count)
        fresh = self.end - torch.tensor(counts, device=self.device).unsqueeze(-1)
        self.keep(old | (inside >= fresh))

    def keep_first(self, lengths: Tensor) -> None:
        """Keep the first ``lengths[b]`` tokens of each row."""
        inside, begun = self._inside(), self._begun()
        self.keep((inside >= begun) & (inside < begun + lengths.to(self.device).unsqueeze(-1)))

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
            target = empty(buffer, rows.shape[0], buffer.shape[2])
            target[:, :, self.start : self.end] = self.view(name)[rows]
            self.buffers[name] = target
        self.first = [self.first[row] for row in rows.tolist()]
        self.start = min(self.first, default=self.end)

    def widen(self, name: str) -> None:
        """Make whole numbers float64: fractions came."""
        with torch.inference_mode(False):
            self.buffers[name] = self.buffers[name].double()

    def _inside(self) -> Tensor:
        return torch.arange(self.start, self.end, device=self.device)

    def _begun(self) -> Tensor:
        return torch.tensor(self.first, device=self.device).unsqueeze(-1)  # [B, 1]


def empty(like: Tensor, rows: int, size: int) -> Tensor:
    """[rows, *, size, *]; an ordinary tensor in inference mode too, so that any mode may go on."""
    with torch.inference_mode(False):
        return like.new_empty(rows, like.shape[1], size, like.shape[3])


def _alike(buffer: Tensor, x: Tensor) -> bool:
    same = [buffer.shape[n] == x.shape[n] for n in (0, 1, 3)]
    return all(same) and buffer.dtype == x.dtype and buffer.device == x.device
