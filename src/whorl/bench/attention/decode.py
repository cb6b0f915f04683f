"""Decoding with a cache, one token at a time: streams, and frequencies that follow the length.

Every token before the clock starts is generated too, one by one, so that a cache is in the state of
long use. Token t is entry t modulo the size of a pool.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl import DynamicNTK, KVCache, RoPE, attention
from whorl.bench.contestants import Contestant, ContestantMakers
from whorl.kernels import reference

from . import oracle
from .plan import HEAD_DIM, SINKS, Cell, Plan

__all__ = ["stepped", "streaming"]

_POOL = 4096
_STEPS = 16  # for each doubling, of frequencies that follow the length
_FACTOR = 2.0


class _Decoder:
    """Generates tokens with a cache."""

    def __init__(self, cache: KVCache) -> None:
        self.cache, self.count = cache, 0
        self.pool = oracle.inputs(_POOL)

    def run(self, tokens: int) -> Tensor:
        """Results of the last of so many tokens."""
        cache, out = self.cache, torch.empty(0)
        for _ in range(tokens):
            n = self.count % _POOL
            self.count += 1
            q, k, v = (x[:, :, n : n + 1] for x in self.pool)
            out = attention(
                q, k, v, cache.encoding,
                causal=True, window=cache.window, sinks=cache.sinks, cache=cache,
            )  # fmt: skip
        return out

    def right(self, tokens: Iterable[int], inv_freq: Tensor | None = None) -> Tensor:
        """The right result for the last token if it sees ``tokens``, counted from 0."""
        seen = torch.tensor([n % _POOL for n in tokens])
        q, k, v = (x[:, :, seen] for x in self.pool)
        return oracle.decoded(q[:, :, -1:], k, v, inv_freq)


def streaming(cell: Cell, plan: Plan) -> ContestantMakers:
    """A token after so many others, and what a stream costs without whorl's cache."""
    window = plan.window

    def make(length: int) -> Contestant:
        rope = RoPE(HEAD_DIM)
        stream = _Decoder(KVCache(rope, window=window, sinks=SINKS, placement="in_cache"))
        stream.run(length - 1)

        def problem() -> str | None:
            out, now = stream.run(1), stream.count
            kept = range(now) if now <= SINKS + window else range(now - window, now)
            sinks = range(SINKS) if now > SINKS + window else range(0)
            return oracle.difference(out, stream.right([*sinks, *kept]))

        return Contestant(str(length), lambda: stream.run(plan.run), problem, plan.run)

    found: ContestantMakers = [(str(n), lambda n=n: make(n)) for n in cell.lengths]  # type: ignore[misc]
    return [
        *found,
        ("recomputed", lambda: _recomputed(window, max(1, plan.run // 32))),
        ("rotated", lambda: _rotated(window + SINKS, max(1, plan.run // 8))),
    ]


def stepped(cell: Cell, plan: Plan) -> ContestantMakers:
    """A token after ``length`` others: fixed frequencies, and those that follow the length.

    Caches grow while they are timed, all alike. Every sample is as long as one step, so that each
    has its share of keys rotated anew.
    """
    run = max(1, cell.length // _STEPS)
    scaling = DynamicNTK(factor=_FACTOR, original_context=max(2, cell.length // 2))

    def make(name: str) -> Contestant:
        rope = RoPE(HEAD_DIM, scaling=None if name == "fixed" else scaling)
        how = "stepped" if name == "follows-stepped" else "exact"
        capacity = cell.length + run * (plan.repeats + 2)
        cache = KVCache(rope, frequencies=how, steps=_STEPS, capacity=capacity)  # type: ignore[arg-type]
        decoder = _Decoder(cache)
        past = oracle.inputs(_POOL)
        whole = [torch.cat([x] * -(-cell.length // _POOL), 2)[:, :, : cell.length] for x in past]
        cache.update(*whole)
        decoder.count = cell.length

        def problem() -> str | None:
            out, now = decoder.run(1), decoder.count
            length = {"fixed": 1, "follows-stepped": _step_up(now)}.get(name, now)
            freqs = _followed(length, max(2, cell.length // 2))
            return oracle.difference(out, decoder.right(range(now), freqs))

        return Contestant(name, lambda: decoder.run(run), problem, run)

    names = ("fixed", "follows-stepped", "follows-exact")
    return [(name, lambda name=name: make(name)) for name in names]  # type: ignore[misc]


def _recomputed(length: int, times: int) -> Contestant:
    """The window as a text of its own for every token: no cache."""
    q, k, v = oracle.inputs(length)
    rope = RoPE(HEAD_DIM)

    def once() -> Tensor:
        return attention(q, k, v, rope, causal=True)[:, :, -1:]

    def call() -> None:
        for _ in range(times):
            once()

    def problem() -> str | None:
        return oracle.difference(once(), oracle.decoded(q[:, :, -1:], k, v))

    return Contestant("recomputed", call, problem, times)


def _rotated(length: int, times: int) -> Contestant:
    """Unrotated keys in a cache, all rotated for every token: the code of StreamingLLM."""
    q, k, v = oracle.inputs(length)
    rope, at = RoPE(HEAD_DIM), torch.arange(length)
    token = q[:, :, -1:], k[:, :, -1:], v[:, :, -1:]

    def once(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        held = [x[:, :, :SINKS] for x in (keys, values)]
        recent = [x[:, :, SINKS + 1 :] for x in (keys, values)]
        keys, values = (
            torch.cat(parts, dim=2) for parts in zip(held, recent, token[1:], strict=True)
        )
        new, turned = rope(token[0], keys, at[-1:], at)
        return F.scaled_dot_product_attention(new, turned, values), keys, values

    def call() -> None:
        keys, values = k, v
        for _ in range(times):
            _, keys, values = once(keys, values)

    def problem() -> str | None:
        out, keys, values = once(k, v)
        return oracle.difference(out, oracle.decoded(token[0], keys, values))

    return Contestant("rotated", call, problem, times)


def _step_up(length: int) -> int:
    """``length`` rounded up to one of ``_STEPS`` steps between powers of two."""
    power = 1
    while power < length:
        power *= 2
    unit = max(1, power // 2 // _STEPS)
    return -(-length // unit) * unit


def _followed(length: int, trained: int) -> Tensor:
    """Inverse frequencies of DynamicNTK at a length: base s^(D / (D - 2))."""
    stretch = max(1.0, 1 + _FACTOR * (length - trained) / trained)
    base = 10_000.0 * stretch ** (HEAD_DIM / (HEAD_DIM - 2))
    return reference.compute_inv_freq(HEAD_DIM, base)
