"""Fake tensors, which have shapes and no numbers: as tools that plan memory and export use them."""

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import whorl
from whorl._support.tensors import has_values, use_real_tensors
from whorl.attention import attention, linear_attention, shifted_attention

from .test_softmax import ENCODINGS, D, H, randn

T = 20
OPTIONS: dict[str, Any] = {
    "plain": dict,
    "positions": lambda: {"positions": torch.arange(T).expand(2, T)},
    "padding": lambda: {"mask": torch.ones(2, T, dtype=torch.bool)},
    "documents": lambda: {"documents": torch.arange(T) // 7},
    "dropout": lambda: {"dropout": 0.1, "window": 5, "sinks": 2},
}
# Options are the business of attention, whatever the encoding does: three stand for all there.
CASES = [(encoding, name) for encoding in ENCODINGS for name in ("plain", "positions")]
CASES += [
    (encoding, name)
    for encoding in (whorl.RoPE(D), whorl.T5Bias(H), whorl.Shaw(H, D, values="trained"))
    for name in ("padding", "documents", "dropout")
]
# And how many blocks there are is the business of neither: several in one case, one in the other.
BLOCKS = {"plain": (8,), "positions": (256,)}
LINEAR = (None, whorl.RoPE(D), whorl.XPos(D), whorl.ALiBi(H))


# RoPE asks for the address of its table, which a fake one does not have.
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize(("encoding", "name"), CASES, ids=map(str, CASES))
def test_attention(encoding: whorl.Encoding, name: str) -> None:
    settings = encoding.to_dict()
    with FakeTensorMode():
        built, options = whorl.from_dict(settings), OPTIONS[name]()
        if encoding.position_axes > 1 and "positions" in options:
            options["positions"] = torch.arange(T).expand(encoding.position_axes, 2, T)
        q, k, v = (torch.randn(2, H, T, D, requires_grad=True) for _ in range(3))
        for block in BLOCKS.get(name, (8, 256)):
            out = attention(q, k, v, built, causal=True, block=block, **options)
            assert out.shape == q.shape
            out.sum().backward()
        if "dropout" not in options and "documents" not in options and "mask" not in options:
            out = shifted_attention(q, k, v, built, causal=True, group=6, **options)
            assert out.shape == q.shape


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("encoding", LINEAR, ids=repr)
def test_linear_attention(encoding: whorl.Encoding | None) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        q, k, v = (torch.randn(2, H, T, D) for _ in range(3))
        at, mask = torch.arange(T).expand(2, T), torch.ones(2, T, dtype=torch.bool)
        options: dict[str, Any] = {"positions": at, "mask": mask, "causal": True}
        out, state = linear_attention(q, k, v, encoding, return_state=True, **options)
        assert out.shape == q.shape
        more = linear_attention(q, k, v, encoding, causal=True, state=state)
        assert more.shape == q.shape


def test_packed_rows_of_a_fake_batch() -> None:
    with FakeTensorMode():
        q, k, v = (torch.randn(1, H, T, D) for _ in range(3))
        ends = torch.tensor([0, 7, T])
        assert attention(q, k, v, causal=True, cu_seqlens=ends, block=8).shape == q.shape
        with pytest.raises(ValueError, match=r"cu_seqlens must be integers.* got \[1, 3\]"):
            attention(q, k, v, causal=True, cu_seqlens=ends[None])


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_constants_built_under_a_fake_mode_are_the_real_ones() -> None:
    with FakeTensorMode():
        fake, span = whorl.T5Bias(H, max_distance=77), whorl.XPos(D).span(torch.float32)
    assert fake._starts == whorl.T5Bias(H, max_distance=77)._starts
    assert span == whorl.XPos(D).span(torch.float32)


def test_when_numbers_can_be_read() -> None:
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(has_values(x))
        return x.sum()

    def found(_: Any) -> list[bool]:
        values = list(seen)
        seen.clear()
        return values

    x = randn(2, 3)
    assert found(look(x)) == [True]
    assert found(torch.func.grad(look)(x)) == [True]
    assert found(torch.func.vmap(look)(x)) == [False]
    assert found(torch.func.vmap(torch.func.grad(look))(x)) == [False]
    assert found(torch.func.vmap(lambda y: look(x) + y)(x)) == [True]
    assert found(torch.fx.experimental.proxy_tensor.make_fx(look)(x)) == [False]
    assert found(look(x.to("meta"))) == [False]
    torch._dynamo.reset()
    assert torch.compile(has_values, backend="eager", fullgraph=True)(x) is False
    with FakeTensorMode() as mode:
        assert found(look(torch.ones(3))) == [False]
        with use_real_tensors():
            assert found(look(torch.ones(3))) == [True]
    assert found(look(mode.from_tensor(x))) == [False]
