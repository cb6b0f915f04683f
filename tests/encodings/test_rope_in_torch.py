"""RoPE inside PyTorch: casts, contexts, autograd, tracing and compilation leave it right."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import whorl

from .rotations import IMPLS, LAYOUTS, oracle, random


def test_meta_inputs_leave_the_module_usable() -> None:
    rope, x = whorl.RoPE(16), random(1, 2, 5, 16, dtype=torch.float32)
    want = rope.rotate(x)
    assert rope.rotate(x.to("meta")).shape == x.shape
    assert torch.equal(rope.rotate(x), want)


def test_copies_share_nothing_and_carry_trained_values() -> None:
    rope = whorl.RoPE(8, frequencies="trained")
    with torch.no_grad():
        rope.alpha.fill_(0.5)
    for again in (copy.deepcopy(rope), pickle.loads(pickle.dumps(rope))):
        assert torch.equal(again.alpha, rope.alpha)
        assert torch.equal(
            again.rotate(torch.ones(1, 1, 3, 8)), rope.rotate(torch.ones(1, 1, 3, 8))
        )


def test_a_model_holding_one_can_be_cast_saved_and_loaded(tmp_path: Path) -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix, self.rope = torch.nn.Linear(8, 8), whorl.RoPE(8)

    block = Block().bfloat16()
    torch.save(block.state_dict(), tmp_path / "block.pt")
    again = Block().bfloat16()
    saved = torch.load(tmp_path / "block.pt", weights_only=True)
    assert sorted(saved) == ["mix.bias", "mix.weight"]
    again.load_state_dict(saved)
    x = random(1, 1, 300, 8, dtype=torch.bfloat16)
    want = oracle(x, torch.arange(300), 10_000.0, "half", 8)
    error = (again.rope.rotate(x).double() - want).abs().max()
    assert float(error) <= whorl.testing.compute_rounding_tolerance(want, torch.bfloat16)


@pytest.mark.parametrize("impl", IMPLS)
def test_autograd_notices_writes(impl: whorl.Impl) -> None:
    rope, weight = whorl.RoPE(8, impl=impl), random(1, 1, 3, 8).requires_grad_()
    value = weight.exp()  # its gradient needs the value as it was
    with torch.no_grad():
        rope.rotate_(value)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()
    value = weight.exp()
    with torch.no_grad():
        rope.rotate(weight, out=value)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_slots_of_a_fused_buffer_rotate_in_place(layout: whorl.Layout) -> None:
    rope, fused = whorl.RoPE(8, layout=layout), random(2, 5, 4 + 2 + 2, 8, dtype=torch.float32)
    q, k = (fused[:, :, s].transpose(1, 2) for s in (slice(0, 4), slice(4, 6)))
    want_q, want_k, value = rope.rotate(q), rope.rotate(k), fused[:, :, 6:].clone()
    rope.forward_(q, k)
    assert torch.equal(q, want_q)
    assert torch.equal(k, want_k)
    assert torch.equal(fused[:, :, 6:], value)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("frequencies", ["fixed", "trained"])
def test_activation_checkpointing(impl: whorl.Impl, frequencies: Any) -> None:
    rope = whorl.RoPE(8, impl=impl, frequencies=frequencies)

    def block(t: Tensor) -> Tensor:
        return rope.rotate(t).sin()

    x = random(1, 2, 5, 8).requires_grad_()
    (want,) = torch.autograd.grad(block(x).sum(), x)
    (got,) = torch.autograd.grad(checkpoint(block, x, use_reentrant=False).sum(), x)
    assert torch.equal(got, want)


@pytest.mark.parametrize("impl", IMPLS)
def test_batched_gradients(impl: whorl.Impl) -> None:
    rope, x = whorl.RoPE(8, impl=impl), random(1, 1, 2, 8).requires_grad_()
    y, directions = rope.rotate(x), random(5, 1, 1, 2, 8, seed=1)
    (batched,) = torch.autograd.grad(y, x, directions, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(y, x, d, retain_graph=True)[0] for d in directions]
    torch.testing.assert_close(batched, torch.stack(single))


def test_gradients_reach_positions_compiled_and_not() -> None:
    rope, x = whorl.RoPE(8), random(1, 1, 3, 8)
    grads = []
    torch._dynamo.reset()
    for call in (rope.rotate, torch.compile(rope.rotate, backend="aot_eager", fullgraph=True)):
        positions = torch.tensor([0.5, 1.5, 2.0], requires_grad=True)
        grads.append(torch.autograd.grad(call(x, positions).sum(), positions)[0])
    torch.testing.assert_close(grads[1], grads[0])
    assert float(grads[0].abs().max()) > 1e-3


def test_built_in_any_context_it_serves_any_other() -> None:
    x = random(1, 1, 9, 8, dtype=torch.float32).requires_grad_()
    with torch.inference_mode():
        made, copied = whorl.RoPE(8), copy.deepcopy(whorl.RoPE(8))
    for rope in (made, copied):
        rope.rotate(x).sum().backward()
    with torch.device("meta"):
        own = whorl.RoPE(8, inv_freq=[1.0, 0.1, 0.01, 0.001], scaling=whorl.NTK(2.0))
        dynamic = whorl.RoPE(8, scaling=whorl.DynamicNTK(2.0, 4))
        got = dynamic.rotate(x.detach(), torch.arange(9, device="cpu"))
    assert own.rotate(x).shape == x.shape
    assert torch.equal(got, dynamic.rotate(x.detach()))


def test_frequencies_are_a_copy_and_tables_float32() -> None:
    rope, x = whorl.RoPE(8, table_length=4), random(1, 1, 9, 8, dtype=torch.float32)
    want = rope.rotate(x)
    rope.frequencies().inv_freq.mul_(2)
    assert torch.equal(rope.rotate(x), want)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert rope.tables(torch.arange(3))[0].dtype == torch.float32
    finally:
        torch.set_default_dtype(before)


def test_trained_frequencies_can_be_reset() -> None:
    with torch.device("meta"):
        rope = whorl.RoPE(8, frequencies="trained")
    rope.to_empty(device="cpu")
    rope.reset_parameters()
    x = random(1, 1, 9, 8, dtype=torch.float32)
    torch.testing.assert_close(rope.rotate(x), whorl.RoPE(8).rotate(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("impl", IMPLS)
def test_negated_views_are_read_as_they_are(impl: whorl.Impl) -> None:
    rope, x = whorl.RoPE(8, impl=impl), random(1, 1, 3, 8, dtype=torch.float32)
    assert torch.equal(rope.rotate(torch._neg_view(x)), rope.rotate(-x))


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated, and still in use
def test_tracing_records_the_rotation() -> None:
    rope, x = whorl.RoPE(8), random(1, 2, 5, 8, dtype=torch.float32)
    traced = torch.jit.trace(rope, (x, x), check_trace=False)
    y = random(1, 2, 5, 8, dtype=torch.float32, seed=1)
    assert torch.equal(traced(y, x)[0], rope.rotate(y))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of inductor's own code
@pytest.mark.parametrize("scaling", [None, whorl.DynamicNTK(2.0, 16)])
def test_inductor_compiles_it_with_gradients(scaling: whorl.Scaling | None) -> None:
    rope = whorl.RoPE(16, scaling=scaling)

    def loss(q: Tensor, k: Tensor) -> Tensor:
        q, k = rope(q, k, offset=3, context_length=40)
        return (q @ k.mT).square().mean()

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True)
    q, k = (random(1, 2, 7, 16, dtype=torch.float32, seed=s).requires_grad_() for s in (0, 1))
    grads = torch.autograd.grad(compiled(q, k), (q, k))
    for got, want in zip(grads, torch.autograd.grad(loss(q, k), (q, k)), strict=True):
        torch.testing.assert_close(got, want)
