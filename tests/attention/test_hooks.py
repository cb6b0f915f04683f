"""Attention asks an encoding what it needs by its hooks, never by its class."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whorl
from whorl import Encoding
from whorl.attention import KVCache, attention, linear_attention, shifted_attention

from .test_softmax import D, H, randn

FAR = 100_000  # factors of XPos overflow float32 from 33,000 positions on


class Wrapped(Encoding):
    """Another encoding behind the same hooks: no subclass of it, so its class tells nothing."""

    def __init__(self, inner: Encoding) -> None:
        super().__init__()
        self.inner = inner
        self.config = inner.config
        self.position_axes = inner.position_axes
        self.needs_positions = inner.needs_positions

    @property
    def causal(self) -> bool:  # type: ignore[override]
        return self.inner.causal

    def acts(self, method: str) -> bool:
        return self.inner.acts(method)

    def forward(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        rotated: tuple[Tensor, Tensor] = self.inner(*args, **options)
        return rotated

    def to_dict(self) -> dict[str, Any]:
        return self.inner.to_dict()

    def __getattribute__(self, name: str) -> Any:
        if name in HOOKS:
            return getattr(nn.Module.__getattr__(self, "inner"), name)
        return super().__getattribute__(name)


HOOKS = {"span", "call_span", "reference_for", "reference_near", "rescale", "decay_slopes"}
HOOKS |= {"check_coordinates", "distance_bias"}


def far_inputs(count: int = 600) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = (randn(1, H, count, D, seed=n).float() for n in range(3))
    return q, k, v, torch.arange(FAR, FAR + count)


def test_a_rotation_with_a_span_is_rotated_block_by_block() -> None:
    xpos, (q, k, v, at) = whorl.XPos(D), far_inputs()
    with pytest.raises(ValueError, match="too far from their reference"):
        xpos(q, k, at)  # one reference, position 0, does not do
    want = attention(q, k, v, xpos, causal=True, positions=at)
    assert torch.equal(attention(q, k, v, Wrapped(xpos), causal=True, positions=at), want)
    composed = Wrapped(xpos) + whorl.ALiBi(H)
    got = attention(q, k, v, composed, causal=True, positions=at)
    assert torch.equal(got, attention(q, k, v, xpos + whorl.ALiBi(H), causal=True, positions=at))
    near = attention(q, k, v, xpos, causal=True)  # scores depend on distances only
    torch.testing.assert_close(want, near, rtol=1e-4, atol=1e-5)


def test_shifted_and_linear_attention_ask_for_the_span_too() -> None:
    xpos, (q, k, v, at) = whorl.XPos(D), far_inputs()
    options: dict[str, Any] = {"causal": True, "positions": at}
    want = shifted_attention(q, k, v, xpos, group=64, **options)
    assert torch.equal(shifted_attention(q, k, v, Wrapped(xpos), group=64, **options), want)
    want = linear_attention(q, k, v, xpos, **options)
    assert torch.equal(linear_attention(q, k, v, Wrapped(xpos), **options), want)


def test_a_cache_asks_for_the_span_too() -> None:
    xpos, (q, k, v, at) = whorl.XPos(D), far_inputs(8)
    want = attention(q, k, v, xpos, causal=True, positions=at)
    for encoding in (xpos, Wrapped(xpos)):  # of which one keeps rotated keys, the other all
        cache, outs = KVCache(encoding), []
        for n in range(8):
            one = slice(n, n + 1)
            new = (q[:, :, one], k[:, :, one], v[:, :, one])
            options: dict[str, Any] = {"causal": True, "positions": at[one], "cache": cache}
            outs.append(attention(*new, encoding, **options))
        torch.testing.assert_close(torch.cat(outs, 2), want, rtol=1e-4, atol=1e-5)


def test_linear_attention_takes_any_bias_with_slopes() -> None:
    alibi, (q, k, v, _) = whorl.ALiBi(H), far_inputs(40)
    want = linear_attention(q, k, v, alibi, causal=True)
    assert torch.equal(linear_attention(q, k, v, Wrapped(alibi), causal=True), want)
    with pytest.raises(
        ValueError,
        match=rf"q must have 2 heads for .* got {H}. Build the encoding with num_heads={H}",
    ):
        linear_attention(q, k, v, Wrapped(whorl.ALiBi(2)), causal=True)


def test_positions_on_axes_are_asked_for_wherever_they_are_needed() -> None:
    axial, (q, k, v, at) = Wrapped(whorl.AxialRoPE(D)), far_inputs(6)
    for encoding in (axial, axial + whorl.ALiBi(H)):
        assert encoding.needs_positions
        with pytest.raises(ValueError, match="because tokens have no order of their own; got None"):
            KVCache(encoding).update(q, k, v)
        with pytest.raises(ValueError, match=r"positions must be \[n, T\] or \[n, B, T\]"):
            KVCache(encoding).update(q, k, v, positions=at)
    with pytest.raises(ValueError, match=r"linear_attention: positions must be \[n, T\]"):
        linear_attention(q, k, v, axial, positions=at)
    assert not (whorl.RoPE(D) + whorl.ALiBi(H)).needs_positions


def test_a_composition_answers_for_its_parts() -> None:
    xpos, alibi = whorl.XPos(D), whorl.ALiBi(H)
    both, k = xpos + alibi, randn(1, 2, 3, D)
    assert both.rotating_part is xpos
    assert both.span(torch.float32) == xpos.span(torch.float32)
    assert both.call_span(torch.float16) == xpos.call_span(torch.float16)
    assert both.reference_for(1300) == xpos.reference_for(1300) == 1024
    assert both.reference_near(torch.arange(1300, 1302)) == 1024
    assert torch.equal(both.rescale(k, old=0, new=512), xpos.rescale(k, old=0, new=512))
    slopes = both.decay_slopes()
    assert slopes is not None
    assert torch.equal(slopes, alibi.slopes())
    assert (alibi + whorl.T5Bias(H)).decay_slopes() is None
    for plain in (alibi, whorl.NoPE() + alibi):
        assert plain.rotating_part is None
        assert plain.span(torch.float32) is None
        assert plain.call_span(torch.float32) is None
        assert plain.reference_for(1300) == plain.reference_near(torch.arange(3)) == 0
        assert plain.rescale(k, old=0, new=512) is k
