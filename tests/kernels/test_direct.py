"""The shortest way to the kernel: the general way's bits, or declined with nothing written."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.kernels import direct, native, reference
from whorl.kernels.native import RotatedChannels
from whorl.kernels.row_table import Table, TableRows

from .rotations import compute_angles, layouts, normal, seeds

pytestmark = pytest.mark.skipif(native.find_problem() is not None, reason="no native library")

WIDTH = 12
TABLE = Table(reference.compute_table(compute_angles(32, WIDTH // 2)).float())
HALF = RotatedChannels("half", "half", 0)


def strided(shape: tuple[int, int, int, int], order: str, seed: int, dtype: torch.dtype) -> Tensor:
    """[B, H, T, D] as callers have it: dense, a transposed [B, T, H, D], or cut from a cache."""
    batch, heads, length, width = shape
    if order == "heads last":
        return normal(batch, length, heads, width, seed=seed, dtype=dtype).transpose(1, 2)
    if order == "cache":
        return normal(batch, heads, length + 3, width, seed=seed, dtype=dtype)[:, :, 2 : 2 + length]
    return normal(*shape, seed=seed, dtype=dtype)


orders = st.sampled_from(["dense", "heads last", "cache"])


@given(
    seeds,
    layouts,
    layouts,
    st.tuples(orders, orders, orders, orders),
    st.sampled_from(["new", "in place", "out", "keys only"]),
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 4)),
    st.integers(0, 28),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_same_bits_as_the_general_way(
    seed: int,
    layout: str,
    out_layout: str,
    order: tuple[str, str, str, str],
    mode: str,
    sizes: tuple[int, int, int, int],
    first: int,
    dtype: torch.dtype,
) -> None:
    batch, heads, groups, length = sizes
    shapes = (batch, heads, length, WIDTH), (batch, groups, length, WIDTH)
    q, k = (strided(shapes[n], order[n], seed + n, dtype) for n in (0, 1))
    into = tuple(strided(shapes[n], order[n + 2], 0, dtype).fill_(7) for n in (0, 1))
    band = RotatedChannels(layout, out_layout, 0)
    rows = [TableRows(TABLE, first)] * 2
    want = native.rotate([q.clone(), k.clone()], None, rows, band, False)
    assert want is not None
    outs = {"new": None, "in place": (q, k), "out": into, "keys only": (q, into[1])}[mode]
    before = q.clone(), k.clone()
    done = direct.rotate((q, k), outs, TABLE, first, band, WIDTH)
    if mode in ("in place", "keys only") and layout != out_layout:
        assert done is None
        assert torch.equal(q, before[0])
        return
    assert done is not None
    for got, right in zip(done, want, strict=True):
        assert torch.equal(got, right)
    if outs is not None:
        assert all(got is out for got, out in zip(done, outs, strict=True))
    else:
        assert torch.equal(q, before[0])
        assert torch.equal(k, before[1])


def q_and_k() -> tuple[Tensor, Tensor]:
    return normal(2, 3, 4, WIDTH, dtype=torch.float32), normal(2, 1, 4, WIDTH, dtype=torch.float32)


def fused() -> tuple[Tensor, Tensor]:
    both = normal(2, 4, 2, 3, WIDTH, dtype=torch.float32)
    return both[:, :, 0].transpose(1, 2), both[:, :, 1].transpose(1, 2)


def shifted() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Results that would be written one token further on in the memory of the queries."""
    memory = normal(Q.numel() + WIDTH, dtype=torch.float32)
    x, out = (memory[n : n + Q.numel()].view(Q.shape) for n in (0, WIDTH))
    return (x, K), (out, K.clone())


Q, K = q_and_k()
UNUSUAL: dict[str, Callable[[], tuple[tuple[Tensor, ...], object]]] = {
    "float64": lambda: ((Q.double(), K.double()), None),
    "another dtype": lambda: ((Q, K.half()), None),
    "another batch": lambda: ((Q, K[:1]), None),
    "another length": lambda: ((Q, K[:, :, :2]), None),
    "another width": lambda: ((Q[..., :8].clone(), K), None),
    "three axes": lambda: ((Q[0], K[0]), None),
    "a parameter": lambda: ((torch.nn.Parameter(Q), K), None),
    "a gradient, in place": lambda: ((q := Q.clone().requires_grad_(), K), (q, K)),
    "no tensor": lambda: ((Q, None), None),  # type: ignore[dict-item, return-value]
    "no tokens": lambda: ((Q[:, :, :0], K[:, :, :0]), None),
    "meta device": lambda: ((Q.to("meta"), K.to("meta")), None),
    "negative view": lambda: ((torch._neg_view(Q), K), None),
    "channels apart": lambda: ((Q.transpose(2, 3).contiguous().transpose(2, 3), K), None),
    "expanded": lambda: ((Q[:, :1].expand(2, 3, 4, WIDTH), K), None),
    "one out": lambda: ((Q, K), (Q,)),
    "out is a tensor": lambda: ((Q, Q), torch.zeros(2, *Q.shape)),
    "out of another shape": lambda: ((Q, K), (K.clone(), K.clone())),
    "out of another dtype": lambda: ((Q, K), (Q.half(), K.half())),
    "out needs a gradient": lambda: ((Q, K), (Q.clone().requires_grad_(), K.clone())),
    "outs are one": lambda: ((Q, Q), (out := torch.zeros_like(Q), out)),
    "outs swapped": lambda: ((Q, a := Q + 1), (a, Q)),
    "out over its input": shifted,
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_declines_what_is_unusual(name: str) -> None:
    xs, outs = UNUSUAL[name]()
    kept = [x.clone() if isinstance(x, Tensor) and not x.is_meta else x for x in xs]
    assert direct.rotate(xs, outs, TABLE, 0, HALF, WIDTH) is None  # type: ignore[arg-type]
    for x, was in zip(xs, kept, strict=True):
        if isinstance(x, Tensor) and not x.is_meta:
            assert torch.equal(x, was)


@pytest.mark.parametrize("first", [-1, 29, 1 << 70])
def test_declines_rows_that_the_table_lacks(first: int) -> None:
    assert direct.rotate(q_and_k(), None, TABLE, first, HALF, WIDTH) is None


def test_takes_slots_of_one_buffer_only_where_they_lie_apart() -> None:
    q, k = fused()
    assert direct.rotate((q, k), (q, k), TABLE, 0, HALF, WIDTH) is None  # spans interlock
    one = normal(1, 1, 2, 3, WIDTH, dtype=torch.float32)
    q, k = one[:, :, 0].transpose(1, 2), one[:, :, 1].transpose(1, 2)
    assert direct.rotate((q, k), (q, k), TABLE, 0, HALF, WIDTH) is not None


def test_declines_where_somebody_looks_on() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return f(*args, **(kwargs or {}))

    q, k = q_and_k()
    with Looking():
        assert direct.rotate((q, k), None, TABLE, 0, HALF, WIDTH) is None
    assert direct.rotate((q, k), None, TABLE, 0, HALF, WIDTH) is not None


def test_autograd_notices_what_was_written() -> None:
    q, k = q_and_k()
    weight = torch.ones_like(q, requires_grad=True)
    product = (weight * q).sum()
    whorl.RoPE(WIDTH).forward_(q, k, offset=3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_plain_calls_go_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rope, (q, k) = whorl.RoPE(WIDTH), q_and_k()
    want = rope(q, k, torch.arange(3, 7))
    taken = []

    def watch(*arguments: object) -> list[Tensor] | None:
        taken.append(true(*arguments))  # type: ignore[arg-type]
        return taken[-1]

    true = direct.rotate
    monkeypatch.setattr(direct, "rotate", watch)
    got = rope(q, k, offset=3)
    assert len(taken) == 1
    assert taken[0] is not None
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])
    assert torch.equal(rope.rotate(q, offset=3), want[0])
    assert len(taken) == 2


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("out_layout", ["half", "interleaved"])
def test_gradients_are_those_of_the_reference(
    layout: whorl.Layout, out_layout: whorl.Layout
) -> None:
    rope = whorl.RoPE(WIDTH, layout=layout, out_layout=out_layout, rotary_dim=8, rotary_start=2)
    oracle = whorl.RoPE(**{**rope.config.to_dict(), "impl": "reference"})
    grads = [normal(*x.shape, seed=5, dtype=torch.float32) for x in q_and_k()]

    def train(by: whorl.RoPE, *, offset: int = 3) -> list[Tensor]:
        q, k = (x.requires_grad_() for x in q_and_k())
        weights = [g.clone().requires_grad_() for g in grads]
        outs = by(q, k, offset=offset)
        if by is rope:
            assert type(outs[0].grad_fn).__name__ == "_TableRotationFunctionBackward"
        once = torch.autograd.grad(outs, (q, k), weights, create_graph=True)
        twice = torch.autograd.grad([g.pow(2).sum() for g in once], weights)
        return [*outs, *once, *twice]

    for got, want in zip(train(rope), train(oracle), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_gradients_that_no_tensor_holds() -> None:
    """Expanded by sum(), missing for one of the results, and a batch of them at once."""
    rope = whorl.RoPE(WIDTH)
    q, k = (x.requires_grad_() for x in q_and_k())
    ones = rope.rotate(torch.ones_like(q), offset=3, inverse=True)
    (grad,) = torch.autograd.grad(rope(q, k, offset=3)[0].sum(), q)
    torch.testing.assert_close(grad, ones.detach())
    many = torch.stack([torch.ones_like(q), torch.zeros_like(q)])
    (grads,) = torch.autograd.grad(rope(q, k, offset=3)[0], q, many, is_grads_batched=True)
    torch.testing.assert_close(grads, torch.stack([ones, torch.zeros_like(ones)]))


def test_nothing_is_saved_for_the_backward_pass() -> None:
    q, k = (x.requires_grad_() for x in q_and_k())
    saved: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        saved.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        whorl.RoPE(WIDTH)(q, k, offset=3)
    assert saved == []
