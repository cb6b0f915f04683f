"""KVCache: one layer's keys and values for decoding, with any encoding, never rounded twice.

A key is rotated once, from what the model made of it, straight into the cache; dropping tokens,
cropping and reordering move it but never rotate it again. Keys that must be rotated again are
rotated from unrotated copies:

    the first tokens of a stream (``sinks``), if positions are counted inside the cache: scores
        depend on differences only, so the window keeps its absolute positions and the sinks are
        moved, to just before the oldest key of the window
    all keys, if their frequencies depend on the length (DynamicNTK, LongRoPE ...): at every call
        ("exact"), or when the length has grown by a step ("stepped"); each row by its own length

Factors that grow with the position (XPos) are relative to a reference position that moves with the
queries, by powers of two: exact.

Streams: Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks,
https://arxiv.org/abs/2309.17453; its code rotates the whole cache again at every step. For
inference only: no gradient passes through a cache.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from whorl.attention._checks import check_coordinates, check_encoding, check_rows
from whorl.encodings import Encoding

from .checks import (
    CacheConfig,
    check_crop,
    check_drop,
    check_placement,
    check_positions,
    check_tokens,
    read_mask,
)
from .new_tokens import NewTokens, arrange_tokens, convert_positions, find_positions
from .restore_points import RestorePoints
from .rotation import CacheReferences, CacheRotation
from .sinks import KeyState, SinkTokens
from .slots import TokenSlots

__all__ = ["CacheStep", "KVCache"]


class CacheStep(NamedTuple):
    """What attention multiplies in one call; k and v are views, valid until the next call.

    q [B, H, T, D] and k [B, G, S, D] are rotated, if the encoding does so. positions [T] or [B, T]
    and key_positions [S] or [B, S] are for masks and score hooks: the tokens' own, or counted
    inside the cache if it is built that way, or, with positions on several axes, their order.
    valid [B, S]: False for padding; None where there is none. open: a single token came, which sees
    every valid key, so that no other mask is needed.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    positions: Tensor
    key_positions: Tensor
    valid: Tensor | None
    open: bool


class KVCache:
    """Keys and values of one layer.

    Args:
        encoding: its rotation, if it has one, is applied to queries and keys.
        window: tokens that a query sees, itself included; older ones are dropped. None keeps all.
        sinks: first tokens of each row that are kept in addition, and may not be evicted.
        placement: positions of the sinks once tokens after them were dropped. "absolute" leaves
            them as they were; "in_cache" counts positions inside the cache, as StreamingLLM does.
        frequencies: for scalings that depend on the length. "exact" keeps keys unrotated and
            rotates all of them at every call; "stepped" keeps both forms, and rotates again when
            the length, rounded up to one of ``steps`` for each doubling, has changed: frequencies
            of a length that is at most 1/steps too long.
        capacity: slots to allocate at first. When they are full, twice as many as needed.

    ``update`` adds tokens; attention over its result must use the cache's window and sinks.
    Positions continue after the largest so far unless given. With a mask, padding is removed, and
    rows may have different lengths.

    >>> import torch
    >>> from whorl import RoPE
    >>> cache = KVCache(RoPE(64), window=1024, sinks=4, placement="in_cache")
    >>> q, k, v = (torch.randn(1, 8, 10, 64) for _ in range(3))
    >>> step = cache.update(q, k, v)  # a prompt of 10 tokens
    >>> step = cache.update(q[:, :, :1], k[:, :, :1], v[:, :, :1])  # and one more
    >>> tuple(step.k.shape), cache.length
    ((1, 8, 11, 64), 11)
    """

    def __init__(
        self,
        encoding: Encoding | None = None,
        *,
        window: int | None = None,
        sinks: int = 0,
        placement: Literal["absolute", "in_cache"] = "absolute",
        frequencies: Literal["exact", "stepped"] = "exact",
        steps: int = 64,
        capacity: int = 0,
    ) -> None:
        self.config = CacheConfig(window, sinks, placement, frequencies, steps, capacity)
        check_encoding(encoding, "KVCache")
        check_placement(encoding, placement)
        self.encoding = encoding
        self._axes = 1 if encoding is None else encoding.position_axes
        self._rotation = CacheRotation(encoding, frequencies, steps)
        self._slots = TokenSlots(capacity)
        self._sinks = SinkTokens(sinks, placement == "in_cache", self._rotation)
        self.reset()

    def reset(self) -> None:
        """Forget all tokens; the memory is used again."""
        self._slots.clear()
        self._same_rows = True  # every row has the same positions
        self._is_consecutive = True  # positions have no gaps that matter to a window
        self._next_positions: list[int] = []  # of each row
        self._restore_points = RestorePoints(0)
        self._context: list[int] = []  # the length whose frequencies the keys of each row have
        self._references: CacheReferences | None = None  # if the rotation has them

    @property
    def window(self) -> int | None:
        return self.config.window

    @property
    def sinks(self) -> int:
        return self.config.sinks

    @property
    def length(self) -> int:
        """Slots in use, S of the last step: the tokens of the longest row.

        With a window at most sinks + window - 1 and what the last call added: the surplus is
        dropped by the next call, so that what was added can be cropped again.
        """
        return self._slots.length

    @property
    def lengths(self) -> list[int]:
        """Number of tokens held in each row."""
        return self._slots.lengths

    @property
    def memory(self) -> int:
        """Bytes allocated."""
        return self._slots.nbytes + self._sinks.nbytes

    def __repr__(self) -> str:
        options = [f"{n}={v!r}" for n, v in self.config.changed().items()]
        return f"KVCache({', '.join([repr(self.encoding), *options])})"

    def update(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> CacheStep:
        """Add the keys and values of T new tokens; returns what attention multiplies.

        q [B, H, T, D], k [B, G, T, D], v [B, G, T, Dv], as the model made them, not rotated.
        positions: of the new tokens, [T] or [B, T]; with several axes [n, T] or [n, B, T].
        mask: [B, T], true for tokens, false for padding, which is not kept.
        What the cache refuses changes nothing; what the encoding refuses empties it.
        """
        is_intact = bool(self._slots.first)
        check_tokens(q, k, v, self._slots.buffers if is_intact else None)
        with torch.no_grad():
            try:
                if not is_intact:
                    self._allocate(k, v)
                tokens = self._read_tokens(k, v, positions, mask)
                references: list[int] = []
                if self._references is not None:
                    references = self._references.plan(tokens, self.lengths)
                is_intact = False  # from here on an error would leave a part of the changes
                return self._add_tokens(q, tokens, references)
            except Exception:
                if not is_intact:
                    self.reset()
                raise

    @torch.no_grad()
    def crop(self, length: int | Tensor) -> None:
        """Keep the first ``length`` slots, or drop the last ``-length`` of each row.

        A tensor [B] says how many tokens each row keeps. The next token of a row that lost some
        continues after the last one kept, so cropping what a call added undoes that call. Once a
        window has dropped tokens, a crop that goes further back is refused, because the next query
        would miss keys that it should see; to empty the cache, use ``reset``.
        """
        slots, lengths = self._slots, self.lengths
        check_crop(length, slots.length, lengths)
        if isinstance(length, Tensor):
            remaining = length.tolist()
        else:
            dropped = -length if length < 0 else slots.length - length
            remaining = [max(0, n - dropped) for n in lengths]
        if remaining == lengths:
            return
        points = [self._restore_points.find(row, n) for row, n in enumerate(remaining)]  # refuses
        if isinstance(length, Tensor):
            self._same_rows = self._same_rows and len(set(remaining)) == 1
            slots.keep_first(length)
        else:
            slots.drop_back(dropped)
        if min(remaining) <= self.sinks:  # no key is left that they were moved to
            self._sinks.write(slots, self._key_state)
        for row, (n, point) in enumerate(zip(remaining, points, strict=True)):
            if n < lengths[row]:
                later = slots.get_last("positions", row, n - point.length)
                following = math.floor(later.max().item()) + 1 if later.numel() else 0
                self._next_positions[row] = max(point.next_position, following)
                self._restore_points.crop(row, n)
        if not any(remaining) and not any(self._next_positions):
            self.reset()

    @torch.no_grad()
    def evict(self, drop: Tensor | list[int]) -> None:
        """Drop tokens anywhere: slots, or a mask [S] or [B, S], true for tokens to drop.

        The others keep their positions, except for sinks that follow the window ("in_cache").
        """
        slots = self._slots
        dropped = check_drop(drop, self.lengths, slots.length, self.sinks, slots.device)
        if not slots.length:
            return
        valid = slots.get_mask()
        self._restore_points.evict(dropped, self.lengths)
        wanted = ~dropped if valid is None else valid & ~dropped
        self._same_rows = self._same_rows and bool((wanted == wanted[:1]).all())
        self._is_consecutive = self._is_consecutive and self.window is None
        slots.keep(wanted)
        if self.config.placement == "in_cache" and slots.length:
            self._sinks.write(slots, self._key_state)

    @torch.no_grad()
    def reorder(self, index: Tensor | list[int]) -> None:
        """Row n becomes what row ``index[n]`` was, for beams; the batch may grow or shrink."""
        slots = self._slots
        rows = check_rows(index, len(slots.first), slots.device, "KVCache.reorder")
        slots.reorder(rows)
        self._sinks.reorder(rows)
        listed = rows.tolist()
        self._next_positions = [self._next_positions[n] for n in listed]
        self._context = [self._context[n] for n in listed]
        self._restore_points.reorder(listed)
        if self._references is not None:
            self._references.reorder(listed)

    def _allocate(self, k: Tensor, v: Tensor) -> None:
        """Make memory for the tokens of a first call."""
        batch, count = k.shape[0], k.shape[2]
        integers = torch.empty(0, dtype=torch.int64, device=k.device)
        like = {"k": k, "v": v, "positions": integers.new_empty(batch, self._axes, 0, 1)}
        if self._rotation.kind == "stepped":
            like["raw"] = k
        self._slots.allocate(like, count)
        self._sinks.allocate(like)
        self._next_positions, self._context = [0] * batch, [1] * batch
        self._restore_points = RestorePoints(batch)
        part = self._rotation.part
        if part is not None and self._rotation.has_reference:
            self._references = CacheReferences(part, batch)

    def _read_tokens(
        self, k: Tensor, v: Tensor, positions: Tensor | None, mask: Tensor | None
    ) -> NewTokens:
        """Check positions and mask of new tokens, and find where each token is."""
        if positions is not None and self.config.placement == "in_cache":
            raise ValueError(
                "KVCache.update: positions must be None with placement='in_cache', which counts"
                f" them itself; got {list(positions.shape)}. Leave them out, or use"
                " placement='absolute'."
            )
        if positions is None and self._rotation.needs_positions:
            raise ValueError(
                f"KVCache.update: positions must be [{self._axes}, T] or [{self._axes}, B, T] for"
                f" {self.encoding!r}, because tokens have no order of their own; got None."
            )
        check_coordinates(self.encoding, positions, "KVCache.update")
        check_positions(positions, self.encoding, "KVCache.update")
        mask = read_mask(mask, k)
        found = find_positions(k, positions, mask, self._next_positions, self._axes)
        tokens = arrange_tokens(k, v, found, mask, self.lengths)
        return tokens._replace(is_continued=positions is None)

    def _add_tokens(self, q: Tensor, tokens: NewTokens, references: list[int]) -> CacheStep:
        """Drop old tokens, add new ones, and rotate what has to be rotated."""
        slots, count, lengths = self._slots, tokens.k.shape[2], self.lengths
        next_positions = tokens.find_next_positions(self._next_positions)
        sinks_move = self._drop_old(count) or min(self.lengths) <= self.sinks
        self._restore_points.record(lengths, self.lengths, self._next_positions, tokens.counts)
        slots.reserve(count)
        if self._references is not None:
            self._references.move(references, slots.view("k"), self.lengths)
        self._next_positions = next_positions
        self._same_rows = self._same_rows and tokens.same_rows
        self._is_consecutive = self._is_consecutive and tokens.is_continued
        self._sinks.copy(tokens, self.lengths)
        self._update_frequencies(tokens)
        rotated = self._append(q, tokens)
        if sinks_move:
            self._sinks.write(slots, self._key_state)
        return self._build_step(q, rotated, tokens)

    @property
    def _current_references(self) -> list[int]:
        return [] if self._references is None else self._references.current

    @property
    def _key_state(self) -> KeyState:
        known = self._is_consecutive and self._same_rows
        first = self._next_positions[0] - self._slots.length if known else None
        return KeyState(self._same_rows, first, self._context, self._current_references)

    def _drop_old(self, count: int) -> bool:
        """Drop tokens that no query of this call sees, and return whether there were any."""
        if self.window is None or not count:
            return False
        surplus = self._slots.length - self.sinks - (self.window - 1)
        if surplus > 0:
            self._slots.drop_front(surplus)
        return surplus > 0

    def _update_frequencies(self, tokens: NewTokens) -> None:
        """Find the context length of each row; rotate rows again whose frequencies changed."""
        rotation, slots = self._rotation, self._slots
        if rotation.kind not in ("always", "stepped"):
            return
        now = self._next_positions
        if self.config.placement == "in_cache":
            now = [n + count for n, count in zip(self.lengths, tokens.counts, strict=True)]
        old, self._context = self._context, [max(1, n) for n in now]
        if rotation.kind == "always":
            return
        new = self._context = [rotation.round_up(length) for length in self._context]
        rows = rotation.find_changed_rows(old, new) if old != new and slots.length else []
        parts = [slice(None)] if len(rows) == len(old) else [slice(n, n + 1) for n in rows]
        for part in parts:
            raw, k, positions = (slots.view(name)[part] for name in ("raw", "k", "positions"))
            where = convert_positions(positions, self._same_rows)
            rotation.rotate_keys(raw, where, new[part], [], out=k)

    def _append(self, q: Tensor, tokens: NewTokens) -> Tensor:
        """Write new tokens after the others; returns rotated queries."""
        slots, kind, count = self._slots, self._rotation.kind, tokens.k.shape[2]
        fractions = tokens.positions.is_floating_point()
        if fractions and not slots.view("positions").is_floating_point():
            slots.widen("positions")
        slots.get_free("v", count).copy_(tokens.v)
        slots.get_free("positions", count).copy_(tokens.positions)
        if kind == "stepped":
            slots.get_free("raw", count).copy_(tokens.k)
        keys = slots.get_free("k", count)
        if kind in ("once", "stepped"):
            q = self._rotate_new(q, tokens, (torch.empty_like(q), keys))
        else:
            keys.copy_(tokens.k)
        slots.extend(tokens.counts, count)
        return q

    def _rotate_new(self, q: Tensor, tokens: NewTokens, out: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate new queries and keys into ``out``; returns the queries."""
        where: dict[str, object] = {"out": out}
        if tokens.offset is not None:
            where["offset"] = tokens.offset
        else:
            where["positions"] = convert_positions(tokens.query_positions, tokens.same_rows)
            if tokens.positions is not tokens.query_positions:
                where["key_positions"] = convert_positions(tokens.positions, tokens.same_rows)
        references = self._current_references
        rotated, _ = self._rotation.rotate(q, tokens.k, where, self._context, references)
        return rotated

    def _build_step(self, q: Tensor, rotated: Tensor, tokens: NewTokens) -> CacheStep:
        """What attention multiplies, and the positions that its masks and biases go by."""
        slots, rotation, k = self._slots, self._rotation, self._slots.view("k")
        queries = convert_positions(tokens.query_positions, tokens.same_rows)
        keys = convert_positions(slots.view("positions"), self._same_rows)
        if rotation.kind == "always":
            where = {"positions": queries, "key_positions": keys}
            rotated, k = rotation.rotate(q, k, where, self._context, [])
        in_cache = self.config.placement == "in_cache"
        plain = self._is_consecutive and tokens.offset is not None and not slots.is_ragged
        if self._axes > 1 or (in_cache and plain):
            queries, keys = slots.get_order(q.shape[2])
        elif in_cache:
            first = self._get_first_position()
            queries, keys = queries - first, keys - first
        single = q.shape[2] == 1 and self._is_consecutive
        return CacheStep(rotated, k, slots.view("v"), queries, keys, slots.get_mask(), single)

    def _get_first_position(self) -> Tensor:
        """The position of the first token held: a number, or one for each row, [B, 1]."""
        if not self._slots.length:
            return self._slots.view("positions").new_zeros(1)
        first = self._slots.get_first_tokens("positions")[:, 0, :, 0]
        return first[0] if self._same_rows else first
