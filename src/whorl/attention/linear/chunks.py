"""How a call of linear attention runs: block by block, and under a causal mask chunk by chunk.

Features are made for a block of tokens at a time, so that they stay in the cache of the processor
and memory beyond inputs and result does not grow with the length. Tensors are split, never sliced:
the gradient of each slice would be as long as the whole.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from whorl.attention._output import Output
from whorl.encodings.rotary.call import ResolvedPositions
from whorl.encodings.xpos import XPos
from whorl.kernels.tables import choose_table_dtype

from .checks import Acting
from .features import KEY, QUERY, FeatureMap, Features, Pair, part, unscaling
from .positions import Places, current_length
from .references import moved, reference_at, shortened, within_reach
from .sums import Sums, Weigher, Weights, advance, attend, divide

__all__ = ["Call", "Past", "bidirectional", "causal_chunks"]

_BLOCK = 512


class Call(NamedTuple):
    """What a call was given, checked; floor: denominators not above it give 0."""

    q: Tensor
    k: Tensor
    v: Tensor
    keep: Tensor | None
    feature_map: FeatureMap
    parts: Acting
    context_length: int | Tensor | None
    floor: float

    @property
    def dtype(self) -> torch.dtype:
        return choose_table_dtype(self.q)

    @property
    def groups(self) -> int:
        """Query heads to a head of the sums; a decay differs between query heads."""
        return 1 if self.parts.decay is not None else self.q.shape[1] // self.k.shape[1]

    def zero(self) -> Sums:
        """Sums of no keys."""
        B, H, _, D = self.q.shape
        shape = (B, H // self.groups, D + (self.feature_map == "cosine"))
        new = self.q.new_zeros((*shape, self.v.shape[3]), dtype=self.dtype)
        return Sums(new, new.new_zeros(shape))

    def features(
        self, queries: ResolvedPositions, keys: ResolvedPositions, stateful: bool
    ) -> Features:
        """How vectors become features, with tokens where they are."""
        rotation, length = self.parts.rotation, self.context_length
        if length is None:
            lengths = [self.q.shape[2], self.k.shape[2]]
            length = current_length(rotation, [queries, keys], lengths, stateful)
        undo = unscaling(rotation, length, self.q, self.dtype)
        return Features(self.feature_map, self.dtype, rotation, length, undo)

    def grouped(self, made: Pair) -> Pair:
        """Features of queries [B, H, T, F] as [B, G, r, T, F]."""
        return _each(made, lambda x: torch.unflatten(x, 1, (-1, self.groups)))

    def ready(self, made: Pair, v: Tensor, start: int) -> tuple[Pair, Tensor]:
        """Features and values of a block of keys: hidden ones 0, heads repeated for a decay."""
        v = v.to(self.dtype)
        if self.keep is not None:
            hidden = ~self.keep[:, None, start : start + v.shape[2], None]
            # Values too: padding may hold anything, and 0 times infinity is not 0.
            made, v = _each(made, lambda x: x.masked_fill(hidden, 0.0)), v.masked_fill(hidden, 0.0)
        repeat = self.q.shape[1] // self.groups // v.shape[1]
        if repeat > 1:
            made = _each(made, lambda x: x.repeat_interleave(repeat, 1))
            v = v.repeat_interleave(repeat, 1)
        return made, v

    def seeing(self, sums: Sums, queries: Pair) -> Tensor:
        """What queries [B, G, r, T, F] get that see all keys in the sums."""
        f, g = _each(queries, lambda x: x.flatten(2, 3))
        below = (g @ sums.denominator.unsqueeze(-1)).squeeze(-1)
        return self.result(f @ sums.numerator, below)

    def result(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """[B, H, T, Dv] in the dtype of the inputs, from [B, G, r T, Dv] and [B, G, r T]."""
        out = divide(numerator, denominator, self.floor).to(self.q.dtype)
        return out if self.groups == 1 else torch.unflatten(out, 2, (self.groups, -1)).flatten(1, 2)


@dataclass
class Past:
    """What the tokens so far have left; last: their last position, [1] or [B], where known.

    reference: of XPos; None before the first token.
    """

    sums: Sums
    last: Tensor | None = None
    reference: int | Tensor | None = None

    def move(self, xpos: XPos, reference: int | Tensor, feature_map: FeatureMap) -> None:
        """Take the sums to another reference."""
        self.sums = moved(xpos, self.sums, self.reference, reference, feature_map)
        self.reference = reference

    def take(self, keys: Pair, v: Tensor, weights: Weights) -> None:
        """Add the keys of a chunk."""
        self.sums, self.last = advance(self.sums, keys, v, weights), weights.end


def bidirectional(call: Call, queries: ResolvedPositions, keys: ResolvedPositions) -> Tensor:
    """Every query sees every key."""
    features, sums = call.features(queries, keys, stateful=False), call.zero()
    start, outs = 0, Output(call.q, call.v, call.k)
    for k, v in zip(_cut(call.k, _BLOCK), _cut(call.v, _BLOCK), strict=True):
        made = features.of(k, part(keys, start, k.shape[2]), KEY)
        sums = advance(sums, *call.ready(made, v, start), Weights())
        start += k.shape[2]
    start = 0
    for q in _cut(call.q, _BLOCK):
        made = features.of(q, part(queries, start, q.shape[2]), QUERY)
        outs.append(call.seeing(sums, call.grouped(made)))
        start += q.shape[2]
    return outs.whole()


def causal_chunks(call: Call, places: Places, past: Past, chunk: int, stateful: bool) -> Tensor:
    """Each query sees the keys up to itself; ``past`` takes them in."""
    where, rotation = places.where, call.parts.rotation
    T, S, block = call.q.shape[2], call.k.shape[2], max(chunk, _BLOCK // chunk * chunk)
    xpos = rotation if isinstance(rotation, XPos) else None
    if xpos is not None:
        block, where = shortened(xpos, block), within_reach(xpos, places)
    features = call.features(part(where, S - T, T), where, stateful)
    weigher = _weigher(call, places)
    ks, vs = (_blocks(x, S - T, block) for x in (call.k, call.v))
    seen = _blocks(call.q, 0, block)
    qs = [*[None] * (len(ks) - len(seen)), *seen]
    start, outs = 0, Output(call.q, call.v, call.k)
    for q, k, v in zip(qs, ks, vs, strict=True):
        length = k.shape[2]
        if xpos is not None:
            past.move(xpos, reference_at(xpos, places, start, k), call.feature_map)
        # Keys without a query of their own stand in for it: its features are not used.
        pair = (k if q is None else q), k
        queries, keys = features.both(*pair, part(where, start, length), past.reference)
        keys, v = call.ready(keys, v, start)
        if q is None or length == 1:
            past.take(keys, v, weigher.weights(start, length, past.last))
        if q is not None and length == 1:  # a decode step: the sums are all that it sees
            outs.append(call.seeing(past.sums, call.grouped(queries)))
        elif q is not None:
            made = call.grouped(queries), keys, v
            for out in _chunks(call, past, made, weigher, (start, chunk)):
                outs.append(out)
        start += length
    return outs.whole()


def _chunks(
    call: Call, past: Past, block: tuple[Pair, Pair, Tensor], weigher: Weigher, at: tuple[int, int]
) -> Iterator[Tensor]:
    """Results of one block, chunk by chunk; at: its first token, and tokens to a chunk."""
    (queries, keys, values), (start, chunk) = block, at
    pieces = zip(
        _split(queries, chunk, 3), _split(keys, chunk, 2), _cut(values, chunk), strict=True
    )
    for q, k, v in pieces:
        q, length = _each(q, lambda x: x.flatten(2, 3)), v.shape[2]
        weights = weigher.weights(start, length, past.last)
        parts = attend(past.sums, q, k, v, weigher.within(start, length), weights.into)
        yield call.result(*parts)
        past.take(k, v, weights)
        start += length


def _weigher(call: Call, places: Places) -> Weigher:
    decay, (where, line, _), S = call.parts.decay, places, call.k.shape[2]
    like = call.q.new_empty(0, dtype=call.dtype)
    if decay is None:
        return Weigher(like, call.groups, None, None, even=True)
    if line is None:
        line = torch.arange(where[1], where[1] + S, device=like.device).unsqueeze(0)
    return Weigher(like, 1, decay.slopes(), line.double(), even=where[0] is None)


def _blocks(x: Tensor, before: int, size: int) -> list[Tensor]:
    """Blocks of the first ``before`` tokens, and of the others."""
    # By one size, not by a list of them: compiled code then fits other lengths as well.
    parts = torch.split(x, [before, x.shape[2] - before], 2) if before else (x,)
    return [block for part in parts if part.shape[2] for block in _cut(part, size)]


def _each(pair: Pair, change: Callable[[Tensor], Tensor]) -> Pair:
    """Both changed; one tensor stays one."""
    f = change(pair.f)
    return Pair(f, f if pair.g is pair.f else change(pair.g))


def _split(pair: Pair, size: int, dim: int) -> list[Pair]:
    f = _cut(pair.f, size, dim)
    g = f if pair.g is pair.f else _cut(pair.g, size, dim)
    return [Pair(*both) for both in zip(f, g, strict=True)]


def _cut(x: Tensor, size: int, dim: int = 2) -> tuple[Tensor, ...]:
    """Pieces along the tokens, and a rest."""
    return torch.split(x, size, dim)
