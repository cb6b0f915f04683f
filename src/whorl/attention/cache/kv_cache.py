"""KVCache: one layer's keys and values for decoding, with any encoding, never rounded twice.

A key is rotated once, from what the model made of it, straight into the cache; dropping tokens,
cropping and reordering move it but never turn it again. What must turn is turned from unrotated
copies:

    the first tokens of a stream (``sinks``), if positions are counted inside the cache: scores
        depend on differences only, so the window keeps its absolute positions and the sinks are
        placed anew, just before the oldest key of the window
    all keys, if their frequencies follow the length (DynamicNTK, LongRoPE ...): at every call
        ("exact"), or when the length has grown by a step ("stepped"); each row by its own length
    XPos's factors move with a reference, by powers of two: exact

Streams: Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks,
https://arxiv.org/abs/2309.17453; its code rotates the whole cache anew at every step. For inference
only: no gradient passes through a cache.
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
)
from .marks import Marks
from .references import References
from .rotation import Turning
from .sinks import Now, Sinks
from .slots import Slots
from .tokens import Tokens, arrange, placed, public, real

__all__ = ["KVCache", "Step"]


class Step(NamedTuple):
    """What the queries of one call meet; k and v are views that hold until the next call.

    q [B, H, T, D] and k [B, G, S, D] may be multiplied: they are rotated where the encoding does
    so. positions [T] or [B, T] and key_positions [S] or [B, S] are for masks and score hooks: the
    tokens' own, or counted inside the cache where it is built so, or, with positions on several
    axes, their order. valid [B, S]: False for padding; None where there is none. open: a single
    token came that sees every valid key, so that no other mask is needed.
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
        encoding: whose rotation, if it has one, is applied to queries and keys.
        window: tokens that a query sees, itself included; older ones are dropped. None keeps all.
        sinks: first tokens of each row that are kept besides, and may not be evicted.
        placement: of the sinks once tokens after them were dropped. "absolute" leaves them where
            they were; "in_cache" counts positions inside the cache, as StreamingLLM does.
        frequencies: for scalings that follow the length. "exact" keeps keys unrotated and rotates
            all of them at every call; "stepped" keeps both, and follows the length, rounded up, in
            ``steps`` for each doubling: frequencies of a length at most 1/steps too long.
        capacity: slots to allocate at first. What does not fit gets twice the slots it needs.

    ``update`` adds tokens, and attention over its result is to use the cache's window and sinks.
    Positions follow on from the largest so far unless given. With a mask, padding is taken out
    and rows may have different lengths.

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
        self._turning = Turning(encoding, frequencies, steps)
        self._slots = Slots(capacity)
        self._sinks = Sinks(sinks, placement == "in_cache", self._turning)
        self.reset()

    def reset(self) -> None:
        """Forget all tokens; the memory is used again."""
        self._slots.clear()
        self._together = True  # every row has the same positions
        self._regular = True  # positions count up, without gaps that matter to a window
        self._next: list[int] = []  # the position that follows on, of each row
        self._marks = Marks(0)
        self._tuned: list[int] = []  # the length whose frequencies keys have, where they follow it
        self._references: References | None = None  # of XPos

    @property
    def window(self) -> int | None:
        return self.config.window

    @property
    def sinks(self) -> int:
        return self.config.sinks

    @property
    def length(self) -> int:
        """Slots held, S of the last step: the tokens of the longest row.

        With a window at most sinks + window - 1 and what the last call added: the surplus goes at
        the next one, so that what was added can be cropped again.
        """
        return self._slots.held

    @property
    def lengths(self) -> list[int]:
        """Tokens held of each row."""
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
    ) -> Step:
        """Add the keys and values of T new tokens; returns what their queries meet.

        q [B, H, T, D], k [B, G, T, D], v [B, G, T, Dv], as the model made them, not rotated.
        positions: of the new tokens, [T] or [B, T]; with several axes [n, T] or [n, B, T].
        mask: [B, T], true for tokens, false for padding, which is not kept.
        What the cache refuses changes nothing; what the encoding refuses empties it.
        """
        whole = bool(self._slots.first)
        check_tokens(q, k, v, self._slots.buffers if whole else None)
        with torch.no_grad():
            try:
                if not whole:
                    self._open(k, v)
                tokens = self._tokens(k, v, positions, mask)
                refers = self._references.ahead(tokens, self.lengths) if self._references else []
                whole = False  # from here on a refusal would leave things half done
                return self._update(q, tokens, refers)
            except Exception:
                if not whole:
                    self.reset()
                raise

    @torch.no_grad()
    def crop(self, length: int | Tensor) -> None:
        """Keep the first ``length`` slots, or drop the last ``-length`` of each row.

        A tensor [B] says how many tokens each row keeps. The next token of a row that lost some
        follows on from the last one kept, so cropping what a call added undoes that call. Once a
        window has dropped tokens that is as far as it goes: further back the next query would not
        see what it should, and a crop is refused, that to nothing too: use ``reset``.
        """
        slots, lengths = self._slots, self.lengths
        check_crop(length, slots.held, lengths)
        if isinstance(length, Tensor):
            kept = length.tolist()
        else:
            gone = -length if length < 0 else slots.held - length
            kept = [max(0, n - gone) for n in lengths]
        if kept == lengths:
            return
        marks = [self._marks.back(row, n) for row, n in enumerate(kept)]  # refuses
        if isinstance(length, Tensor):
            self._together = self._together and len(set(kept)) == 1
            slots.keep_first(length)
        else:
            slots.drop_back(gone)
        if min(kept) <= self.sinks:
            self._sinks.place(slots, self._now)  # nothing is left that they were moved up to
        for row, (n, mark) in enumerate(zip(kept, marks, strict=True)):
            if n < lengths[row]:
                later = slots.last("positions", row, n - mark.length)
                last = math.floor(later.max().item()) + 1 if later.numel() else 0
                self._next[row] = max(mark.next, last)
                self._marks.crop(row, n)
        if not any(kept) and not any(self._next):
            self.reset()

    @torch.no_grad()
    def evict(self, drop: Tensor | list[int]) -> None:
        """Drop tokens anywhere: slots, or a mask [S] or [B, S], true for what goes.

        The others keep their positions; only sinks placed in the cache close up to the window.
        """
        slots = self._slots
        gone = check_drop(drop, self.lengths, slots.held, self.sinks, slots.device)
        if not slots.held:
            return
        valid = slots.valid()
        self._marks.evict(gone, self.lengths)
        wanted = ~gone if valid is None else valid & ~gone
        self._together = self._together and bool((wanted == wanted[:1]).all())
        self._regular = self._regular and self.window is None
        slots.keep(wanted)
        if self.config.placement == "in_cache" and slots.held:
            self._sinks.place(slots, self._now)

    @torch.no_grad()
    def reorder(self, index: Tensor | list[int]) -> None:
        """Row n becomes what row ``index[n]`` was, for beams; the batch may grow or shrink."""
        slots = self._slots
        rows = check_rows(index, len(slots.first), slots.device, "KVCache.reorder")
        slots.reorder(rows)
        self._sinks.reorder(rows)
        listed = rows.tolist()
        self._next, self._tuned = ([now[n] for n in listed] for now in (self._next, self._tuned))
        self._marks.reorder(listed)
        if self._references is not None:
            self._references.reorder(listed)

    def _open(self, k: Tensor, v: Tensor) -> None:
        """Make memory for a first call."""
        batch, count = k.shape[0], k.shape[2]
        whole = torch.empty(0, dtype=torch.int64, device=k.device)
        like = {"k": k, "v": v, "positions": whole.new_empty(batch, self._axes, 0, 1)}
        if self._turning.kind == "stepped":
            like["raw"] = k
        self._slots.open(like, count)
        self._sinks.open(like)
        self._next, self._tuned, self._marks = [0] * batch, [1] * batch, Marks(batch)
        xpos = self._turning.xpos
        self._references = None if xpos is None else References(xpos, batch)

    def _update(self, q: Tensor, tokens: Tokens, refers: list[int]) -> Step:
        slots = self._slots
        count, upto, held = tokens.k.shape[2], tokens.follow(self._next), self.lengths
        moved = self._drop_old(count) or min(self.lengths) <= self.sinks
        self._marks.set(held, self.lengths, self._next, tokens.counts)
        slots.reserve(count)
        if self._references is not None:
            self._references.move(refers, slots.view("k"), self.lengths)
        self._next, self._together = upto, self._together and tokens.together
        self._regular = self._regular and tokens.counted
        self._sinks.capture(tokens, self.lengths)
        self._retune(tokens)
        q_turned = self._append(q, tokens)
        if moved:
            self._sinks.place(slots, self._now)
        return self._step(q, q_turned, tokens)

    def _tokens(
        self, k: Tensor, v: Tensor, positions: Tensor | None, mask: Tensor | None
    ) -> Tokens:
        """Check what came with new tokens, and place them."""
        if positions is not None and self.config.placement == "in_cache":
            raise ValueError(
                "KVCache.update: placement='in_cache' counts positions itself; leave positions out,"
                " or use placement='absolute'."
            )
        if positions is None and self._turning.needs_positions:
            raise ValueError(
                f"KVCache.update: {self.encoding!r} has no order of its own; pass positions="
                f" [{self._axes}, T] or [{self._axes}, B, T]."
            )
        check_coordinates(self.encoding, positions, "KVCache.update")
        check_positions(positions, self.encoding, "KVCache.update")
        mask = real(mask, k)
        where = placed(k, positions, mask, self._next, self._axes)
        return arrange(k, v, where, mask, self.lengths)._replace(counted=positions is None)

    @property
    def _refers(self) -> list[int]:
        return [] if self._references is None else self._references.now

    @property
    def _now(self) -> Now:
        plain = self._regular and self._together
        first = self._next[0] - self._slots.held if plain else None
        return Now(self._together, first, self._tuned, self._refers)

    def _drop_old(self, count: int) -> bool:
        """Drop what no query of this call sees; whether there was such."""
        if self.window is None or not count:
            return False
        surplus = self._slots.held - self.sinks - (self.window - 1)
        if surplus > 0:
            self._slots.drop_front(surplus)
        return surplus > 0

    def _context(self, tokens: Tokens) -> list[int]:
        """The current length of each row."""
        now = self._next
        if self.config.placement == "in_cache":
            now = [n + count for n, count in zip(self.lengths, tokens.counts, strict=True)]
        return [max(1, n) for n in now]

    def _retune(self, tokens: Tokens) -> None:
        """Follow the length, where frequencies do; rotate afresh the rows that changed."""
        turning, slots = self._turning, self._slots
        if turning.kind not in ("always", "stepped"):
            return
        old, self._tuned = self._tuned, self._context(tokens)
        if turning.kind == "always":
            return
        self._tuned = [turning.step_up(length) for length in self._tuned]
        rows = turning.changed(old, self._tuned) if old != self._tuned and slots.held else []
        parts = [slice(None)] if len(rows) == len(old) else [slice(n, n + 1) for n in rows]
        for part in parts:
            raw, k, at = (slots.view(name)[part] for name in ("raw", "k", "positions"))
            turning.keys(raw, public(at, self._together), self._tuned[part], [], out=k)

    def _append(self, q: Tensor, tokens: Tokens) -> Tensor:
        """Write new tokens behind the others; returns rotated queries."""
        slots, turning, count = self._slots, self._turning, tokens.k.shape[2]
        if tokens.at.is_floating_point() and not slots.view("positions").is_floating_point():
            slots.widen("positions")
        slots.room("v", count).copy_(tokens.v)
        slots.room("positions", count).copy_(tokens.at)
        if turning.kind == "stepped":
            slots.room("raw", count).copy_(tokens.k)
        slot = slots.room("k", count)
        if turning.kind in ("once", "stepped"):
            out = torch.empty_like(q), slot
            q = self._turn(q, tokens, out)
        else:
            slot.copy_(tokens.k)
        slots.extend(tokens.counts, count)
        return q

    def _turn(self, q: Tensor, tokens: Tokens, out: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate new queries and keys, the keys into the cache."""
        where: dict[str, object] = {"out": out}
        if tokens.offset is not None:
            where["offset"] = tokens.offset
        else:
            where["positions"] = public(tokens.query_at, tokens.together)
            if tokens.at is not tokens.query_at:
                where["key_positions"] = public(tokens.at, tokens.together)
        turned, _ = self._turning.pair(q, tokens.k, where, self._tuned, self._refers)
        return turned

    def _step(self, q: Tensor, turned: Tensor, tokens: Tokens) -> Step:
        slots, turning, k = self._slots, self._turning, self._slots.view("k")
        at = public(tokens.query_at, tokens.together)
        keys_at = public(slots.view("positions"), self._together)
        if turning.kind == "always":
            where = {"positions": at, "key_positions": keys_at}
            turned, k = turning.pair(q, k, where, self._tuned, [])
        counted = self.config.placement == "in_cache"
        plain = self._regular and tokens.offset is not None and not slots.ragged
        if self._axes > 1 or (counted and plain):
            at, keys_at = slots.order(q.shape[2])
        elif counted:
            first = self._first_at()
            at, keys_at = at - first, keys_at - first
        single = q.shape[2] == 1 and self._regular
        return Step(turned, k, slots.view("v"), at, keys_at, slots.valid(), single)

    def _first_at(self) -> Tensor:
        """The position of the first token held: a number, or one for each row, [B, 1]."""
        if not self._slots.held:
            return self._slots.view("positions").new_zeros(1)
        first = self._slots.firsts("positions")[:, 0, :, 0]
        return first[0] if self._together else first
