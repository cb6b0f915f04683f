"""Which keys each query attends to: the mask of a call, computed for one block at a time.

The range (start, stop) of keys of a block contains every visible key, but hidden keys may lie in it
too: it says what to read, not what to mask. The ranges of all blocks are computed together, once
for a call.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl._support.tracing import find_count, is_exporting

__all__ = ["QueryBlock", "Visibility"]

Range = tuple[int, int]


@dataclass(frozen=True)
class QueryBlock:
    """Queries start .. stop - 1, and the keys that they may see: one range, or sinks and another.

    Both with their positions, [b] or [B, b] and [s] or [B, s].
    """

    start: int
    stop: int
    key_ranges: tuple[Range, ...]
    query_positions: Tensor
    key_positions: Tensor

    def take_queries(self, x: Tensor, dim: int = -1) -> Tensor:
        """The entries of this block's queries in ``x``, along the axis ``dim``, -1 or 2."""
        return x[..., self.start : self.stop] if dim == -1 else x[:, :, self.start : self.stop]

    def take_keys(self, x: Tensor, dim: int = -1) -> Tensor:
        """The entries of this block's keys in ``x``, along the axis ``dim``."""
        return _take_ranges(x, self.key_ranges, dim)


@dataclass(frozen=True)
class Visibility:
    """Positions of queries and keys, and the rules by which a query sees a key.

    query_positions: [T] or [B, T].
    key_positions: [S] or [B, S].
    offset: of query 0 from key 0 if positions are consecutive in all rows, else None.
    first_key_position: position of key 0, if there is an offset.
    key_mask: [B, S], False for padding.
    documents: ids of queries and of keys.
    restarts: each document is in one piece, and positions start again at 0 in it.
    mask: any other, [B, H, T, S], where axes along which it does not change may have size 1.
    """

    query_positions: Tensor
    key_positions: Tensor
    offset: int | None
    first_key_position: int
    causal: bool
    window: int | None = None
    sinks: int = 0
    key_mask: Tensor | None = None
    documents: tuple[Tensor, Tensor] | None = None
    restarts: bool = False
    mask: Tensor | None = None

    @property
    def is_by_distance(self) -> bool:
        """Whether the distance alone decides what is visible, and every query sees a key."""
        if self.key_mask is not None or self.documents is not None or self.mask is not None:
            return False
        if self.offset is None or (self.sinks and self.window is not None):
            return False
        T, S = self.query_positions.shape[-1], self.key_positions.shape[-1]
        behind = not self.causal or self.offset >= 0
        near = self.window is None or (self.offset + T - S < self.window and self.offset >= 0)
        return behind and near and S > 0

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        if not self.is_by_distance or self.window is not None:
            return False
        assert self.offset is not None
        return not self.causal or self.offset >= self.key_positions.shape[-1] - 1

    def plan_blocks(self, size: int, taper: int = 0) -> list[QueryBlock]:
        """All queries in blocks of ``size``, each with the keys that it may see; if unknown, all.

        taper: by how much each block is smaller than the one after it.
        """
        T, S = self.query_positions.shape[-1], self.key_positions.shape[-1]
        blocks = _split_queries(T, size, taper)
        nearby = same_document = [(0, S)] * len(blocks)
        sinks = (0, 0)
        known = (self.query_positions, self.key_positions, *(self.documents or ()))
        readable = len(blocks) > 1 and all(has_values(x) and x.numel() for x in known)
        if self.documents is not None and readable:
            same_document = _find_ranges_by_document(*self.documents, blocks)
        if self.offset is not None:
            nearby = [self._find_range(self.offset, *block, S) for block in blocks]
            first = self.first_key_position
            sinks = (max(0, -first), max(0, self.sinks - first))
        elif readable:
            order = self._get_order()
            nearby = _find_ranges_by_position(*order, blocks, self.causal, self.window)
            sinks = _find_sink_range(self.key_positions, self.sinks) if self.sinks else sinks
        elif self.sinks:
            sinks = (0, S)
        planned = []
        for (start, stop), near, document in zip(blocks, nearby, same_document, strict=True):
            key_ranges = _join_ranges(near, document, sinks, self.causal)
            queries = self.query_positions[..., start:stop]
            keys = _take_ranges(self.key_positions, key_ranges)
            planned.append(QueryBlock(start, stop, key_ranges, queries, keys))
        return planned

    def _find_range(self, offset: int, start: int, stop: int, S: int) -> Range:
        """The keys that queries start .. stop - 1 see, for consecutive positions."""
        low, high = 0, S
        if self.causal:
            high = max(0, min(S, offset + stop))
        if self.window is not None:
            low = max(0, min(high, offset + start - self.window + 1))
            if not self.causal:
                high = max(low, min(S, offset + stop - 1 + self.window))
        return low, high

    def _get_order(self) -> tuple[Tensor, Tensor]:
        """Positions whose distances are right within each document; across them any will do."""
        if self.restarts:
            S, device = self.key_positions.shape[-1], self.query_positions.device
            order = torch.arange(S, device=device)
            return order[S - self.query_positions.shape[-1] :], order
        return self.query_positions, self.key_positions

    def list_distances(self, block: QueryBlock) -> Tensor:
        """Every distance in a block of consecutive positions, from the largest down, [b + s - 1].

        Entry r + j is the distance of query ``stop - 1 - r`` and the block's key j:

            # stop - 1 = query 2, 3 keys, offset 0:  [2, 1, 0, -1, -2]
            # query 2 reads [2, 1, 0], query 1 [1, 0, -1], query 0 [0, -1, -2]
        """
        assert self.offset is not None
        ((low, high),) = block.key_ranges
        count = block.stop - block.start + high - low - 1
        farthest = self.offset + block.stop - 1 - low
        return farthest - torch.arange(count, device=self.query_positions.device)

    def compute_mask(self, block: QueryBlock) -> Tensor | None:
        """The keys that each query of a block sees: bool [B, H, b, s] or less; None for all."""
        keys, visible = block.key_positions.unsqueeze(-2), None
        if self.causal or self.window is not None:
            distance = block.query_positions.unsqueeze(-1) - keys
            visible = self.compare_distance(distance)
            if self.sinks and self.window is not None:
                sink = (keys < self.sinks) & (keys >= 0)
                visible = visible | (sink & (distance >= 0) if self.causal else sink)
        if self.documents is not None:
            ids, key_ids = self.documents
            same = block.take_queries(ids).unsqueeze(-1) == block.take_keys(key_ids).unsqueeze(-2)
            visible = same if visible is None else visible & same
        if visible is not None and visible.dim() == 3:
            visible = visible.unsqueeze(1)  # [B, 1, b, s]
        if self.key_mask is not None:
            real = block.take_keys(self.key_mask)[:, None, None, :]
            visible = real if visible is None else visible & real
        if self.mask is not None:
            mask = self.mask if self.mask.shape[2] == 1 else block.take_queries(self.mask, 2)
            mask = mask if mask.shape[3] == 1 else block.take_keys(mask)
            visible = mask if visible is None else visible & mask
        return visible

    def compare_distance(self, distance: Tensor) -> Tensor:
        """Whether causal mask and window leave a key visible at each distance; without sinks."""
        visible = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if self.window is not None:
            visible = visible & (distance < self.window)
            if not self.causal:
                visible = visible & (distance > -self.window)
        return visible


def _split_queries(T: int, size: int, taper: int) -> list[Range]:
    """Queries 0 .. T - 1 in blocks of ``size``; with a taper, smaller ones at the front."""
    # An exported program of any length has no number of blocks: it takes all queries at once.
    if is_exporting() and find_count((T + size - 1) // size) is None:
        return [(0, T)]
    if size >= T:
        return [(0, T)]
    if not taper:
        # Compiled code has to know how many blocks there are, and nothing else of the length.
        count = (T + size - 1) // size
        blocks = [(n * size, (n + 1) * size) for n in range(count - 1)]
        return [*blocks, ((count - 1) * size, T)]
    blocks, stop, now = [], T, size
    while stop > 0:
        blocks.append((max(0, stop - now), stop))
        stop, now = stop - now, now - taper if 2 * (now - taper) >= size else size
    return blocks[::-1]


def _join_ranges(
    nearby: Range, same_document: Range, sinks: Range, causal: bool
) -> tuple[Range, ...]:
    """Keys nearby and sinks, limited to the documents of a block: one range if they touch."""
    low = max(nearby[0], same_document[0])
    high = max(low, min(nearby[1], same_document[1]))
    first, last = max(sinks[0], same_document[0]), min(sinks[1], same_document[1])
    last = min(last, high) if causal else last
    if first >= last:
        return ((low, high),)
    return ((first, last), (low, high)) if last < low else ((min(first, low), max(last, high)),)


def _take_ranges(x: Tensor, ranges: tuple[Range, ...], dim: int = -1) -> Tensor:
    """Ranges of one axis, joined; the tensor itself where they are all of it."""
    if len(ranges) == 1:
        low, high = ranges[0]
        return x if (low, high) == (0, x.shape[dim]) else x.narrow(dim, low, high - low)
    return torch.cat([x.narrow(dim, low, high - low) for low, high in ranges], dim)


def _find_ranges_by_position(
    query_positions: Tensor,
    key_positions: Tensor,
    blocks: list[Range],
    causal: bool,
    window: int | None,
) -> list[Range]:
    """For each block of queries, the keys that the causal mask and the window may leave visible.

    query_positions [T] or [B, T], key_positions [S] or [B, S], in any order.
    """
    starts, stops = [0] * len(blocks), [key_positions.shape[-1]] * len(blocks)
    if not causal and window is None:
        return list(zip(starts, stops, strict=True))
    queries, keys = _expand_rows(query_positions, key_positions)
    least, most = (
        torch.stack([getattr(queries[:, a:b], end)(-1) for a, b in blocks], -1)  # [B, blocks]
        for end in ("amin", "amax")
    )
    # The least position from each key on never falls: where it is too large for a block, this key
    # and all after it are hidden. The greatest position up to each key serves the other end.
    least_after = keys.flip(-1).cummin(-1).values.flip(-1).contiguous()
    if causal:
        ends = torch.searchsorted(least_after, most, right=True)
    else:
        assert window is not None
        ends = torch.searchsorted(least_after, most + window)
    stops = ends.amax(0).tolist()
    if window is not None:
        most_before = keys.cummax(-1).values.contiguous()
        starts = torch.searchsorted(most_before, least - window, right=True).amin(0).tolist()
    return list(zip(starts, stops, strict=True))


def _find_ranges_by_document(
    query_ids: Tensor, key_ids: Tensor, blocks: list[Range]
) -> list[Range]:
    """For each block of queries, the keys from the first to the last of the same documents.

    query_ids [T] or [B, T] are the last T of key_ids [S] or [B, S].
    """
    first, last, number = _find_ends(key_ids)
    number = number[:, number.shape[1] - query_ids.shape[-1] :]
    first, last = first.gather(1, number), last.gather(1, number)
    starts = torch.stack([first[:, a:b].amin() for a, b in blocks]).tolist()
    stops = torch.stack([last[:, a:b].amax() for a, b in blocks]).tolist()
    return [(a, b + 1) for a, b in zip(starts, stops, strict=True)]


def _find_sink_range(key_positions: Tensor, sinks: int) -> Range:
    """The keys from the first to the last that is at one of positions 0 .. sinks - 1 in any row."""
    keys = key_positions if key_positions.dim() == 2 else key_positions.unsqueeze(0)
    found = ((keys >= 0) & (keys < sinks)).any(0).nonzero().flatten().tolist()
    return (found[0], found[-1] + 1) if found else (0, 0)


def _expand_rows(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Both positions as [B, tokens], in one dtype."""
    if queries.is_floating_point() or keys.is_floating_point():
        queries, keys = queries.double(), keys.double()
    both = [x if x.dim() == 2 else x.unsqueeze(0) for x in (queries, keys)]
    rows = max(x.shape[0] for x in both)
    return both[0].expand(rows, -1), both[1].expand(rows, -1)


def _find_ends(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """First and last key of each document in each row, [B, N], and documents as 0 .. N - 1."""
    ids = ids if ids.dim() == 2 else ids.unsqueeze(0)
    names, number = torch.unique(ids, return_inverse=True)
    B, S = ids.shape
    index = torch.arange(S, device=ids.device).expand(B, S)
    first = torch.full((B, len(names)), S, device=ids.device)
    last = torch.full_like(first, -1)
    return (
        first.scatter_reduce(1, number, index, "amin"),
        last.scatter_reduce(1, number, index, "amax"),
        number,
    )
