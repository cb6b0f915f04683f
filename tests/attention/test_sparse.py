"""Shifted sparse attention equals dense attention under the mask that it means."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.attention import attention, shifted_attention
from whorl.testing.inputs import set_random_parameters

H, D = 4, 8
ENCODINGS: list[whorl.Encoding] = [
    whorl.NoPE(),
    whorl.RoPE(D),
    whorl.XPos(D),
    whorl.ALiBi(H),
    whorl.T5Bias(H),
    whorl.Shaw(H, D, left=3),
    whorl.Shaw(H, D, left=3, values="trained"),
    whorl.TransformerXL(H, D),
    whorl.DeBERTa(H, D, max_distance=5),
    whorl.RoPE(D) + whorl.Kerple(H),
]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def meant(length: int, group: int) -> Tensor:
    """Who shares a group with whom, from the definition: [1, H, T, T]."""
    mask = torch.zeros(1, H, length, length, dtype=torch.bool)
    for h in range(H):
        shift = 0 if h < H // 2 else group // 2
        for i in range(length):
            for j in range(length):
                mask[0, h, i, j] = (i + group - shift) // group == (j + group - shift) // group
    return mask


@settings(max_examples=40)
@given(
    st.sampled_from(ENCODINGS),
    st.integers(0, 23),
    st.sampled_from([2, 4, 6, 30]),
    st.booleans(),
    st.sampled_from([1, 2, 4]),
)
def test_equals_the_masked_dense_form(
    encoding: whorl.Encoding, length: int, group: int, causal: bool, G: int
) -> None:
    causal = causal or encoding.causal
    encoding = set_random_parameters(copy.deepcopy(encoding)).double()
    width = D if "value" in encoding.hooks else 5
    q, (k, v) = randn(2, H, length, D), (randn(2, G, length, n, seed=n) for n in (D, width))
    got = shifted_attention(q, k, v, encoding, group=group, causal=causal)
    want = attention(q, k, v, encoding, causal=causal, mask=meant(length, group))
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_nothing_leaks_from_later_tokens() -> None:
    q, k, v = (randn(1, H, 16, D, seed=n) for n in range(3))
    before = shifted_attention(q, k, v, whorl.RoPE(D), group=4, causal=True)
    k, v = k.clone(), v.clone()
    k[:, :, 10:], v[:, :, 10:] = 99.0, 99.0
    after = shifted_attention(q, k, v, whorl.RoPE(D), group=4, causal=True)
    assert torch.equal(before[:, :, :10], after[:, :, :10])


def test_gradients_flow() -> None:
    q, k, v = (randn(1, H, 6, D, seed=n).requires_grad_() for n in range(3))
    bias = set_random_parameters(whorl.T5Bias(H)).double()
    torch.autograd.gradcheck(
        lambda *_: shifted_attention(q, k, v, bias, group=4, causal=True),
        (q, k, v, *bias.parameters()),
    )


def test_far_xpos_and_scaled_queries_go_by_positions() -> None:
    class Warm(whorl.XPos):
        def query_scale(self, positions: Tensor) -> Tensor:
            return 1 + (positions % 5).float() / 5

    xpos, length = Warm(D), 40
    q, k, v = (randn(2, H, length, D, seed=n).float() for n in range(3))
    far = torch.arange(length) + torch.tensor([[150_000], [90_000]])
    got = shifted_attention(q, k, v, xpos, group=8, causal=True, positions=far)
    options: dict[str, Any] = {"causal": True, "mask": meant(length, 8)}
    want = attention(q, k, v, xpos, positions=far, block=5, **options)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    near = attention(q, k, v, whorl.XPos(D), **options)
    assert (got - near).abs().max() > 1e-3  # the scale of the queries


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"encoding": 3}, TypeError, r"encoding must be a whorl\.Encoding such as .*; got 3"),
        ({"group": 3}, ValueError, r"group must be an even int >= 2; got 3"),
        (
            {"k": randn(1, H, 5, D)},
            ValueError,
            r"shapes must be q \[B, H, T, D\], k \[B, G, S, D\]",
        ),
        ({"q": randn(1, H, 5, D)}, ValueError, r"q and k must be equally long, because"),
        ({"q": 3}, TypeError, r"q must be a tensor"),
        (
            {name: randn(1, 3, 6, D) for name in "qkv"},
            ValueError,
            r"q must have an even number of heads, because half",
        ),
        ({"encoding": whorl.XPos(D)}, ValueError, r"causal must be True for XPos\(8\)"),
        ({"encoding": whorl.ALiBi(6)}, ValueError, r"q must have 6 heads for ALiBi\(6\); got 4"),
    ],
)
def test_errors(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {n: randn(1, H, 6, D) for n in "qkv"}
    with pytest.raises(error, match="shifted_attention: .*" + message):
        shifted_attention(**{"group": 4, **arguments, **change})
