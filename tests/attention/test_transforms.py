"""attention under autocast and under the transforms of torch.func."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attention import attention, shifted_attention

from .test_softmax import D, H, fresh, randn

# The fused kernel has no vmap of its own: torch loops, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")

ENCODINGS: list[whorl.Encoding] = [
    whorl.NoPE(),
    whorl.RoPE(D),
    whorl.XPos(D),
    whorl.ALiBi(H),
    whorl.T5Bias(H),
    whorl.Shaw(H, D, values="trained"),
    whorl.TransformerXL(H, D),
    whorl.DeBERTa(H, D, max_distance=6),
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"mask": torch.ones(1, 9, dtype=torch.bool)},
    {"dropout": 0.1},
    {"block": 4},
]


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_autocast_gives_the_dtype_of_plain_attention(
    encoding: whorl.Encoding, gradients: bool
) -> None:
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for dtype in (torch.float32, torch.float64, torch.float16):
        q, k, v = (
            randn(1, H, 9, D, seed=n, dtype=dtype).requires_grad_(gradients) for n in (0, 1, 2)
        )
        with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(gradients):
            want = sdpa(q, k, v).dtype
            for options in OPTIONS:
                assert attention(q, k, v, encoding, causal=True, **options).dtype == want
            assert shifted_attention(q, k, v, encoding, group=4, causal=True).dtype == want


@pytest.mark.parametrize("options", [{}, {"mask": torch.ones(1, 300, dtype=torch.bool)}], ids=str)
@pytest.mark.parametrize("gradients", [True, False])
def test_autocast_does_not_round_biases(gradients: bool, options: dict[str, Any]) -> None:
    bias = whorl.RelativeBias(2, max_distance=300)
    torch.nn.init.normal_(
        next(bias.parameters()), std=8, generator=torch.Generator().manual_seed(0)
    )
    q, k, v = (randn(1, 2, 300, D, seed=n, dtype=torch.bfloat16) for n in range(3))
    with torch.set_grad_enabled(gradients):
        plain = attention(q, k, v, bias, causal=True, **options)
        with torch.autocast("cpu", torch.bfloat16):
            got = attention(q.float(), k.float(), v.float(), bias, causal=True, **options)
    assert torch.equal(got, plain)


@pytest.mark.parametrize("block", [4, 256])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_vmap_over_one_argument(encoding: whorl.Encoding, block: int) -> None:
    encoding = fresh(encoding)
    q, k = randn(1, H, 9, D), randn(1, H, 9, D, seed=1)
    vs, masks = randn(3, 1, H, 9, D, seed=2), randn(3, 1, 1, 9, 9, seed=3) > 0

    def call(v: Tensor, mask: Tensor | None = None) -> Tensor:
        return attention(q, k, v, encoding, causal=True, mask=mask, block=block)

    got = torch.func.vmap(call)(vs)
    torch.testing.assert_close(got, torch.stack([call(v) for v in vs]), rtol=1e-12, atol=1e-12)
    got = torch.func.vmap(lambda mask: call(vs[0], mask))(masks)
    want = torch.stack([call(vs[0], mask) for mask in masks])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_functional_gradients_are_those_of_autograd(encoding: whorl.Encoding) -> None:
    encoding = fresh(encoding)
    q, k, v = (randn(1, H, 9, D, seed=n).requires_grad_() for n in range(3))

    def loss(k: Tensor) -> Tensor:
        return attention(q, k, v, encoding, causal=True, block=4).square().sum()

    (want,) = torch.autograd.grad(loss(k), k)
    torch.testing.assert_close(torch.func.grad(loss)(k), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
def test_meta_tensors(encoding: whorl.Encoding) -> None:
    encoding = fresh(encoding).to("meta")
    q, k, v = (torch.empty(2, H, 9, D, device="meta", dtype=torch.float64) for _ in range(3))
    for at in (None, torch.arange(9, device="meta")):
        out = attention(q, k, v, encoding, causal=True, positions=at, block=4)
        assert out.shape == q.shape
