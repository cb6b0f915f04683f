"""Tensors without memory, numbers past int64, tensors that must not be written to: all in words."""

from collections.abc import Callable
from typing import Any, cast

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


def view(t: Tensor) -> Tensor:
    """A part of a larger tensor, freed afterwards; its address is not 0."""
    whole = torch.stack((t, t))
    part = whole[1]
    freed(whole)
    return part


def strided(t: Tensor) -> Tensor:
    whole = torch.stack((t, t), dim=-2)
    part = whole.select(-2, 1)
    freed(whole)
    return part


def shrunk(t: Tensor) -> Tensor:
    t.untyped_storage().resize_(t.nbytes - 1)
    return t


MAKERS = {"freed": freed, "view": view, "strided": strided, "shrunk": shrunk, "zero": zero}
WORDS = dict.fromkeys(MAKERS, "its storage was freed; got shape .* bytes, where .* are needed")
WORDS["zero"] = r"torch\._efficientzerotensor makes a tensor without any"
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
MASK, INDEX = torch.ones(2, 4, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
OTHERS: dict[str, tuple[str, Tensor, Callable[[Tensor], Any]]] = {
    "mask": ("attention: mask", MASK, lambda m: whorl.attention(x(), x(), x(), mask=m)),
    "wide mask": (
        "attention: mask",
        torch.ones(1, 1, 4, 4).bool(),
        lambda m: whorl.attention(x(), x(), x(), mask=m),
    ),
    "layer": (
        "attention: mask",
        MASK,
        lambda m: whorl.MultiheadAttention(8, 2)(torch.ones(2, 4, 8), mask=m),
    ),
    "linear": (
        "linear_attention: mask",
        MASK,
        lambda m: whorl.linear_attention(x(), x(), x(), mask=m),
    ),
    "update": (
        "KVCache.update: mask",
        MASK,
        lambda m: whorl.KVCache().update(x(), x(), x(), mask=m),
    ),
    "fractions": (
        "KVCache.update: positions",
        torch.arange(4.0),
        lambda p: whorl.KVCache().update(x(), x(), x(), positions=p),
    ),
    "documents": (
        "attention: documents",
        MASK.long(),
        lambda m: whorl.attention(x(), x(), x(), documents=m),
    ),
    "cu_seqlens": (
        "attention: cu_seqlens",
        torch.tensor([0, 4]),
        lambda n: whorl.attention(x()[:1], x()[:1], x()[:1], cu_seqlens=n),
    ),
    "segments": (
        "attention: segments",
        MASK.long(),
        lambda m: whorl.attention(x(), x(), x(), segments=m),
    ),
    "from_mask": ("from_mask: mask", MASK, whorl.positions.from_mask),
    "from_documents": ("from_documents: ids", MASK.long(), whorl.positions.from_documents),
    "from_cu_seqlens": (
        "from_cu_seqlens: cu_seqlens",
        torch.tensor([0, 4]),
        whorl.positions.from_cu_seqlens,
    ),
    "shard": ("shard: positions", MASK.long(), lambda p: whorl.positions.shard(p, 0, 2)),
    "types": ("from_token_types: types", INDEX[None], whorl.positions.from_token_types),
    "types mask": (
        "from_token_types: mask",
        MASK[:1, :2],
        lambda m: whorl.positions.from_token_types(INDEX[None], mask=m),
    ),
    "grids": (
        "from_token_types: image_grids",
        torch.ones(1, 3, dtype=torch.int64),
        lambda n: whorl.positions.from_token_types(INDEX[None], n),
    ),
    "reorder": ("KVCache.reorder: index", INDEX, lambda n: held().reorder(n)),
    "crop": ("KVCache.crop: length", INDEX, lambda n: held().crop(n)),
    "evict": ("KVCache.evict: drop", INDEX, lambda n: held().evict(n)),
    "evict mask": ("KVCache.evict: drop", MASK, lambda m: held().evict(m)),
    "inv_freq": ("RoPE: inv_freq", torch.ones(8), lambda f: whorl.RoPE(16, inv_freq=f)),
    "factors": (
        "LongRoPE: short_factors",
        torch.ones(8),
        lambda f: whorl.LongRoPE(cast(Any, f), [1.0] * 8, original_context=16, factor=2.0),
    ),
    "frequencies": (
        "RoPE.retune: old.inv_freq",
        torch.ones(8),
        lambda f: ROPE.retune(x(), old=whorl.Frequencies(f), new=F),
    ),
}


def held() -> whorl.KVCache:
    cache = whorl.KVCache(ROPE)
    cache.update(x(), x(), x())
    return cache


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("call", OTHERS)
def test_masks_and_indices_without_memory(kind: str, call: str) -> None:
    who, given, run = OTHERS[call]
    with pytest.raises(ValueError, match=f"^{who} must have memory, but .*{WORDS[kind]}"):
        run(MAKERS[kind](given.clone()))


@pytest.mark.parametrize("kind", MAKERS)
def test_messages_do_not_print_what_has_no_memory(kind: str) -> None:
    calls: list[Callable[[Tensor], Any]] = [
        lambda t: whorl.score_mod(whorl.ALiBi(2), t, 4),  # type: ignore[arg-type]
        lambda t: whorl.score_mod(whorl.ALiBi(2), 4, 4, offset=t),  # type: ignore[arg-type]
        lambda t: whorl.KVCache(capacity=t),  # type: ignore[arg-type]
        lambda t: whorl.attention(x(), x(), x(), window=t),  # type: ignore[arg-type]
        lambda t: whorl.linear_attention(x(), x(), x(), chunk=t),  # type: ignore[call-overload]
        ROPE.tables,
        whorl.Sinusoidal(8).table,
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"got a tensor of torch\.int64 \[2, 1, 4\]"):
            call(MAKERS[kind](torch.ones(2, 1, 4, dtype=torch.int64)))


GRADIENTS: dict[str, tuple[whorl.RoPE, dict[str, Any]]] = {
    "plain": (ROPE, {}),
    "offset": (ROPE, {"offset": torch.tensor([1, 2])}),
    "positions": (ROPE, {"positions": torch.arange(4) * 3}),
    "following": (FOLLOWING, {}),
    "trained": (whorl.RoPE(16, frequencies="trained"), {}),
    "reference": (whorl.RoPE(16, impl="reference"), {}),
}


@pytest.mark.parametrize("call", GRADIENTS)
def test_gradients_that_are_zero_tensors(call: str) -> None:
    rope, options = GRADIENTS[call]
    leaf = x().requires_grad_()
    rope.rotate(leaf, **options).backward(zero(leaf))
    assert leaf.grad is not None
    assert torch.equal(leaf.grad, torch.zeros(leaf.shape))


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "zero"])
@pytest.mark.parametrize("call", GRADIENTS)
def test_gradients_without_memory(kind: str, call: str) -> None:
    rope, options = GRADIENTS[call]
    leaf = x().requires_grad_()
    turned = rope.rotate(leaf, **options)
    with pytest.raises(ValueError, match=f"the gradient must have memory, but .*{WORDS[kind]}"):
        turned.backward(MAKERS[kind](x()))


def attend(name: str, positions: Tensor) -> Tensor:
    encoding = whorl.make(name, num_heads=3)
    return whorl.attention(x(), x(), x(), encoding=encoding, positions=positions)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("call", HEADS)
def test_tensors_without_memory(kind: str, call: str) -> None:
    who, run = HEADS[call]
    with pytest.raises(ValueError, match=f"^{who} must have memory, but .*{WORDS[kind]}"):
        run(MAKERS[kind](x()))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("call", INTEGERS)
def test_integers_without_memory(kind: str, call: str) -> None:
    who, count, run = INTEGERS[call]
    with pytest.raises(ValueError, match=f"^{who} must have memory, but .*{WORDS[kind]}"):
        run(MAKERS[kind](torch.ones(count, dtype=torch.int64)))


@pytest.mark.parametrize("kind", MAKERS)
def test_embeddings_without_memory(kind: str) -> None:
    tokens = torch.ones(1, 3, 8)
    for encoding in (whorl.Sinusoidal(8), whorl.Learned(8, max_length=4)):
        with pytest.raises(ValueError, match=f"x must have memory, but .*{WORDS[kind]}"):
            encoding.embed(MAKERS[kind](tokens.clone()))
    layer = whorl.MultiheadAttention(8, 2)
    with pytest.raises(
        ValueError, match=f"MultiheadAttention: query must have memory.*{WORDS[kind]}"
    ):
        layer(MAKERS[kind](tokens.clone()))


def test_a_bound_tensor_that_is_freed_later() -> None:
    q, k = x(1), x(1)
    step = ROPE.bind(q, k)
    step(3)
    freed(k)
    with pytest.raises(ValueError, match="RoPE: k must have memory"):
        step(4)


def test_a_bound_tensor_that_is_made_smaller_where_it_is() -> None:
    q, k = x(1), x(1)
    step = ROPE.bind(q, k)
    assert step._prepared is not None
    step._prepared._bytes[0] += 1  # as if the storage had shrunk and kept its address
    assert not step._prepared.is_valid()


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


LAST = 2**63 - 1
SUMS: dict[str, Callable[[], Any]] = {
    "rows": lambda: ROPE.rotate(x(), offset=torch.tensor([LAST, 0])),
    "one row": lambda: ROPE.rotate(x(), offset=torch.tensor(LAST - 3)),
    "one step": lambda: ROPE.rotate(x()[:, :, :1], offset=torch.tensor([LAST, 0])),
    "one step of all": lambda: ROPE.rotate(x()[:, :, :1], offset=torch.tensor(LAST)),
    "one step of three axes": lambda: whorl.MRoPE(16, sections=(4, 2, 2)).rotate(
        x()[:, :, :1], offset=torch.tensor([0, LAST])
    ),
    "down": lambda: ROPE.rotate(x(), torch.arange(4) - 2, offset=torch.tensor([-(2**63), 0])),
    "many rows": lambda: ROPE.rotate(
        x().expand(2, 3, 4, 16).repeat(40, 1, 1, 1), offset=torch.arange(80) + (LAST - 70)
    ),
    "positions": lambda: ROPE.rotate(x(), torch.arange(4) + (LAST - 5), offset=10),
    "positions down": lambda: ROPE.rotate(x(), torch.arange(4) - 2**63, offset=-1),
    "both": lambda: ROPE.rotate(
        x(), torch.full((2, 4), LAST - 5), offset=torch.tensor([5, 0], dtype=torch.int32)
    ),
    "sinusoidal": lambda: whorl.Sinusoidal(8).embed(
        torch.ones(2, 4, 8), offset=torch.tensor([LAST, 0])
    ),
}


@pytest.mark.parametrize("call", SUMS)
def test_sums_of_positions_and_offsets_beyond_int64(call: str) -> None:
    with pytest.raises(ValueError, match=r"positions must lie within 2\^63.*sums go from"):
        SUMS[call]()


def test_the_last_sums_within_int64() -> None:
    rows = torch.tensor([LAST - 4, -(2**63)])
    assert bool(ROPE.rotate(x()[:, :, :1], offset=rows + 3).isfinite().all())
    assert bool(ROPE.rotate(x(), offset=rows).isfinite().all())
    assert bool(ROPE.rotate(x(), torch.arange(4) - 2**63, offset=LAST - 8).isfinite().all())


@pytest.mark.parametrize("impl", IMPLS)
def test_no_rows_of_one_length(impl: whorl.Impl) -> None:
    rope = whorl.RoPE(16, scaling=whorl.DynamicYaRN(50), lengths="batch", impl=impl)
    none, at = torch.ones(0, 2, 5, 16), torch.zeros(0, 5, dtype=torch.int64)
    assert rope.rotate(none, at).shape == none.shape
    assert rope.rotate(none, offset=at[:, 0]).shape == none.shape
    assert rope(none, none, at)[1].shape == none.shape
    assert rope.tables(at)[0].shape == (0, 5, 8)
    assert whorl.attention(none, none, none, rope, positions=at).shape == none.shape


SIZES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "capacity": ("KVCache: capacity", lambda n: whorl.KVCache(ROPE, capacity=n)),
    "sinks": ("KVCache: sinks", lambda n: whorl.KVCache(ROPE, window=4, sinks=n)),
    "window": ("KVCache: window", lambda n: whorl.KVCache(ROPE, window=n)),
    "steps": ("KVCache: steps", lambda n: whorl.KVCache(ROPE, steps=n)),
    "chunk": (
        "linear_attention: chunk",
        lambda n: whorl.linear_attention(x(), x(), x(), causal=True, chunk=n),
    ),
    "table_length": ("RoPE: table_length", lambda n: whorl.RoPE(16, table_length=n)),
    "head_dim": ("RoPE: head_dim", whorl.RoPE),
    "table": ("Sinusoidal: table_length", lambda n: whorl.Sinusoidal(8, table_length=n)),
    "dim": ("Sinusoidal: dim", whorl.Sinusoidal),
    "learned": ("Learned: max_length", lambda n: whorl.Learned(8, max_length=n)),
}


@pytest.mark.parametrize("size", [2**62 + 2, 2**63, 10**30])
@pytest.mark.parametrize("call", SIZES)
def test_sizes_beyond_memory(call: str, size: int) -> None:
    who, run = SIZES[call]
    with pytest.raises(ValueError, match=rf"^{who} must be .*(at most|up to) 2\^(32|62)"):
        run(size)


def test_a_window_larger_than_any_stream_allocates_nothing() -> None:
    cache, plain = whorl.KVCache(ROPE, window=2**62), whorl.KVCache(ROPE)
    for made in (cache, plain):
        made.update(x(), x(), x())
    assert cache.memory == plain.memory
    step = cache.update(x(1), x(1), x(1))
    assert torch.equal(step.k, plain.update(x(1), x(1), x(1)).k)


def test_one_position_per_token_is_refused_on_several_axes_alike() -> None:
    axial, at, two = whorl.AxialRoPE(16), torch.arange(4), torch.arange(4).expand(2, 4)
    calls: dict[str, Callable[[], Any]] = {
        "AxialRoPE": lambda: axial.rotate(x(), at),
        "linear_attention": lambda: whorl.linear_attention(x(), x(), x(), axial, positions=at),
        "linear_attention:": lambda: whorl.linear_attention(
            x(), x(), x(), axial, positions=two, key_positions=at
        ),
        "linear_attention: ": lambda: whorl.linear_attention(
            x(), x(), x(), axial, positions=at, causal=True
        ),
        "KVCache.update": lambda: whorl.KVCache(axial).update(x(), x(), x(), positions=at),
    }
    for who, call in calls.items():
        with pytest.raises(
            ValueError, match=rf"^{who}.*positions must be \[n, T\].*one row.*got \[4\]"
        ):
            call()


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
