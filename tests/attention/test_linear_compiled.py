"""Linear attention under torch.compile, in one graph, and on the meta device."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

import whorl
from whorl.attention.linear.attention import linear_attention as typed

from .linear_naive import random

linear_attention: Any = typed
D, H, G = 8, 4, 2


def inputs(T: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    shapes = (H, T, D), (G, T, D), (G, T, 5)
    return [random(2, *shape, dtype=dtype, seed=n) for n, shape in enumerate(shapes)]


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def rope() -> whorl.Encoding:
    return whorl.RoPE(D)


def dynamic() -> whorl.Encoding:
    return whorl.RoPE(D, scaling=whorl.DynamicNTK(factor=2.0, original_context=8))


def both() -> whorl.Encoding:
    return whorl.RoPE(D) + whorl.ALiBi(H)


def xpos() -> whorl.Encoding:
    return whorl.XPos(D)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "causal", "kind"),
    [
        (dynamic, False, "cosine"),
        (xpos, True, "relu"),
    ],
)
def test_one_graph_serves_other_lengths(build: Any, causal: bool, kind: Any) -> None:
    """One for all lengths up to a block; under a causal mask, up to a chunk."""
    encoding, counter = build(), CompileCounter()

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linear_attention(q, k, v, encoding, causal=causal, feature_map=kind)

    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=counter)
    for T in (10, 13):
        xs = inputs(T)
        torch.testing.assert_close(compiled(*xs), call(*xs), rtol=1e-6, atol=1e-6)
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_gradients(causal: bool) -> None:
    encoding, xs = both() if causal else rope(), inputs(11)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return linear_attention(q, k, v, encoding, causal=causal, chunk=6)

    found = []
    for run in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
        leaves = [x.clone().requires_grad_() for x in xs]
        found.append(torch.autograd.grad(run(*leaves).square().sum(), leaves))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_decode_step() -> None:
    encoding, xs = rope(), inputs(8)
    _, state = linear_attention(*xs, encoding, causal=True, return_state=True)

    def step(state: whorl.LinearState, *token: Tensor) -> Any:
        options: dict[str, Any] = {"causal": True, "state": state, "return_state": True}
        return linear_attention(*token, encoding, **options)

    compiled = torch.compile(step, fullgraph=True, backend="eager")
    token = [x[:, :, :1] for x in xs]
    (got, after), (want, same) = compiled(state, *token), step(state, *token)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(after.numerator, same.numerator)
    assert after.next_position == same.next_position == 9


@pytest.mark.parametrize("build", [rope, dynamic, both, xpos])
@pytest.mark.parametrize("by_row", [False, True])
def test_meta(build: Any, by_row: bool) -> None:
    q, k, v = (x.to("meta") for x in inputs(20))
    at = torch.arange(20, device="meta").expand(2, 20) if by_row else None
    mask = torch.ones(2, 20, dtype=torch.bool, device="meta")
    options: dict[str, Any] = {"causal": True, "positions": at, "mask": mask, "chunk": 8}
    options |= {"return_state": True, "context_length": 20}
    out, state = linear_attention(q, k, v, build(), **options)
    assert out.is_meta
    assert out.shape == (2, H, 20, 5)
    assert state.numerator.is_meta
    if build in (rope, dynamic):
        options = {"positions": at, "mask": mask, "context_length": 20}
        assert linear_attention(q, k, v, build(), **options).shape == (2, H, 20, 5)
