"""Dropout: what was dropped in the forward pass is dropped in the backward pass too.

For one draw the result is a fixed function of q, k, v and the parameters, and affine in v:

    sum(w * (out(v) - out(0))) = sum(grad_v * v)    and    out's slope along d = sum(grad_x * d)

A mask that is drawn again breaks both, while means and finiteness stay.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import whorl
from whorl.attention import attention

from .test_softmax import ENCODINGS, D, H, fresh, randn

# In blocks of 64, 63 and 14 queries: each is smaller by one than the one after it.
T, BLOCK = 141, 64
Call = Callable[[Tensor, Tensor, Tensor], Tensor]

PATHS: dict[str, dict[str, Any]] = {
    "causal": {"causal": True},
    "window and sinks": {"causal": True, "window": 37, "sinks": 3},
    "padding": {"causal": True, "mask": torch.arange(T).expand(2, T) > torch.tensor([[0], [9]])},
    "documents": {"causal": True, "documents": torch.arange(T) // 59},
    "positions": {"causal": True, "positions": torch.arange(T) * 2 + torch.tensor([[0], [5]])},
}
CASES = [(encoding, "causal") for encoding in ENCODINGS]
CASES += [(whorl.RoPE(D) + whorl.ALiBi(H), name) for name in PATHS]
CASES += [(whorl.XPos(D), "positions"), (whorl.TransformerXL(H, D), "documents")]


def draw(call: Call, *tensors: Tensor, seed: int = 5) -> Tensor:
    torch.manual_seed(seed)
    return call(*tensors)


def reentrant(call: Call) -> Call:
    """Run first without gradients, and again, with them, in the backward pass."""
    return lambda *tensors: checkpoint(call, *tensors, use_reentrant=True)


def recomputed(call: Call) -> Call:
    return lambda *tensors: checkpoint(call, *tensors, use_reentrant=False)


def gradients(out: Tensor, weight: Tensor, wanted: list[Tensor]) -> list[Tensor]:
    """Of sum(out * weight); by backward(), because a reentrant checkpoint knows no other way."""
    for x in wanted:
        x.grad = None
    (out * weight).sum().backward()
    return [torch.zeros_like(x) if x.grad is None else x.grad for x in wanted]


def check_linear_in_values(call: Call, q: Tensor, k: Tensor, v: Tensor) -> None:
    out, weight = draw(call, q, k, v), randn(2, H, q.shape[2], v.shape[3], seed=9)
    (grad,) = gradients(out, weight, [v])
    with torch.no_grad():
        without = draw(call, q, k, torch.zeros_like(v))
    want = ((out - without) * weight).sum()
    torch.testing.assert_close((grad * v).sum(), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("wrap", [lambda call: call, reentrant, recomputed])
@pytest.mark.parametrize(("encoding", "name"), CASES, ids=map(str, CASES))
def test_gradients_are_of_what_was_drawn(
    encoding: whorl.Encoding, name: str, wrap: Callable[[Call], Call]
) -> None:
    encoding = fresh(encoding)
    q, k, v = (randn(2, H, T, D, seed=n).requires_grad_() for n in range(3))

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, encoding, dropout=0.4, block=BLOCK, **PATHS[name])

    call = wrap(plain)
    check_linear_in_values(call, q, k, v)
    weight, trained = randn(2, H, T, D, seed=9), [q, k, v, *encoding.parameters()]
    grads = gradients(draw(call, q, k, v), weight, trained)
    with torch.no_grad():
        ahead = [randn(*x.shape, seed=20 + n) for n, x in enumerate(trained)]
        slopes = []
        for sign in (1, -1):
            for x, d in zip(trained, ahead, strict=True):
                x.add_(d, alpha=sign * 1e-6)
            slopes.append((draw(plain, q, k, v) * weight).sum())
            for x, d in zip(trained, ahead, strict=True):
                x.sub_(d, alpha=sign * 1e-6)
    found = sum((grad * d).sum() for grad, d in zip(grads, ahead, strict=True))
    want = (slopes[0] - slopes[1]) / 2e-6
    torch.testing.assert_close(torch.as_tensor(found), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [100, 300, 555])
@pytest.mark.parametrize("causal", [True, False])
def test_a_seed_drops_the_same_with_and_without_gradients(causal: bool, length: int) -> None:
    q, k, v = (randn(2, H, length, D, seed=n) for n in range(3))
    rope = whorl.RoPE(D)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, rope, causal=causal, dropout=0.4)

    without = draw(call, q, k, v)
    assert not torch.equal(without, draw(call, q, k, v, seed=6))
    for needed in range(3):
        tensors = [x.clone().requires_grad_(n == needed) for n, x in enumerate((q, k, v))]
        assert torch.equal(draw(call, *tensors), without)
        with torch.no_grad():
            assert torch.equal(draw(call, *tensors), without)
        with torch.inference_mode():
            assert torch.equal(draw(call, *tensors), without)
    torch.manual_seed(5)
    weight = randn(2, H, length, D, seed=9)
    pulled = torch.func.grad(lambda v: (call(q, k, v) * weight).sum())(v)
    torch.testing.assert_close((pulled * v).sum(), (without * weight).sum())


@pytest.mark.parametrize("wrap", [lambda call: call, reentrant, recomputed])
@pytest.mark.parametrize("grouped", [False, True])
def test_the_layer_too(grouped: bool, wrap: Callable[[Call], Call]) -> None:
    """The layer is affine in the values' projection, whose gradient must be of the same draw."""
    layer = whorl.MultiheadAttention(
        H * D, H, num_kv_heads=2 if grouped else H, encoding=whorl.RoPE(D), dropout=0.4
    ).double()
    x, weight = randn(2, 300, H * D).requires_grad_(), randn(2, 300, H * D, seed=1)
    value = layer.v_proj.weight
    out = draw(wrap(lambda x: layer(x, causal=True)), x)  # type: ignore[arg-type, misc]
    (grad,) = gradients(out, weight, [value])
    with torch.no_grad():
        kept = value.clone()
        value.zero_()
        without = draw(lambda x: layer(x, causal=True), x)  # type: ignore[arg-type, misc]
        value.copy_(kept)
    torch.testing.assert_close((grad * value).sum(), ((out - without) * weight).sum())


@pytest.mark.parametrize("wrap", [lambda call: call, recomputed])
def test_compiled_too(wrap: Callable[[Call], Call]) -> None:
    encoding = fresh(whorl.RoPE(D) + whorl.T5Bias(H, scale=None))
    q, k, v = (randn(2, H, 100, D, seed=n).requires_grad_() for n in range(3))

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, encoding, causal=True, dropout=0.4, block=BLOCK)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    check_linear_in_values(wrap(compiled), q, k, v)
