"""Who sees whom: the mask of an attention call, known block by block and never as a whole."""

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl._support.tracing import find_count, is_exporting

from .key_bounds import Span, by_document, by_position, sinks_between

__all__ = ["Block", "Scope"]


@dataclass(frozen=True)
class Block:
    """Queries first .. last - 1 and the spans of keys that they may see, with their positions."""

    first: int
    last: int
    spans: tuple[Span, ...]
    at: Tensor
    keys_at: Tensor

    def queries(self, x: Tensor) -> Tensor:
        """Of something by query, [..., T]."""
        return x[..., self.first : self.last]

    def keys(self, x: Tensor, dim: int = -1) -> Tensor:
        """Of something by key, with its axis of keys."""
        return _pick(x, self.spans, dim)


@dataclass(frozen=True)
class Scope:
    """Positions of queries and keys, and the rules that let one see the other.

    at [T] or [B, T], keys_at [S] or [B, S]. start: first query minus first key where both count up
    by one, alike in every row, else None; begun: the first key where start is known. kept [B, S]:
    keys that are no padding. documents: ids of queries and of keys; counted: each is in one piece,
    and positions start again in it. mask: anything else, [B, H, T, S] with axes of size 1 where it
    is the same.
    """

    at: Tensor
    keys_at: Tensor
    start: int | None
    begun: int
    causal: bool
    window: int | None = None
    sinks: int = 0
    kept: Tensor | None = None
    documents: tuple[Tensor, Tensor] | None = None
    counted: bool = False
    mask: Tensor | None = None

    @property
    def by_distance(self) -> bool:
        """Whether visibility is a matter of distance alone, and every query sees a key."""
        if self.kept is not None or self.documents is not None or self.mask is not None:
            return False
        if self.start is None or (self.sinks and self.window is not None):
            return False
        T, S = self.at.shape[-1], self.keys_at.shape[-1]
        behind = not self.causal or self.start >= 0
        near = self.window is None or (self.start + T - S < self.window and self.start >= 0)
        return behind and near and S > 0

    @property
    def open(self) -> bool:
        """Whether every query sees every key."""
        if not self.by_distance or self.window is not None:
            return False
        assert self.start is not None
        return not self.causal or self.start >= self.keys_at.shape[-1] - 1

    def blocks(self, size: int, taper: int = 0) -> list[Block]:
        """All queries, ``size`` at a time, with the keys that they may see; when in doubt, all.

        taper: by how much each block is smaller than the one after it.
        """
        T, S = self.at.shape[-1], self.keys_at.shape[-1]
        steps = _steps(T, size, taper)
        near = by_id = [(0, S)] * len(steps)
        sinks = (0, 0)
        places = (self.at, self.keys_at, *(self.documents or ()))
        looking = len(steps) > 1 and all(has_values(x) and x.numel() for x in places)
        if self.documents is not None and looking:
            by_id = by_document(*self.documents, steps)
        if self.start is not None:
            near = [self._near(self.start, *step, S) for step in steps]
            sinks = (max(0, -self.begun), max(0, self.sinks - self.begun))
        elif looking:
            near = by_position(*self._order(), steps, self.causal, self.window)
            sinks = sinks_between(self.keys_at, self.sinks) if self.sinks else sinks
        elif self.sinks:
            sinks = (0, S)
        rows = zip(steps, near, by_id, strict=True)
        return [
            self._block(step, _spans(by_rule, ids, sinks, self.causal))
            for step, by_rule, ids in rows
        ]

    def _near(self, start: int, first: int, last: int, S: int) -> Span:
        """Keys in sight of consecutive positions."""
        low, high = 0, S
        if self.causal:
            high = max(0, min(S, start + last))
        if self.window is not None:
            low = max(0, min(high, start + first - self.window + 1))
            if not self.causal:
                high = max(low, min(S, start + last - 1 + self.window))
        return low, high

    def _order(self) -> tuple[Tensor, Tensor]:
        """Positions whose distances decide within a document; across them, anything goes."""
        if self.counted:
            S, device = self.keys_at.shape[-1], self.at.device
            order = torch.arange(S, device=device)
            return order[S - self.at.shape[-1] :], order
        return self.at, self.keys_at

    def _block(self, step: Span, spans: tuple[Span, ...]) -> Block:
        first, last = step
        return Block(first, last, spans, self.at[..., first:last], _pick(self.keys_at, spans))

    def line(self, block: Block) -> Tensor:
        """Distances on regular positions: entry r + j is of query last - 1 - r and key low + j."""
        assert self.start is not None
        ((low, high),) = block.spans
        count = block.last - block.first + high - low - 1
        return self.start + block.last - 1 - low - torch.arange(count, device=self.at.device)

    def visible(self, block: Block) -> Tensor | None:
        """Which keys the queries of a block see: bool, [B, H, b, s] or less."""
        keys, seen = block.keys_at.unsqueeze(-2), None
        if self.causal or self.window is not None:
            distance = block.at.unsqueeze(-1) - keys
            seen = self.seen(distance)
            if self.sinks and self.window is not None:
                sink = (keys < self.sinks) & (keys >= 0)
                seen = seen | (sink & (distance >= 0) if self.causal else sink)
        if self.documents is not None:
            mine, theirs = self.documents
            same = block.queries(mine).unsqueeze(-1) == block.keys(theirs).unsqueeze(-2)
            seen = same if seen is None else seen & same
        if seen is not None and seen.dim() == 3:
            seen = seen.unsqueeze(1)  # [B, 1, b, s]
        if self.kept is not None:
            kept = block.keys(self.kept)[:, None, None, :]
            seen = kept if seen is None else seen & kept
        if self.mask is not None:
            rows = self.mask
            rows = rows if rows.shape[2] == 1 else rows[:, :, block.first : block.last]
            more = rows if rows.shape[3] == 1 else block.keys(rows)
            seen = more if seen is None else seen & more
        return seen

    def seen(self, distance: Tensor) -> Tensor:
        """Visibility by distance: causal mask and window."""
        seen = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if self.window is not None:
            seen = seen & (distance < self.window)
            if not self.causal:
                seen = seen & (distance > -self.window)
        return seen


def _steps(T: int, size: int, taper: int) -> list[Span]:
    # An exported program of any length has no number of blocks: it takes all queries at once.
    if is_exporting() and find_count((T + size - 1) // size) is None:
        return [(0, T)]
    if size >= T:
        return [(0, T)]
    if not taper:
        # Compiled code has to know how many there are, and nothing else of the length.
        count = (T + size - 1) // size
        steps = [(n * size, (n + 1) * size) for n in range(count - 1)]
        return [*steps, ((count - 1) * size, T)]
    steps, last, now = [], T, size
    while last > 0:
        steps.append((max(0, last - now), last))
        last, now = last - now, now - taper if 2 * (now - taper) >= size else size
    return steps[::-1]


def _spans(near: Span, by_id: Span, sinks: Span, causal: bool) -> tuple[Span, ...]:
    """Keys in sight, and sinks, as far as they are of a document at hand."""
    low = max(near[0], by_id[0])
    high = max(low, min(near[1], by_id[1]))
    first, last = max(sinks[0], by_id[0]), min(sinks[1], by_id[1])
    last = min(last, high) if causal else last
    if first >= last:
        return ((low, high),)
    return ((first, last), (low, high)) if last < low else ((min(first, low), max(last, high)),)


def _pick(x: Tensor, spans: tuple[Span, ...], dim: int = -1) -> Tensor:
    """Spans of one axis, joined."""
    if len(spans) == 1 and spans[0] == (0, x.shape[dim]):
        return x
    parts = [x.narrow(dim, low, high - low) for low, high in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
