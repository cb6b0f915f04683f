"""Results are rounded once: to half of the last place of their dtype, and no more.

What is computed in between is float32, whose own errors are counted separately. A second rounding
on the way (weights, biases or keys in half precision) shows at once: it alone is up to half a unit.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attention import attention, linear_attention
from whorl.testing.inputs import set_random_parameters

from .test_softmax import D, H, randn

HALF = [torch.bfloat16, torch.float16]


def unit(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance of neighbouring numbers of ``dtype`` at ``exact``."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(exact.abs().clamp(min=info.tiny))
    return torch.ldexp(torch.full_like(exact, info.eps / 2), exponent)


def check_once(got: Tensor, exact: Tensor, within: float) -> None:
    """``within``: what float32 may add, relative to the largest number."""
    exact = exact.detach()
    allowed = 0.5 * unit(exact, got.dtype) + within * exact.abs().max()
    error = (got.detach().double() - exact).abs()
    assert bool((error <= allowed).all()), float((error / allowed).max())


def test_the_check_can_fail() -> None:
    exact = randn(1000)
    for dtype in HALF:
        check_once(exact.to(dtype), exact, 0.0)
        with pytest.raises(AssertionError):
            check_once((exact.to(dtype).double() * 1.3).to(dtype), exact * 1.3, 1e-6)


def in_half(encoding: whorl.Encoding, dtype: torch.dtype) -> tuple[whorl.Encoding, whorl.Encoding]:
    """An encoding in half precision, and one in float64 with the same numbers."""
    low = set_random_parameters(copy.deepcopy(encoding)).to(dtype)
    return low, copy.deepcopy(low).double()


BIASES: list[whorl.Encoding] = [
    whorl.ALiBi(H),
    whorl.ALiBi(H, slopes="trained"),
    whorl.T5Bias(H, max_distance=37),
    whorl.RelativeBias(H, max_distance=29),
    whorl.Kerple(H),
    whorl.Kerple(H, kind="power"),
]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("encoding", BIASES, ids=repr)
def test_biases(encoding: whorl.Encoding, dtype: torch.dtype) -> None:
    low, exact = in_half(encoding, dtype)
    distance = torch.cat((torch.arange(0, 300), torch.tensor([4097, 131_071])))
    bias, want = low.distance_bias(distance), exact.distance_bias(distance)
    assert bias is not None
    assert want is not None
    assert bias.dtype in (torch.float32, dtype)
    check_once(bias, want, 0.0 if bias.dtype == torch.float32 else 1e-9)


MATRICES: list[tuple[whorl.Encoding, dict[str, Any]]] = [
    (whorl.T5Bias(H, max_distance=37), {}),
    (whorl.T5Bias(H, max_distance=37), {"window": 11, "sinks": 2}),
    (whorl.RelativeBias(H, max_distance=29), {"mask": torch.arange(45).expand(2, 45) > 2}),
    (whorl.Kerple(H), {"documents": torch.arange(45) // 17}),
    (whorl.Shaw(H, D, left=7), {}),
    (whorl.Shaw(H, D, left=7, values="trained"), {}),
    (whorl.TransformerXL(H, D), {"documents": torch.arange(45) // 17}),
    (whorl.TransformerXL(H, D), {}),
    (whorl.DeBERTa(H, D, max_distance=29), {}),
    (whorl.Shaw(H, D, left=7) + whorl.Kerple(H), {}),
]


@pytest.mark.parametrize("block", [13, 256])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("encoding", "options"), MATRICES, ids=map(repr, range(len(MATRICES))))
def test_scores_in_matrices(
    encoding: whorl.Encoding, options: dict[str, Any], dtype: torch.dtype, block: int
) -> None:
    """Training: where scores are plain matrices, they and the weights are float32."""
    low, exact = in_half(encoding, dtype)
    q, k, v = (randn(2, H, 45, D, seed=n, dtype=dtype).requires_grad_() for n in range(3))
    got = attention(q, k, v, low, causal=True, block=block, **options)
    q, k, v = (x.detach().double() for x in (q, k, v))
    check_once(got, attention(q, k, v, exact, causal=True, **options), 2e-6)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("feature_map", ["elu", "relu", "cosine"])
@pytest.mark.parametrize("dtype", HALF)
def test_linear_attention(dtype: torch.dtype, feature_map: Any, causal: bool) -> None:
    q, k, v = (randn(2, H, 45, D, seed=n, dtype=dtype) for n in range(3))
    options: dict[str, Any] = {"feature_map": feature_map, "causal": causal, "chunk": 13}
    got = linear_attention(q, k, v, **options)
    q, k, v = (x.double() for x in (q, k, v))
    check_once(got, linear_attention(q, k, v, **options), 4e-6)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("length", [1, 37, 300])
def test_shifted_and_retuned_keys(dtype: torch.dtype, length: int) -> None:
    """One rounding of the keys given: not one back to unrotated keys and another forth."""
    scaling = whorl.DynamicNTK(factor=2.0, original_context=29)
    rope, keys = whorl.RoPE(D, scaling=scaling), randn(2, H, length, D, dtype=dtype)
    old, new = rope.frequencies(29), rope.frequencies(977)
    at = torch.arange(length) + 5
    for delta in (1, -3, 1001, torch.tensor([7, 450])):
        moved = rope.shift(keys, delta, context_length=977)
        check_once(moved, rope.shift(keys.double(), delta, context_length=977), 1e-6)
    tuned = rope.retune(keys, at, old=old, new=new)
    check_once(tuned, rope.retune(keys.double(), at, old=old, new=new), 1e-6)
