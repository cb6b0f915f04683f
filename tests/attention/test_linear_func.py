"""Linear attention under torch.func: vmap over any one input, grad, and both."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

import whorl
from whorl.attention.linear.attention import linear_attention as typed

from .linear_naive import random

linear_attention: Any = typed  # calls here unpack lists
D, H = 8, 2
ENCODINGS: list[whorl.Encoding | None] = [
    None,
    whorl.RoPE(D),
    whorl.RoPE(D) + whorl.ALiBi(H),
    whorl.XPos(D),
    whorl.MRoPE(D, sections=(2, 1, 1)),
]


def calls(options: dict[str, Any], length: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """The call as a function of one of q, k and v, the others being fixed."""
    fixed: Any = [random(1, H, length, D, seed=n) for n in range(3)]

    def of(n: int) -> Callable[[Tensor], Tensor]:
        return lambda x: linear_attention(*fixed[:n], x, *fixed[n + 1 :], **options)

    return {name: of(n) for n, name in enumerate("qkv")}


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
@pytest.mark.parametrize("kind", ["elu", "relu", "cosine"])
@pytest.mark.parametrize("length", [1, 90])
def test_functions_of_one_input(encoding: Any, kind: str, length: int) -> None:
    causal_only = encoding is not None and (encoding.causal or "score" in encoding.hooks)
    for causal in (True,) if causal_only else (True, False):
        options = {"encoding": encoding, "feature_map": kind, "causal": causal, "chunk": 32}
        xs = random(3, 1, H, length, D, seed=9)
        for call in calls(options, length).values():
            one_by_one = torch.stack([call(x) for x in xs])
            torch.testing.assert_close(vmap(call)(xs), one_by_one, rtol=1e-10, atol=1e-12)

            def loss(x: Tensor, call: Callable[[Tensor], Tensor] = call) -> Tensor:
                return call(x).square().sum()

            leaf = xs.clone().requires_grad_()
            (want,) = torch.autograd.grad(torch.stack([loss(x) for x in leaf]).sum(), leaf)
            torch.testing.assert_close(grad(loss)(xs[0]), want[0], rtol=1e-8, atol=1e-10)
            torch.testing.assert_close(vmap(grad(loss))(xs), want, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("causal", [True, False])
def test_vmap_over_a_mask(causal: bool) -> None:
    q, k, v = (random(2, H, 40, D, seed=n) for n in range(3))
    masks = random(3, 2, 40, seed=4) > -0.5

    def call(mask: Tensor) -> Tensor:
        return linear_attention(q, k, v, whorl.RoPE(D), causal=causal, mask=mask)

    one_by_one = torch.stack([call(mask) for mask in masks])
    torch.testing.assert_close(vmap(call)(masks), one_by_one, rtol=1e-10, atol=1e-12)
