"""A mask that hides nothing costs nothing: the call takes the way of one without it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import whorl
from whorl.attention import attention, linear_attention
from whorl.attention.linear.checks import read_mask
from whorl.attention.softmax import compute

from .test_softmax import D, H, randn

B, T = 2, 20
MASKS: dict[str, dict[str, Any]] = {
    "padding": {"mask": torch.ones(B, T, dtype=torch.bool)},
    "integers": {"mask": torch.ones(B, T, dtype=torch.int64)},
    "pairs": {"mask": torch.ones(B, 1, T, T, dtype=torch.bool)},
    "one for all": {"mask": torch.ones(1, 1, 1, 1, dtype=torch.bool)},
    "document": {"documents": torch.full((T,), 7)},
    "documents": {"documents": torch.tensor([3, 8]).unsqueeze(-1).expand(B, T)},
    "window": {"window": T},
    "window and sinks": {"window": 10**6, "sinks": 2},
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("encoding", [whorl.NoPE(), whorl.RoPE(D), whorl.ALiBi(H)], ids=repr)
def test_the_same_way_and_the_same_bits(
    encoding: whorl.Encoding, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("blocks")

    q, k, v = (randn(B, H, T, D, seed=n, dtype=torch.float32) for n in range(3))
    short = q[:, :, -3:]
    wanted = [attention(x, k, v, encoding, causal=True) for x in (q, short)]
    hidden = torch.ones(B, T, dtype=torch.bool).index_fill(1, torch.tensor(0), False)
    monkeypatch.setattr(compute.SoftmaxCall, "attend_in_blocks", refuse)
    for x, want in zip((q, short), wanted, strict=True):
        if name == "pairs" and x is short:
            continue
        assert torch.equal(attention(x, k, v, encoding, causal=True, **MASKS[name]), want)
    with pytest.raises(AssertionError, match="blocks"):
        attention(q, k, v, encoding, causal=True, mask=hidden)
    with pytest.raises(AssertionError, match="blocks"):
        attention(q, k, v, encoding, causal=True, documents=torch.arange(T) // 19)
    with pytest.raises(AssertionError, match="blocks"):
        attention(q, k, v, encoding, causal=True, window=T - 1, sinks=1)


def test_a_window_that_reaches_both_ends_without_a_causal_mask() -> None:
    q, k, v = (randn(1, H, T, D, seed=n, dtype=torch.float32) for n in range(3))
    want = attention(q, k, v, whorl.ALiBi(H))
    assert torch.equal(attention(q, k, v, whorl.ALiBi(H), window=T), want)
    assert not torch.equal(attention(q, k, v, whorl.ALiBi(H), window=T - 1), want)


def test_one_packed_document() -> None:
    q, k, v = (randn(1, H, T, D, seed=n, dtype=torch.float32) for n in range(3))
    ends = torch.tensor([0, T])
    want = attention(q, k, v, whorl.RoPE(D), causal=True)
    assert torch.equal(attention(q, k, v, whorl.RoPE(D), causal=True, cu_seqlens=ends), want)


def test_linear_attention_too() -> None:
    k = randn(B, H, T, D)
    assert read_mask(torch.ones(B, T, dtype=torch.bool), k) is None
    hiding = torch.arange(T).expand(B, T) > 0
    found = read_mask(hiding, k)
    assert found is not None
    assert torch.equal(found, hiding)


def record(call: Callable[..., Tensor], *given: Tensor) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    compiled: Callable[..., Tensor] = torch.compile(call, fullgraph=True, backend="eager")
    compiled(*given)
    return compiled


def trace(call: Callable[..., Tensor], *given: Tensor) -> Callable[..., Tensor]:
    traced: Callable[..., Tensor] = make_fx(call)(*given)
    return traced


def export(call: Callable[..., Tensor], *given: Tensor) -> Callable[..., Tensor]:
    class Module(torch.nn.Module):
        def forward(self, *given: Tensor) -> Tensor:
            return call(*given)

    made: Callable[..., Tensor] = torch.export.export(Module(), given).module()
    return made


@pytest.mark.parametrize("way", [record, trace, export])
@pytest.mark.parametrize("function", [attention, linear_attention])
def test_what_is_written_down_keeps_the_mask(
    function: Callable[..., Tensor], way: Callable[..., Callable[..., Tensor]]
) -> None:
    """The mask of the first call hides nothing; that of a later one does."""
    q, k, v = (randn(B, H, T, D, seed=n) for n in range(3))
    ones = torch.ones(B, T, dtype=torch.bool)

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return function(q, k, v, causal=True, mask=mask)

    made = way(call, q, k, v, ones)
    hiding = torch.arange(T).expand(B, T) > torch.tensor([[2], [5]])
    torch.testing.assert_close(made(q, k, v, hiding), call(q, k, v, hiding))
    torch.testing.assert_close(made(q, k, v, ones), call(q, k, v, ones))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_over_masks() -> None:
    q, k, v = (randn(B, H, T, D, seed=n) for n in range(3))
    masks = torch.ones(3, B, T, dtype=torch.bool)
    masks[1, :, :4] = False

    def call(mask: Tensor) -> Tensor:
        return attention(q, k, v, whorl.RoPE(D), causal=True, mask=mask)

    rope = whorl.RoPE(D)
    got = torch.func.vmap(lambda mask: attention(q, k, v, rope, causal=True, mask=mask))(masks)
    torch.testing.assert_close(got, torch.stack([call(mask) for mask in masks]))
