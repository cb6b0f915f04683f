"""Decoding with a cache against recomputing the prefix, where frequencies follow the length."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.analysis import Drift, cache_drift
from whorl.scaling import DynamicNTK

D, TRAINED = 8, 8


def stack(count: int, **scaling: Any) -> tuple[list[whorl.MultiheadAttention], Tensor]:
    torch.manual_seed(0)
    ntk = DynamicNTK(factor=2.0, original_context=TRAINED)
    rope = whorl.RoPE(D, **{"scaling": ntk, **scaling})
    layers = [whorl.MultiheadAttention(32, 4, encoding=rope).double() for _ in range(count)]
    return layers, torch.randn(2, 40, 32, dtype=torch.float64)


def whole(layers: list[whorl.MultiheadAttention], x: Tensor) -> Tensor:
    """The last output of a prefix at its own length, without any cache."""
    for layer in layers:
        x = x + layer(x, causal=True, context_length=x.shape[1])
    return x[:, -1]


def test_one_layer_has_none_but_that_of_the_steps() -> None:
    layers, x = stack(1)
    for drift in cache_drift(layers, x, prompt=4, lengths=[5, 8, 9, 20, 40], steps=1):
        assert drift.exact < 1e-13
        stepped = drift.length not in (5, 8)  # the grid of one step for each doubling: 16, 32, 64
        assert (drift.stepped > 1e-4) == stepped


def test_deep_layers_drift_past_the_trained_length_only() -> None:
    layers, x = stack(3)
    drifts = cache_drift(layers, x, prompt=4, lengths=[8, 9, 20, 40])
    assert [drift.length for drift in drifts] == [8, 9, 20, 40]
    assert drifts[0].exact < 1e-13
    assert drifts[0].stepped < 1e-13
    assert all(drift.exact > 1e-4 for drift in drifts[1:])
    fixed = cache_drift(*stack(3, scaling=None), prompt=4, lengths=[40])
    assert fixed[0].exact < 1e-13


@torch.no_grad()
def test_by_hand() -> None:
    """Two layers token by token, each key from what was known then; and reset with one call."""
    layers, x = stack(2)
    caches = [whorl.KVCache(layer.encoding) for layer in layers]
    outs = []
    for t in range(12):
        h = x[:, t : t + 1]
        for layer, cache in zip(layers, caches, strict=True):
            h = h + layer(h, causal=True, cache=cache)
        outs.append(h[:, 0])
    want = whole(layers, x[:, :12])
    away = float(((outs[-1] - want).norm(dim=-1) / want.norm(dim=-1)).max())
    found = cache_drift(layers, x, prompt=1, lengths=[12])[0]
    assert isinstance(found, Drift)
    assert found.exact == pytest.approx(away, rel=1e-9)
    h = x[:, :12]
    for layer, cache in zip(layers, caches, strict=True):
        cache.reset()
        h = h + layer(h, causal=True, cache=cache)
    torch.testing.assert_close(h[:, -1], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"layers": []}, TypeError, r"a list of at least one whorl\.MultiheadAttention; got"),
        ({"layers": [whorl.RoPE(D)]}, TypeError, r"one whorl\.MultiheadAttention; got \[RoPE"),
        ({"x": torch.zeros(4, 32)}, ValueError, r"x must be a tensor \[B, T, d_model\]; got \[4,"),
        (
            {"lengths": [9, 9]},
            ValueError,
            r"ints that increase from 1 to at most T = 40, .* 4 and \[9,",
        ),
        ({"lengths": [41]}, ValueError, r"with at least one length; got 4 and \[41\]\."),
        ({"lengths": []}, ValueError, r"got 4 and \[\]\."),
        ({"prompt": 0}, ValueError, r"got 0 and \[9\]\."),
        (
            {"layers": [whorl.MultiheadAttention(32, 4, dropout=0.1)]},
            ValueError,
            r"layers must not use dropout, .* Call eval\(\) on them first\.",
        ),
    ],
)
def test_errors(change: dict[str, Any], error: type[Exception], message: str) -> None:
    layers, x = stack(1)
    with pytest.raises(error, match="cache_drift: .*" + message):
        cache_drift(**{"layers": layers, "x": x, "prompt": 4, "lengths": [9], **change})
