"""torch.compile takes attention whole: one graph, equal results."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import whorl
from whorl.attention import attention, shifted_attention

from .test_softmax import D, H, fresh, randn

pytestmark = pytest.mark.slow

ENCODINGS: list[whorl.Encoding] = [
    whorl.NoPE(),
    whorl.RoPE(D),
    whorl.XPos(D),
    whorl.T5Bias(H),
    whorl.TransformerXL(H, D),
    whorl.DeBERTa(H, D, max_distance=6),
    whorl.RoPE(D) + whorl.ALiBi(H),
    whorl.Shaw(H, D, left=4, values="trained"),
]
OPTIONS: dict[str, dict[str, Any]] = {
    "causal": {"causal": True},
    "window and sinks": {"causal": True, "window": 3, "sinks": 2},
    "positions": {"causal": True, "positions": torch.arange(9) * 2},
    "padding": {"causal": True, "mask": torch.ones(1, 9).bool().index_fill(1, torch.tensor(0), 0)},
    "documents": {"causal": True, "documents": torch.arange(9) // 4},
    "scores": {"causal": True, "sink_logits": torch.zeros(H).double(), "softcap": 2.0},
    "cu_seqlens": {"causal": True, "cu_seqlens": torch.tensor([0, 2, 9])},
}


CASES = [(encoding, "window and sinks", 5) for encoding in ENCODINGS]
CASES += [(whorl.RoPE(D) + whorl.ALiBi(H), name, 256) for name in OPTIONS]
CASES += [(whorl.DeBERTa(H, D), "causal", 5), (whorl.XPos(D), "documents", 5)]


@torch.no_grad()
@pytest.mark.parametrize(("encoding", "name", "block"), CASES, ids=map(str, CASES))
def test_one_graph(encoding: whorl.Encoding, name: str, block: int) -> None:
    encoding, options = fresh(encoding), OPTIONS[name]
    q, k, v = randn(1, H, 9, D), randn(1, 2, 9, D, seed=1), randn(1, 2, 9, D, seed=2)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v, encoding, block=block, **options)

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(q, k, v), call(q, k, v), rtol=1e-12, atol=1e-12)


def test_fewer_queries_than_keys_in_documents() -> None:
    q, k, v = randn(1, H, 3, D), randn(1, 2, 9, D, seed=1), randn(1, 2, 9, D, seed=2)
    options: dict[str, Any] = {"causal": True, "documents": torch.arange(9) // 4}
    torch._dynamo.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    for rope in (whorl.RoPE(D), whorl.MRoPE(D, sections=(1, 1, 2))):
        want = attention(q, k, v, rope, **options)
        torch.testing.assert_close(compiled(q, k, v, rope, **options), want, rtol=1e-12, atol=1e-12)


class Counted:
    """A backend that counts graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, _: Any) -> Any:
        self.graphs += 1
        return graph.forward


#: Without parameters nothing asks for gradients here, and a call takes the same way as without.
WITH_GRADIENTS = [(encoding, bool(list(encoding.parameters()))) for encoding in ENCODINGS]
WITH_GRADIENTS += [(whorl.T5Bias(H), False)]


@pytest.mark.parametrize(("encoding", "gradients"), WITH_GRADIENTS, ids=str)
def test_one_graph_serves_all_lengths(encoding: whorl.Encoding, gradients: bool) -> None:
    encoding, backend = fresh(encoding), Counted()
    torch._dynamo.reset()
    compiled = torch.compile(attention, fullgraph=True, dynamic=True, backend=backend)
    with torch.set_grad_enabled(gradients):
        for length in (11, 17, 34):
            q, k, v = (randn(2, H, length, D, seed=n) for n in range(3))
            want = attention(q, k, v, encoding, causal=True)
            torch.testing.assert_close(compiled(q, k, v, encoding, causal=True), want)
    assert backend.graphs == 1


@torch.no_grad()
def test_beyond_one_block_a_graph_for_each_number_of_them() -> None:
    encoding, backend = whorl.ALiBi(H), Counted()
    torch._dynamo.reset()
    compiled = torch.compile(attention, fullgraph=True, dynamic=True, backend=backend)
    for length in (10, 15, 22):  # of 8: two or three blocks
        q, k, v = (randn(1, H, length, D, seed=n) for n in range(3))
        want = attention(q, k, v, encoding, causal=True, block=8)
        torch.testing.assert_close(compiled(q, k, v, encoding, causal=True, block=8), want)
    assert backend.graphs == 2


@torch.no_grad()
@pytest.mark.parametrize("options", [{"causal": True}, {"causal": True, "block": 5}], ids=str)
def test_xpos_far_out(options: dict[str, Any]) -> None:
    """Compiled code cannot look where tokens are: it must expect them anywhere."""
    xpos = whorl.XPos(D)
    q, k, v = (randn(1, H, 9, D, seed=n).float() for n in range(3))
    torch._dynamo.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    want = attention(q, k, v, xpos, causal=True)
    for first in (0, 200_000, -200_000):
        got = compiled(q, k, v, xpos, positions=torch.arange(first, first + 9), **options)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoding", [whorl.T5Bias(H), whorl.Shaw(H, D)], ids=repr)
def test_training(encoding: whorl.Encoding) -> None:
    encoding = fresh(encoding)
    q, k, v = (randn(1, H, 9, D, seed=n).requires_grad_() for n in range(3))
    torch._dynamo.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    grads = []
    for call in (compiled, attention):
        out = call(q, k, v, encoding, causal=True)
        grads.append(torch.autograd.grad(out.square().sum(), (q, k, v, *encoding.parameters())))
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


@dataclass(frozen=True)
class SlopeConfig(whorl.Config):
    slope: float = 0.3


class Slope(whorl.Encoding):
    """Somebody else's bias, with a plain number that every block reads."""

    config: SlopeConfig

    def __init__(self) -> None:
        super().__init__()
        self.config = SlopeConfig()

    def distance_bias(self, distance: torch.Tensor) -> torch.Tensor:
        bias: torch.Tensor = -self.config.slope * distance.abs().double().unsqueeze(0)
        return bias


#: Encodings that hold numbers, which blocks read, with what needs blocks in training.
DYNAMIC: list[tuple[whorl.Encoding, str]] = [
    (whorl.RoPE(D) + whorl.ALiBi(H), "documents"),
    (whorl.TransformerXL(H, D), "mask"),
    (Slope(), "padding"),
]


def hides(name: str, length: int) -> dict[str, Any]:
    index = torch.arange(length)
    if name == "documents":
        return {"documents": index // 5}
    if name == "padding":
        return {"mask": (index > 1).expand(2, length)}
    return {"mask": (index % 3 > 0) | (index.unsqueeze(-1) == index).expand(2, 1, -1, -1)}


@pytest.mark.parametrize(("encoding", "name"), DYNAMIC, ids=str)
def test_training_beyond_one_block_at_any_length(encoding: whorl.Encoding, name: str) -> None:
    """Blocks that are computed again share a number: Dynamo met it inside the first of them."""
    encoding = fresh(encoding)
    torch._dynamo.reset()
    compiled = torch.compile(attention, fullgraph=True, dynamic=True, backend="eager")
    q, k, v = (randn(2, H, 15, D, seed=n).requires_grad_() for n in range(3))
    grads = []
    for call in (compiled, attention):
        out = call(q, k, v, encoding, causal=True, block=8, **hides(name, 15))
        grads.append(torch.autograd.grad(out.square().sum(), (q, k, v, *encoding.parameters())))
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


def test_dropout_beyond_one_block_at_any_length() -> None:
    """The result is linear in v, so that v * dv adds up to the result where both drop alike."""
    encoding, weights = whorl.ALiBi(H), randn(1, H, 12, D, seed=3)
    q, k, v = (randn(1, H, 12, D, seed=n).requires_grad_() for n in range(3))
    torch._dynamo.reset()
    # Not the backend "eager", where torch draws anew in what a checkpoint computes again.
    compiled = torch.compile(attention, fullgraph=True, dynamic=True, backend="aot_eager")
    out = compiled(q, k, v, encoding, causal=True, dropout=0.5, block=8)
    total = (out * weights).sum()
    (grad,) = torch.autograd.grad(total, v)
    torch.testing.assert_close((v * grad).sum(), total, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_shifted_attention() -> None:
    q, k, v = (randn(1, H, 21, D, seed=n) for n in range(3))
    torch._dynamo.reset()
    compiled = torch.compile(shifted_attention, fullgraph=True, backend="eager")
    xpos = whorl.XPos(D)
    got = compiled(q, k, v, xpos, group=8, causal=True)
    want = shifted_attention(q, k, v, xpos, group=8, causal=True)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
