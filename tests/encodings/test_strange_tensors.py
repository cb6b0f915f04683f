"""Tensors without memory, numbers past int64, tensors that must not be written to: all in words."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl

from .rotations import IMPLS, random

ROPE, FOLLOWING = whorl.RoPE(16), whorl.RoPE(16, scaling=whorl.DynamicNTK(2.0, 16))
F = ROPE.frequencies()


def x(length: int = 4) -> Tensor:
    return random(2, 3, length, 16, dtype=torch.float32)


def freed(t: Tensor) -> Tensor:
    t.untyped_storage().resize_(0)
    return t


def zero(t: Tensor) -> Tensor:
    return torch._efficientzerotensor(t.shape, dtype=t.dtype)


MAKERS = {"storage was freed": freed, "torch._efficientzerotensor": zero}
HEADS: dict[str, tuple[str, Callable[[Tensor], Any]]] = {
    "rotate": ("RoPE: x", ROPE.rotate),
    "rotate_": ("RoPE: x", ROPE.rotate_),
    "inverse": ("RoPE: x", lambda t: ROPE.rotate(t, inverse=True)),
    "queries": ("RoPE: q", lambda t: ROPE(t, x())),
    "keys": ("RoPE: k", lambda t: ROPE(x(), t)),
    "training": ("RoPE: x", lambda t: ROPE.rotate(t.requires_grad_())),
    "out": ("RoPE: out", lambda t: ROPE.rotate(x(), out=t)),
    "bind": ("RoPE: q", lambda t: ROPE.bind(t, x())),
    "shift": ("RoPE.shift: k", lambda t: ROPE.shift(t, 1)),
    "retune": ("RoPE.retune: k", lambda t: ROPE.retune(t, old=F, new=F)),
    "reference": ("RoPE: x", whorl.RoPE(16, impl="reference").rotate),
    "xpos": ("XPos: q", lambda t: whorl.XPos(16)(t, x())),
    "attention": ("attention: q", lambda t: whorl.attention(t, x(), x(), encoding=ROPE)),
    "values": ("attention: v", lambda t: whorl.attention(x(), x(), t)),
    "linear": ("linear_attention: k", lambda t: whorl.linear_attention(x(), t, x(), encoding=ROPE)),
    "cache": ("KVCache.update: k", lambda t: whorl.KVCache(encoding=ROPE).update(x(), t, x())),
}
INTEGERS: dict[str, tuple[str, int, Callable[[Tensor], Any]]] = {
    "positions": ("RoPE: positions", 4, lambda n: ROPE.rotate(x(), n)),
    "key_positions": ("RoPE: positions", 4, lambda n: ROPE(x(), x(), key_positions=n)),
    "offset": ("RoPE: offset", 2, lambda n: ROPE.rotate(x(), offset=n)),
    "decode": ("RoPE: offset", 2, lambda n: ROPE.rotate(x(1), offset=n)),
    "tables": ("RoPE.tables: positions", 4, ROPE.tables),
    "delta": ("RoPE.shift: delta", 2, lambda n: ROPE.shift(x(), n)),
    "context": ("RoPE: context_length", 2, lambda n: FOLLOWING.rotate(x(), context_length=n)),
    "alibi": ("attention: positions", 4, lambda n: attend("alibi", n)),
}


def attend(name: str, positions: Tensor) -> Tensor:
    encoding = whorl.make(name, num_heads=3)
    return whorl.attention(x(), x(), x(), encoding=encoding, positions=positions)


@pytest.mark.parametrize("words", MAKERS)
@pytest.mark.parametrize("call", HEADS)
def test_tensors_without_memory(words: str, call: str) -> None:
    who, run = HEADS[call]
    with pytest.raises(ValueError, match=f"^{who} must have memory, but .*{words}"):
        run(MAKERS[words](x()))


@pytest.mark.parametrize("words", MAKERS)
@pytest.mark.parametrize("call", INTEGERS)
def test_integers_without_memory(words: str, call: str) -> None:
    who, count, run = INTEGERS[call]
    with pytest.raises(ValueError, match=f"^{who} must have memory, but .*{words}"):
        run(MAKERS[words](torch.ones(count, dtype=torch.int64)))


@pytest.mark.parametrize("words", MAKERS)
def test_embeddings_without_memory(words: str) -> None:
    tokens = torch.ones(1, 3, 8)
    for encoding in (whorl.Sinusoidal(8), whorl.Learned(8, max_length=4)):
        with pytest.raises(ValueError, match=f"x must have memory, but .*{words}"):
            encoding.embed(MAKERS[words](tokens.clone()))
    layer = whorl.MultiheadAttention(8, 2)
    with pytest.raises(ValueError, match=f"MultiheadAttention: query must have memory.*{words}"):
        layer(MAKERS[words](tokens.clone()))


def test_a_bound_tensor_that_is_freed_later() -> None:
    q, k = x(1), x(1)
    step = ROPE.bind(q, k)
    step(3)
    freed(k)
    with pytest.raises(ValueError, match="RoPE: k must have memory"):
        step(4)


def test_empty_tensors_and_transforms_need_no_memory() -> None:
    assert ROPE.rotate(torch.empty(2, 3, 0, 16)).shape == (2, 3, 0, 16)
    assert ROPE.rotate(x().to("meta")).shape == (2, 3, 4, 16)
    mapped = torch.func.vmap(lambda t, p: ROPE.rotate(t, p), (0, None))
    many = torch.stack((x(), x()))
    assert torch.equal(mapped(many, torch.arange(4))[1], ROPE.rotate(x()))


TOO_FAR = [2**63, 2**63 - 4, -(2**63) - 1, 2**200]
OFFSETS: dict[str, Callable[[int], Any]] = {
    "forward": lambda n: ROPE(x(), x(), offset=n),
    "rotate_": lambda n: ROPE.rotate_(x(), offset=n),
    "positions": lambda n: ROPE.rotate(x(), torch.arange(4), offset=n),
    "bound": lambda n: ROPE.bind(x(), x())(n),
    "retune": lambda n: ROPE.retune(x(), old=F, new=F, offset=n),
    "sinusoidal": lambda n: whorl.Sinusoidal(8).embed(torch.ones(1, 4, 8), offset=n),
}


@pytest.mark.parametrize("offset", TOO_FAR)
@pytest.mark.parametrize("call", OFFSETS)
def test_offsets_beyond_int64(call: str, offset: int) -> None:
    with pytest.raises(
        ValueError, match=r"positions must lie within 2\^63.*int64; got an offset of"
    ):
        OFFSETS[call](offset)


@pytest.mark.parametrize("offset", [2**63 - 5, -(2**63)])
def test_the_last_offsets_within_int64(offset: int) -> None:
    assert bool(ROPE.rotate(x(), offset=offset).isfinite().all())


@pytest.mark.parametrize("offset", [[2**63, 1], [2**200, 1], ["a", "b"], [None, 1]])
def test_rows_of_offsets_that_are_no_int64(offset: Any) -> None:
    with pytest.raises(ValueError, match=r"offset must be an int or (one int64|integers)"):
        ROPE.rotate(x(), offset=offset)


def test_offsets_of_other_kinds() -> None:
    numpy = pytest.importorskip("numpy")
    expected = ROPE.rotate(x(), offset=3)
    for three in (numpy.int64(3), numpy.int8(3), numpy.array(3)):
        assert torch.equal(ROPE.rotate(x(), offset=three), expected)
    wrong = [True, 3.0, numpy.float32(3), numpy.bool_(True), numpy.array([1, 2]), 3j, "3", None]
    for offset in [*wrong, object()]:
        with pytest.raises(TypeError, match="offset must be an int or one int per batch row; got"):
            ROPE.rotate(x(), offset=offset)


@pytest.mark.parametrize("delta", [float("nan"), float("inf"), 2**63, 10**400])
def test_shifts_that_are_no_positions(delta: float) -> None:
    with pytest.raises(ValueError, match=r"delta must be finite and within 2\^63"):
        ROPE.shift(x(), delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [2**63, 10**400])
def test_context_lengths_beyond_int64(length: int) -> None:
    with pytest.raises(ValueError, match=r"context_length must be below 2\^63.*bits"):
        FOLLOWING.rotate(x(), context_length=length)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inference_tensors_are_written_only_in_inference_mode(
    impl: whorl.Impl, dtype: torch.dtype
) -> None:
    rope = whorl.RoPE(16, impl=impl)
    with torch.inference_mode():
        q, k = x().to(dtype) + 0, x().to(dtype) + 0
        step = rope.bind(q, k)
    writes: list[Callable[[], Any]] = [
        lambda: rope.rotate_(q),
        lambda: rope.forward_(x().to(dtype), k),
        lambda: rope.rotate(x().to(dtype), out=q),
        lambda: rope.rotate_(q, inverse=True),
        lambda: rope.bind(q, k),
        lambda: step(1),
    ]
    before = q.clone()
    for write in writes:
        with pytest.raises(
            RuntimeError, match=r"an inference tensor outside torch\.inference_mode"
        ):
            write()
    assert torch.equal(q, before)
    assert torch.equal(rope.rotate(q), rope.rotate(before))  # reading is no harm
    with torch.inference_mode():
        assert torch.equal(rope.rotate_(q), rope.rotate(before))
        step(1)


OVERLAPPING = {
    "heads": torch.randn(80).as_strided((1, 2, 3, 16), (16, 8, 16, 1)),
    "positions": torch.randn(1, 1, 28).unfold(2, 16, 4),
    "sequences": torch.randn(200).as_strided((2, 1, 3, 16), (16, 48, 16, 1)),
    "one element": torch.randn(40).as_strided((1, 1, 2, 16), (40, 40, 15, 1)),
    "channels": torch.randn(80).as_strided((1, 1, 3, 16), (80, 80, 10, 2)),
}


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("name", OVERLAPPING)
def test_views_that_overlap_themselves_are_not_written(name: str, impl: whorl.Impl) -> None:
    rope, view = whorl.RoPE(16, impl=impl), OVERLAPPING[name]
    writes: list[Callable[[], Any]] = [
        lambda: rope.rotate_(view),
        lambda: rope.forward_(view.clone(), view),
        lambda: rope.rotate(view.clone(), out=view),
        lambda: rope.bind(view, view.clone()),
    ]
    before = view.clone()
    for write in writes:
        with pytest.raises(ValueError, match="cannot write into a view that overlaps itself"):
            write()
    assert torch.equal(view, before)
    assert torch.equal(rope.rotate(view), rope.rotate(before))


def test_views_whose_steps_interlock_without_meeting_are_written() -> None:
    rope, memory = whorl.RoPE(2), torch.randn(12)
    view = memory.as_strided((1, 1, 2, 2), (12, 12, 3, 2))  # places 0 2 and 3 5
    expected = rope.rotate(view.clone())
    assert torch.equal(rope.rotate_(view), expected)
    woven = torch.randn(40).as_strided((1, 2, 3, 2), (40, 9, 6, 1))  # 0 6 12 and 9 15 21
    expected = rope.rotate(woven.clone())
    assert torch.equal(rope.rotate_(woven), expected)
