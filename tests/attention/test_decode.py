"""Decoding with a cache gives what attention over the whole sequence gives."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attention import KVCache, attention

from .test_softmax import ENCODINGS, D, H, fresh, randn

CAUSAL = [e for e in ENCODINGS if e.position_axes == 1]


def tokens(length: int) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (randn(2, n, length, D, seed=seed) for seed, n in enumerate((H, 2, 2)))
    return q, k, v


def cut(xs: tuple[Tensor, Tensor, Tensor], a: int, b: int) -> tuple[Tensor, Tensor, Tensor]:
    return xs[0][:, :, a:b], xs[1][:, :, a:b], xs[2][:, :, a:b]


def follows(encoding: whorl.Encoding) -> bool:
    return bool(getattr(getattr(encoding.config, "scaling", None), "follows_length", False))


@torch.no_grad()
@pytest.mark.parametrize("encoding", [e for e in CAUSAL if not follows(e)], ids=repr)
def test_steps_equal_the_whole(encoding: whorl.Encoding) -> None:
    encoding = fresh(encoding)
    q, k, v = tokens(14)
    want = attention(q, k, v, encoding, causal=True)
    cache, outs = KVCache(encoding), []
    for a, b in ((0, 6), (6, 7), (7, 8), (8, 11), (11, 14)):
        outs.append(attention(*cut((q, k, v), a, b), encoding, causal=True, cache=cache))
    torch.testing.assert_close(torch.cat(outs, 2), want, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_frequencies_that_follow_the_length_are_those_of_now() -> None:
    rope = whorl.RoPE(D, scaling=whorl.DynamicNTK(factor=2.0, original_context=8)).double()
    q, k, v = tokens(14)
    cache = KVCache(rope)
    for t in range(14):
        out = attention(*cut((q, k, v), t, t + 1), causal=True, cache=cache)
        now = attention(q[:, :, : t + 1], k[:, :, : t + 1], v[:, :, : t + 1], rope, causal=True)
        torch.testing.assert_close(out, now[:, :, t:], rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("encoding", [whorl.RoPE(D) + whorl.ALiBi(H), whorl.T5Bias(H)], ids=repr)
def test_windows_sinks_and_padding_are_those_of_the_cache(encoding: whorl.Encoding) -> None:
    encoding = fresh(encoding)
    q, k, v = tokens(20)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[0, :2] = False
    whole = torch.cat((mask, torch.ones(2, 14, dtype=torch.bool)), 1)
    at = whorl.positions.from_mask(whole)
    want = attention(q, k, v, encoding, causal=True, window=5, sinks=2, positions=at, mask=whole)
    cache = KVCache(encoding, window=5, sinks=2)
    outs = [attention(*cut((q, k, v), 0, 6), encoding, causal=True, cache=cache, mask=mask)]
    for t in range(6, 20):
        outs.append(attention(*cut((q, k, v), t, t + 1), causal=True, cache=cache))
    got = torch.cat(outs, 2)
    torch.testing.assert_close(got[1], want[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got[0, :, 2:], want[0, :, 2:], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_the_module_decodes() -> None:
    layer = whorl.MultiheadAttention(32, 4, num_kv_heads=2, encoding=whorl.RoPE(8), causal=True)
    layer.double()
    x = torch.randn(2, 9, 32).double()
    cache = KVCache(layer.encoding)
    steps = [layer(x[:, t : t + 1], cache=cache) for t in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": False}, r"causal must be True with a cache, because earlier tokens cannot see"),
        ({"key_positions": torch.arange(3)}, r"key_positions must be None with a cache, which"),
        (
            {"segments": torch.arange(3)},
            r"segments must be None with a cache, which knows its keys",
        ),
        ({"context_length": 9}, r"context_length must be None with a cache, .* Leave it out\."),
        (
            {"encoding": whorl.ALiBi(H)},
            r"encoding must be that of the cache, RoPE\(8\); got ALiBi\(4\)",
        ),
        ({"window": 5}, r"those of the cache, 4 and 0; got 5 and 0"),
        ({"scale": "big"}, r"scale must be a finite number, or None"),
        ({"mask": torch.ones(2, 2).bool()}, r"KVCache.update: mask must be \[B, T\] = \[2, 3\]"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_refused_is_not_cached(options: dict[str, Any], message: str) -> None:
    rope = whorl.RoPE(D)
    q, k, v = tokens(3)
    cache = KVCache(rope, window=4)
    attention(q, k, v, causal=True, cache=cache)
    with pytest.raises(ValueError, match=message):
        attention(q, k, v, **{"encoding": rope, "cache": cache, "causal": True, **options})
    assert cache.length == 3


def test_caches_that_do_not_fit() -> None:
    rope = whorl.RoPE(D)
    q, k, v = tokens(3)
    with pytest.raises(
        ValueError, match=r"cache must be built with the encoding, because RoPE\(8\)"
    ):
        attention(q, k, v, rope, causal=True, cache=KVCache())
    with pytest.raises(TypeError, match=r"cache must be a whorl\.KVCache, or None; got \{\}\."):
        attention(q, k, v, rope, causal=True, cache={})  # type: ignore[arg-type]


def test_what_is_refused_is_not_held() -> None:
    cache = whorl.KVCache()
    x = torch.randn(1, 2, 3, 8)
    at = torch.tensor([0.0, 0.5, 1.0])
    with pytest.raises(TypeError, match=r"attention: positions must be integers for T5Bias"):
        whorl.attention(x, x, x, whorl.T5Bias(2), causal=True, cache=cache, positions=at)
    assert cache.length == 0
