"""The error of a deep model if frequencies change while it decodes.

A scaling that depends on the length (DynamicNTK, LongRoPE ...) changes the frequencies of all keys
while the text grows, and ``KVCache`` does so for every key that it holds. But above the first layer
the keys themselves were computed from outputs of lower layers at earlier frequencies. Only running
the whole prefix again corrects that; ``cache_drift`` measures the difference between the two, for
your layers and inputs.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.attention.cache.kv_cache import KVCache
from whorl.attention.multihead import MultiheadAttention

__all__ = ["Drift", "cache_drift"]


class Drift(NamedTuple):
    """|cached - recomputed| / |recomputed| of the last of ``length`` tokens, in the worst row.

    exact, stepped: the value for each choice of ``frequencies`` of the cache.
    """

    length: int
    exact: float
    stepped: float


@torch.no_grad()
def cache_drift(
    layers: Sequence[MultiheadAttention],
    x: Tensor,
    *,
    prompt: int,
    lengths: Sequence[int],
    steps: int = 64,
) -> list[Drift]:
    """The difference between decoding with caches and recomputing the prefix, at some lengths.

    x [B, T, d_model] goes through the layers with residual connections: h + layer(h). The first
    ``prompt`` tokens are computed at once, the others one by one. lengths: increasing, above
    ``prompt``, up to T; at each, the prefix is also computed again with new caches.

    >>> import torch, whorl
    >>> rope = whorl.RoPE(8, scaling=whorl.DynamicNTK(factor=2.0, original_context=8))
    >>> layers = [whorl.MultiheadAttention(32, 4, encoding=rope).double() for _ in range(2)]
    >>> x = torch.randn(1, 16, 32, dtype=torch.float64)
    >>> one = whorl.analysis.cache_drift(layers[:1], x, prompt=4, lengths=[8, 16])
    >>> two = whorl.analysis.cache_drift(layers, x, prompt=4, lengths=[8, 16])
    >>> [drift.exact < 1e-12 for drift in one], [drift.exact < 1e-12 for drift in two]
    ([True, True], [True, False])
    """
    _check_arguments(layers, x, prompt, lengths)
    wanted = [
        _run_layers(layers, _make_caches(layers, "exact", steps), x[:, :n])[:, -1] for n in lengths
    ]
    found: dict[str, list[float]] = {}
    for how in ("exact", "stepped"):
        caches = _make_caches(layers, how, steps)
        _run_layers(layers, caches, x[:, :prompt])
        found[how], left = [], dict(zip(lengths, wanted, strict=True))
        for t in range(prompt, lengths[-1]):
            out = _run_layers(layers, caches, x[:, t : t + 1])[:, -1]
            if (want := left.get(t + 1)) is not None:
                away = (out - want).double().norm(dim=-1) / want.double().norm(dim=-1)
                found[how].append(float(away.max()))
    return [Drift(*each) for each in zip(lengths, found["exact"], found["stepped"], strict=True)]


def _make_caches(
    layers: Sequence[MultiheadAttention], how: Literal["exact", "stepped"], steps: int
) -> list[KVCache]:
    return [KVCache(layer.encoding, frequencies=how, steps=steps) for layer in layers]


def _run_layers(layers: Sequence[MultiheadAttention], caches: list[KVCache], h: Tensor) -> Tensor:
    for layer, cache in zip(layers, caches, strict=True):
        h = h + layer(h, causal=True, cache=cache)
    return h


def _check_arguments(
    layers: Sequence[MultiheadAttention], x: Tensor, prompt: int, lengths: Sequence[int]
) -> None:
    if not layers or not all(isinstance(layer, MultiheadAttention) for layer in layers):
        raise TypeError(
            "cache_drift: layers must be a list of at least one whorl.MultiheadAttention; got"
            f" {quote(layers)}."
        )
    if any(layer.training and layer.dropout for layer in layers):
        raise ValueError(
            "cache_drift: layers must not use dropout, because two runs are compared; got layers in"
            " training mode. Call eval() on them first."
        )
    if not isinstance(x, Tensor) or x.dim() != 3:
        came = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"cache_drift: x must be a tensor [B, T, d_model]; got {came}.")
    asked = [prompt, *lengths]
    increasing = all(type(n) is int for n in asked) and asked == sorted(set(asked))
    if not increasing or len(asked) < 2 or prompt < 1 or asked[-1] > x.shape[1]:
        raise ValueError(
            f"cache_drift: prompt and lengths must be ints that increase from 1 to at most T ="
            f" {x.shape[1]}, with at least one length; got {quote(prompt)} and"
            f" {quote(list(lengths))}."
        )
