"""Content scores that the C library reads by distance: values, gradients and theirs, dropout."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.attention import attention
from whorl.attention.softmax import content
from whorl.attention.softmax.content import ContentCall
from whorl.kernels import native

from .test_softmax import D, H, fresh, randn, visible

pytestmark = pytest.mark.skipif(native.find_problem() is not None, reason="no C library")

T = 23
OPTIONS: list[dict[str, Any]] = [
    {"max_distance": 9},
    {"buckets": "log", "position_buckets": 8, "max_distance": 16, "norm": "layer_norm"},
    {"terms": ("c2p",), "max_distance": 40},
    {"terms": ("p2c",), "max_distance": 5, "p2c_index": "paper"},
]


#: Sizes for finite differences, which take a call or more for every number.
SMALL = {"num_heads": 2, "head_dim": 4, "dim": 6}


def build(options: dict[str, Any]) -> whorl.DeBERTa:
    encoding = fresh(whorl.DeBERTa(**{"num_heads": H, "head_dim": D, **options}))
    assert isinstance(encoding, whorl.DeBERTa)
    return encoding


def compute_dense(q: Tensor, k: Tensor, v: Tensor, encoding: whorl.DeBERTa, seen: Tensor) -> Tensor:
    """The definition, by one matrix."""
    places = torch.arange(k.shape[2])
    queries = places[k.shape[2] - q.shape[2] :]
    k, v = (x.repeat_interleave(H // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT + encoding.content_score(q, k, queries, places)
    scores = (scores * encoding.softmax_scale(D)).masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[ContentCall]:
    calls: list[ContentCall] = []
    attend = ContentCall.attend

    def counted(self: ContentCall, *args: Any) -> Tensor:
        calls.append(self)
        return attend(self, *args)

    monkeypatch.setattr(ContentCall, "attend", counted)
    return calls


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["all", "causal", "window", "padded", "a row of padding", "late"])
def test_values_and_gradients(
    kind: str, options: dict[str, Any], stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not stored:
        monkeypatch.setattr(content, "_STORED_WEIGHTS", 0)
    calls = count_calls(monkeypatch)
    encoding, groups = build(options), 2 if kind == "all" else H
    start = 9 if kind == "late" else 0
    q = randn(2, H, T, D, seed=0)[:, :, start:].requires_grad_()
    k, v = (randn(2, groups, T, D, seed=n).requires_grad_() for n in (1, 2))
    places = torch.arange(T)
    call: dict[str, Any] = {"causal": kind in ("causal", "late"), "window": None}
    if kind == "window":
        call |= {"window": 6}
    seen = visible(places[start:], places, **call)
    if "padd" in kind:
        mask = torch.ones(2, T, dtype=torch.bool)
        mask[0, 15:] = False
        mask[1, : T if kind == "a row of padding" else 0] = False
        call["mask"] = mask
        seen = seen & mask[:, None, None]
    want = compute_dense(q, k, v, encoding, seen)
    inputs = [q, k, v, *encoding.parameters()]
    for block in (7, 256):
        got = attention(q, k, v, encoding, block=block, **call)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
        with torch.no_grad():
            torch.testing.assert_close(
                attention(q, k, v, encoding, block=block, **call), want, rtol=1e-12, atol=1e-12
            )
        weight = randn(*got.shape, seed=9)
        mine, theirs = (
            torch.autograd.grad((out * weight).sum(), inputs, retain_graph=True, allow_unused=True)
            for out in (got, want)
        )
        for one, other in zip(mine, theirs, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert len(calls) == 4


@pytest.mark.parametrize("stored", [True, False])
def test_gradients_under_dropout(stored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not stored:
        monkeypatch.setattr(content, "_STORED_WEIGHTS", 0)
    encoding, small = build(OPTIONS[0]), build(OPTIONS[0] | SMALL)
    inputs = [randn(2, H, 11, D, seed=n).requires_grad_() for n in range(3)]

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attention(q, k, v, encoding if q.shape[1] == H else small, dropout=0.4, block=2)

    # The result is linear in v, whatever is dropped.
    weight = randn(2, H, 11, D, seed=9)
    out = call(*inputs)
    (grad,) = torch.autograd.grad((out * weight).sum(), inputs[2])
    torch.testing.assert_close((grad * inputs[2]).sum(), (out * weight).sum())
    with torch.no_grad():
        assert torch.equal(call(*inputs), out)
    few = [x[:1, :2, :3, :4].detach().clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(call, few)
    assert torch.autograd.gradgradcheck(call, few)
    q, k, v = inputs
    ones = torch.ones_like(v)
    means = [attention(q, k, ones, encoding, dropout=0.4).mean() for _ in range(30)]
    assert abs(torch.stack(means).mean().item() - 1) < 0.05


def test_gradients_of_gradients() -> None:
    encoding = build(OPTIONS[1] | SMALL | {"position_buckets": 4})
    inputs = [randn(1, 2, 3, 4, seed=n).requires_grad_() for n in range(3)]
    vectors = encoding.vectors.detach().clone().requires_grad_()

    def call(q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> Tensor:
        return attention(q, k, v, encoding.with_parameters(vectors=rows), block=2)

    assert torch.autograd.gradcheck(call, (*inputs, vectors))
    assert torch.autograd.gradgradcheck(call, (*inputs, vectors))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    encoding = build(OPTIONS[0]).to(dtype).requires_grad_(False)
    q, k, v = (randn(2, H, 40, D, seed=n).to(dtype) for n in range(3))
    seen = torch.ones(40, 40, dtype=torch.bool)
    exact = compute_dense(q.double(), k.double(), v.double(), encoding.double(), seen)
    got = attention(q, k, v, encoding.to(dtype))
    assert got.dtype == dtype
    near = 2 * float((exact.to(dtype).double() - exact).abs().max()) + 1e-6
    assert float((got.double() - exact).abs().max()) <= near


def test_what_is_added_to_scores_takes_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch)
    encoding = build(OPTIONS[0])
    q, k, v = (randn(1, H, 6, D, seed=n) for n in range(3))
    attention(q, k, v, encoding, softcap=2.0)
    attention(q, k, v, encoding, documents=torch.tensor([0, 0, 0, 1, 1, 1]))
    attention(q, k, v, encoding, positions=torch.tensor([0, 2, 3, 7, 8, 9]))
    attention(q, k, v, encoding + fresh(whorl.T5Bias(H, scale=None)))
    assert not calls
    attention(q, k, v, encoding)
    assert len(calls) == 1
