"""Decoding with a cache, one token per call: streaming, and scalings that follow the length.

The tokens before the timing are generated one by one as well, so that the cache is in the state
that it has after long use. Token t is entry t modulo ``_POOL`` of a pool of random vectors.
"""

from collections.abc import Iterable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl import DynamicNTK, KVCache, RoPE, attention
from whorl.bench.contestants import Contestant, ContestantMakers
from whorl.kernels import reference

from . import oracle
from .plan import HEAD_DIM, SINKS, Cell, Plan

__all__ = ["build_stepped", "build_streaming"]

_POOL = 4096
_STEPS = 16  # of the frequencies for each doubling of the length
_FACTOR = 2.0


class _Decoder:
    """Decodes tokens with a cache, and computes the expected result of the last one."""

    def __init__(self, cache: KVCache) -> None:
        self.cache, self.count = cache, 0
        self.pool = oracle.make_inputs(_POOL)

    def run(self, tokens: int) -> Tensor:
        """Output of the last token after decoding ``tokens`` more tokens."""
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

    def compute_expected(self, tokens: Iterable[int], inv_freq: Tensor | None = None) -> Tensor:
        """Output of the last token if it attends to ``tokens``, counted from 0."""
        visible = torch.tensor([n % _POOL for n in tokens])
        q, k, v = (x[:, :, visible] for x in self.pool)
        return oracle.compute_decode(q[:, :, -1:], k, v, inv_freq)


def build_streaming(cell: Cell, plan: Plan) -> ContestantMakers:
    """One token of a stream after each of ``cell.lengths``, and two ways without whorl's cache."""
    window = plan.window

    def make(length: int) -> Contestant:
        rope = RoPE(HEAD_DIM)
        stream = _Decoder(KVCache(rope, window=window, sinks=SINKS, placement="in_cache"))
        stream.run(length - 1)

        def find_problem() -> str | None:
            out, now = stream.run(1), stream.count
            recent = range(now) if now <= SINKS + window else range(now - window, now)
            sinks = range(SINKS) if now > SINKS + window else range(0)
            return oracle.describe_difference(out, stream.compute_expected([*sinks, *recent]))

        return Contestant(str(length), lambda: stream.run(plan.run), find_problem, plan.run)

    return [
        *((str(n), partial(make, n)) for n in cell.lengths),
        ("recomputed", lambda: _build_recomputed(window, max(1, plan.run // 32))),
        ("rotated", lambda: _build_rotated(window + SINKS, max(1, plan.run // 8))),
    ]


def build_stepped(cell: Cell, plan: Plan) -> ContestantMakers:
    """One token after ``cell.length`` others, with fixed frequencies and with DynamicNTK.

    Caches grow during the timing, all by the same number of tokens. A sample is as long as one step
    of the frequencies, so that every sample pays once for rotating the cached keys again.
    """
    run = max(1, cell.length // _STEPS)
    scaling = DynamicNTK(factor=_FACTOR, original_context=max(2, cell.length // 2))

    def make(name: str) -> Contestant:
        rope = RoPE(HEAD_DIM, scaling=None if name == "fixed" else scaling)
        how = "stepped" if name == "follows-stepped" else "exact"
        capacity = cell.length + run * (plan.repeats + 2)
        cache = KVCache(rope, frequencies=how, steps=_STEPS, capacity=capacity)  # type: ignore[arg-type]
        decoder = _Decoder(cache)
        past = oracle.make_inputs(_POOL)
        whole = [torch.cat([x] * -(-cell.length // _POOL), 2)[:, :, : cell.length] for x in past]
        cache.update(*whole)
        decoder.count = cell.length

        def find_problem() -> str | None:
            out, now = decoder.run(1), decoder.count
            length = {"fixed": 1, "follows-stepped": _round_up_to_step(now)}.get(name, now)
            freqs = _compute_dynamic_frequencies(length, max(2, cell.length // 2))
            return oracle.describe_difference(out, decoder.compute_expected(range(now), freqs))

        return Contestant(name, lambda: decoder.run(run), find_problem, run)

    names = ("fixed", "follows-stepped", "follows-exact")
    return [(name, partial(make, name)) for name in names]


def _build_recomputed(length: int, times: int) -> Contestant:
    """No cache: the whole window is computed again for every token."""
    q, k, v = oracle.make_inputs(length)
    rope = RoPE(HEAD_DIM)

    def once() -> Tensor:
        return attention(q, k, v, rope, causal=True)[:, :, -1:]

    def call() -> None:
        for _ in range(times):
            once()

    def find_problem() -> str | None:
        return oracle.describe_difference(once(), oracle.compute_decode(q[:, :, -1:], k, v))

    return Contestant("recomputed", call, find_problem, times)


def _build_rotated(length: int, times: int) -> Contestant:
    """Unrotated keys in the cache, all rotated again for every token, as StreamingLLM does."""
    q, k, v = oracle.make_inputs(length)
    rope, positions = RoPE(HEAD_DIM), torch.arange(length)
    token = q[:, :, -1:], k[:, :, -1:], v[:, :, -1:]

    def once(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sinks = [x[:, :, :SINKS] for x in (keys, values)]
        recent = [x[:, :, SINKS + 1 :] for x in (keys, values)]
        keys, values = (
            torch.cat(parts, dim=2) for parts in zip(sinks, recent, token[1:], strict=True)
        )
        query, rotated = rope(token[0], keys, positions[-1:], positions)
        return F.scaled_dot_product_attention(query, rotated, values), keys, values

    def call() -> None:
        keys, values = k, v
        for _ in range(times):
            _, keys, values = once(keys, values)

    def find_problem() -> str | None:
        out, keys, values = once(k, v)
        return oracle.describe_difference(out, oracle.compute_decode(token[0], keys, values))

    return Contestant("rotated", call, find_problem, times)


def _round_up_to_step(length: int) -> int:
    """``length`` rounded up to a step, where a doubling of the length has ``_STEPS`` steps."""
    power = 1 << (length - 1).bit_length()
    unit = max(1, power // 2 // _STEPS)
    return -(-length // unit) * unit


def _compute_dynamic_frequencies(length: int, trained: int) -> Tensor:
    """Inverse frequencies of DynamicNTK at a length: base s^(D / (D - 2))."""
    factor = max(1.0, 1 + _FACTOR * (length - trained) / trained)
    base = 10_000.0 * factor ** (HEAD_DIM / (HEAD_DIM - 2))
    return reference.compute_inv_freq(HEAD_DIM, base)
