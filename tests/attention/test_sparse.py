"""Shifted sparse attention equals dense attention under the mask that it means."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.attention import attention, shifted_attention
from whorl.testing.probe import randomized

H, D = 4, 8
ENCODINGS: list[whorl.Encoding] = [
    whorl.NoPE(),
    whorl.RoPE(D),
    whorl.XPos(D),
    whorl.ALiBi(H),
    whorl.T5Bias(H),
    whorl.Shaw(H, D, left=3),
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
    st.sampled_from(ENCODINGS), st.integers(1, 23), st.sampled_from([2, 4, 6, 30]), st.booleans()
)
def test_equals_the_masked_dense_form(
    encoding: whorl.Encoding, length: int, group: int, causal: bool
) -> None:
    causal = causal or encoding.causal
    encoding = randomized(encoding).double()
    q, k, v = randn(2, H, length, D), randn(2, 2, length, D, seed=1), randn(2, 2, length, 5, seed=2)
    got = shifted_attention(q, k, v, encoding, group=group, causal=causal)
    want = attention(q, k, v, encoding, causal=causal, mask=meant(length, group))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_nothing_leaks_from_later_tokens() -> None:
    q, k, v = (randn(1, H, 16, D, seed=n) for n in range(3))
    before = shifted_attention(q, k, v, whorl.RoPE(D), group=4, causal=True)
    k, v = k.clone(), v.clone()
    k[:, :, 10:], v[:, :, 10:] = 99.0, 99.0
    after = shifted_attention(q, k, v, whorl.RoPE(D), group=4, causal=True)
    assert torch.equal(before[:, :, :10], after[:, :, :10])


def test_gradients_flow() -> None:
    q, k, v = (randn(1, H, 6, D, seed=n).requires_grad_() for n in range(3))
    bias = randomized(whorl.T5Bias(H)).double()
    torch.autograd.gradcheck(
        lambda *_: shifted_attention(q, k, v, bias, group=4, causal=True),
        (q, k, v, *bias.parameters()),
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"encoding": 3}, TypeError, r"encoding must be a whorl encoding, or None; got 3"),
        ({"group": 3}, ValueError, r"group must be an even int >= 2; got 3"),
        ({"k": 5}, ValueError, r"must be tensors \[B, H, T, D\] of one batch and length"),
        ({"q": 5}, ValueError, r"q and k must be as long and as wide as each other"),
        ({"heads": 3}, ValueError, r"half of the heads are shifted, so q must have an even number"),
        ({"encoding": whorl.XPos(D)}, ValueError, r"XPos\(8\) is for causal attention only"),
        (
            {"encoding": whorl.Shaw(H, D, values="trained")},
            ValueError,
            r"adds vectors to the values, which groups do not support",
        ),
    ],
)
def test_errors(change: dict[str, Any], error: type[Exception], message: str) -> None:
    heads = change.pop("heads", H)
    arguments: dict[str, Any] = {n: randn(1, heads, change.pop(n, 6), D) for n in "qkv"}
    with pytest.raises(error, match="shifted_attention: .*" + message):
        shifted_attention(**{"group": 4, **arguments, **change})
