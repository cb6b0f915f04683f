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

from whorl.encodings import Encoding

from ._cache_checks import (
    CacheConfig,
    check_crop,
    check_drop,
    check_encoding,
    check_rows,
    check_tokens,
)
from ._reference import References
from ._slots import Slots, empty
from ._tokens import Tokens, arrange, placed, public, real
from ._turning import Turning

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
        capacity: slots to allocate at first; more are added by doubling.

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
        check_encoding(encoding, placement)
        self.encoding = encoding
        self._axes = 1 if encoding is None else encoding.position_axes
        self._turning = Turning(encoding, frequencies, steps)
        self._slots = Slots(capacity)
        self._sinks: dict[str, Tensor] = {}  # the first tokens: k unrotated, v, positions
        self.reset()

    def reset(self) -> None:
        """Forget all tokens; the memory is used again."""
        self._slots.clear()
        self._together = True  # every row has the same positions
        self._regular = True  # positions count up, without gaps that matter to a window
        self._next: list[int] = []  # the position that follows on, of each row
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
        return [self._slots.end - slot for slot in self._slots.first]

    @property
    def memory(self) -> int:
        """Bytes allocated."""
        return self._slots.nbytes + sum(tensor.nbytes for tensor in self._sinks.values())

    def __repr__(self) -> str:
        options = [f"{n}={v!r}" for n, v in self.config.changed().items()]
        return f"KVCache({', '.join([repr(self.encoding), *options])})"

    def update(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
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
        """Keep the first ``length`` slots, or drop the last ``-length``; padding counts.

        A tensor [B] says how many tokens each row keeps. The next token of a row that lost some
        follows on from the last one kept; if nothing is left anywhere, it is as after ``reset``.
        Tokens that a window has dropped do not come back, but those of the last call were added
        to a full window, and cropping them undoes that call.
        """
        slots = self._slots
        lengths = self.lengths
        check_crop(length, slots.held, lengths)
        if isinstance(length, Tensor):
            kept = length.to(slots.buffers["v"].device).unsqueeze(-1)
            inside = torch.arange(slots.start, slots.end, device=kept.device)
            begun = torch.tensor(slots.first, device=kept.device).unsqueeze(-1)
            self._together = self._together and len(set(length.tolist())) == 1
            slots.keep((inside >= begun) & (inside < begun + kept))
        else:
            slots.drop_back(-length if length < 0 else slots.held - length)
        if not slots.held:
            return self.reset()
        if self.lengths != lengths and min(self.lengths) <= self.sinks:
            self._place_sinks()  # nothing is left that they were moved up to
        at, valid = slots.view("positions")[..., 0], slots.valid()
        if valid is not None:
            at = at.masked_fill(~valid[:, None], -1)
        for row, last in enumerate(at.amax((1, 2)).tolist()):
            if self.lengths[row] < lengths[row]:
                self._next[row] = math.floor(last) + 1

    @torch.no_grad()
    def evict(self, drop: Tensor | list[int]) -> None:
        """Drop tokens anywhere: slots, or a mask [S] or [B, S], true for what goes.

        The others keep their positions; only sinks placed in the cache close up to the window.
        """
        slots = self._slots
        gone = check_drop(drop, self.lengths, slots.held, self.sinks, self._device)
        valid = slots.valid()
        wanted = ~gone if valid is None else valid & ~gone
        self._together = self._together and bool((wanted == wanted[:1]).all())
        self._regular = self._regular and self.window is None
        slots.keep(wanted)
        if self.config.placement == "in_cache" and self.sinks and slots.held:
            self._place_sinks()

    @torch.no_grad()
    def reorder(self, index: Tensor | list[int]) -> None:
        """Row n becomes what row ``index[n]`` was, for beams; the batch may grow or shrink."""
        rows = check_rows(index, len(self._slots.first), self._device)
        self._slots.reorder(rows)
        for name, old in self._sinks.items():
            self._sinks[name] = empty(old, rows.shape[0], self.sinks)
            self._sinks[name].copy_(old[rows])
        listed = rows.tolist()
        self._next, self._tuned = ([now[n] for n in listed] for now in (self._next, self._tuned))
        if self._references is not None:
            self._references.reorder(listed)

    @property
    def _device(self) -> torch.device:
        buffers = self._slots.buffers
        return buffers["v"].device if buffers else torch.device("cpu")

    def _open(self, k: Tensor, v: Tensor) -> None:
        """Make memory for a first call."""
        batch, count = k.shape[0], k.shape[2]
        whole = torch.empty(0, dtype=torch.int64, device=k.device)
        like = {"k": k, "v": v, "positions": whole.new_empty(batch, self._axes, 0, 1)}
        if self._turning.kind == "stepped":
            like["raw"] = k
        self._slots.open(like, count)
        if self.sinks:
            kept = {n: like[n] for n in ("k", "v", "positions")}
            self._sinks = {name: empty(x, batch, self.sinks) for name, x in kept.items()}
        self._next, self._tuned = [0] * batch, [1] * batch
        xpos = self._turning.xpos
        self._references = None if xpos is None else References(xpos, batch)

    def _update(self, q: Tensor, tokens: Tokens, refers: list[int]) -> Step:
        slots = self._slots
        count, upto = tokens.k.shape[2], tokens.follow(self._next)
        moved = self._drop_old(count) or min(self.lengths) <= self.sinks
        slots.reserve(count)
        if self._references is not None:
            self._references.move(refers, slots.view("k"), self.lengths)
        self._next, self._together = upto, self._together and tokens.together
        self._regular = self._regular and tokens.counted
        self._capture(tokens)
        self._retune(tokens)
        q_turned = self._append(q, tokens)
        if moved:
            self._place_sinks()
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
        mask = real(mask, k)
        where = placed(k, positions, mask, self._next, self._axes)
        return arrange(k, v, where, mask, self.lengths)._replace(counted=positions is None)

    @property
    def _refers(self) -> list[int]:
        return [] if self._references is None else self._references.now

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

    def _capture(self, tokens: Tokens) -> None:
        """Keep a copy of each row's first tokens."""
        length = tokens.k.shape[2]
        for row, have in enumerate(self.lengths if self.sinks else []):
            count = tokens.counts[row]
            take = min(self.sinks - have, count)
            if take > 0:
                new = slice(length - count, length - count + take)
                for name, x in (("k", tokens.k), ("v", tokens.v), ("positions", tokens.at)):
                    self._sinks[name][row, :, have : have + take] = x[row, :, new]

    def _append(self, q: Tensor, tokens: Tokens) -> Tensor:
        """Write new tokens behind the others; returns rotated queries."""
        slots, turning, count = self._slots, self._turning, tokens.k.shape[2]
        buffers = slots.buffers
        if tokens.at.is_floating_point() and not buffers["positions"].is_floating_point():
            with torch.inference_mode(False):
                for held in (buffers, self._sinks) if self.sinks else (buffers,):
                    held["positions"] = held["positions"].double()
        new = slice(slots.end, slots.end + count)
        buffers["v"][:, :, new] = tokens.v
        buffers["positions"][:, :, new] = tokens.at
        if turning.kind == "stepped":
            buffers["raw"][:, :, new] = tokens.k
        slot = buffers["k"][:, :, new]
        if turning.kind in ("once", "stepped"):
            out = torch.empty_like(q), slot
            q = self._turn(q, tokens, out)
        else:
            slot.copy_(tokens.k)
        self._close_up(tokens, count)
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

    def _close_up(self, tokens: Tokens, count: int) -> None:
        """Count the new tokens in; take padding between old and new ones out."""
        slots, held = self._slots, self.lengths
        slots.end += count
        if all(c == count for c in tokens.counts):
            return
        whole = zip(held, tokens.counts, strict=True)
        if not any(n and c < count for n, c in whole):
            pairs = zip(slots.first, held, tokens.counts, strict=True)
            slots.first = [s if n else slots.end - c for s, n, c in pairs]
            slots.start = min(slots.first)
            return
        begun = torch.tensor(slots.first, device=tokens.k.device).unsqueeze(-1)
        inside = torch.arange(slots.start, slots.end, device=tokens.k.device)
        fresh = slots.end - torch.tensor(tokens.counts, device=tokens.k.device).unsqueeze(-1)
        slots.keep(((inside >= begun) & (inside < slots.end - count)) | (inside >= fresh))

    def _place_sinks(self) -> None:
        """Write the first tokens of each row in front of its others, from unrotated copies."""
        slots = self._slots
        if not self.sinks:
            return
        if not slots.ragged:
            return self._place(slice(None), slots.start, min(self.sinks, slots.held))
        for row, slot in enumerate(slots.first):
            self._place(slice(row, row + 1), slot, min(self.sinks, slots.end - slot))

    def _place(self, rows: slice, slot: int, count: int) -> None:
        buffers, kind = self._slots.buffers, self._turning.kind
        raw, v, at = (self._sinks[name][rows, :, :count] for name in ("k", "v", "positions"))
        after = slot + self.sinks
        closed_up = self.config.placement == "in_cache" and after < self._slots.end
        if closed_up:
            oldest = buffers["positions"][rows, :, after : after + 1]
            at = oldest + torch.arange(-count, 0, device=at.device)[:, None]
        k, held_v, held_at = (
            buffers[name][rows, :, slot : slot + count] for name in ("k", "v", "positions")
        )
        held_v.copy_(v)
        held_at.copy_(at)
        if kind == "stepped":
            buffers["raw"][rows, :, slot : slot + count] = raw
        if kind in ("once", "stepped") and count:
            where: int | Tensor = public(at, self._together)
            if closed_up and self._regular and self._together:
                where = self._next[0] - self._slots.held  # the same, as the number it is
            self._turning.keys(raw, where, self._tuned[rows], self._refers[rows], out=k)
        else:
            k.copy_(raw)

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
        slots, at = self._slots, self._slots.view("positions")[:, 0, :, 0]
        if not slots.held:
            return at.new_zeros(1)
        if self._together:
            return at[0, :1]
        begun = torch.tensor(slots.first, device=at.device).unsqueeze(-1) - slots.start
        return at.gather(1, begun.clamp(max=slots.held - 1))
