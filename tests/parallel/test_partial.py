"""Attention over parts of the keys, joined, is attention over all of them."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl

H, D, T = 4, 8, 30
AT = torch.arange(T)
PARTS = (slice(0, 7), slice(20, T), slice(7, 20))


def draw(T: int = T, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, T, D, dtype=dtype, requires_grad=True) for heads in (H, 2, 2))
    return q, k, v


def split(q: Tensor, k: Tensor, v: Tensor, encoding: whorl.Encoding, **options: Any) -> Any:
    mask = options.pop("mask", None)
    return [
        whorl.partial_attention(
            q,
            k[:, :, own],
            v[:, :, own],
            encoding,
            positions=AT,
            key_positions=AT[own],
            mask=None if mask is None else mask[:, own],
            block=8,
            **options,
        )
        for own in PARTS
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoding",
    [
        whorl.RoPE(D),
        whorl.XPos(D),
        whorl.ALiBi(H) + whorl.RoPE(D),
        whorl.T5Bias(H).double(),
        whorl.TransformerXL(H, D).double(),
        whorl.DeBERTa(H, D, max_distance=9).double(),
        whorl.Shaw(H, D, left=3, values="trained").double(),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "options",
    [{"causal": True}, {"causal": True, "window": 9, "sinks": 2}, {}, {"softcap": 2.0}],
    ids=str,
)
def test_parts_join_to_the_whole(encoding: whorl.Encoding, options: dict[str, Any]) -> None:
    options = {**options, "causal": encoding.causal or options.get("causal", False)}
    q, k, v = draw()
    mask = torch.ones(2, T).bool()
    mask[0, :9] = False  # the first queries of a causal row see nothing
    whole = whorl.attention(q, k, v, encoding, mask=mask, block=8, **options)
    joined = whorl.merge_attention(split(q, k, v, encoding, mask=mask, **options)).out
    gradient, inputs = torch.randn_like(whole), [q, k, v, *encoding.parameters()]
    wanted = torch.autograd.grad(whole, inputs, gradient)
    found = torch.autograd.grad(joined, inputs, gradient)
    torch.testing.assert_close(joined, whole, rtol=1e-9, atol=1e-9)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_log_sums_are_those_of_the_scores() -> None:
    q, k, v = draw(dtype=torch.float32)
    part = whorl.partial_attention(q.bfloat16(), k.bfloat16(), v.bfloat16())
    scores = (q.bfloat16().float() @ k.bfloat16().float().repeat_interleave(2, 1).mT) * D**-0.5
    torch.testing.assert_close(part.log_sum, scores.logsumexp(-1), rtol=1e-5, atol=1e-5)
    assert part.out.dtype == part.log_sum.dtype == torch.float32


def test_nothing_visible_joins_to_nothing() -> None:
    q, k, v = draw(dtype=torch.float32)
    later: dict[str, Any] = {"positions": AT, "key_positions": AT + 100, "causal": True}
    part = whorl.partial_attention(q, k, v, **later)
    assert bool((part.log_sum == -torch.inf).all())
    joined = whorl.merge_attention([part, part])
    assert joined.out.abs().max() == 0
    assert bool((joined.log_sum == -torch.inf).all())
    found = torch.autograd.grad(joined.out.sum(), [q, k, v])
    assert all(bool((x == 0).all()) for x in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal": True}, r"partial_attention: positions must be given, because a part of a seq"),
        ({"encoding": whorl.ALiBi(H)}, "positions must be given"),
        ({"window": 3}, "positions must be given"),
        (
            {"encoding": whorl.AxialRoPE(D), "causal": True, "positions": AT.expand(2, -1)},
            r"positions on several axes do not say which keys.*got \[2, 30\]",
        ),
    ],
    ids=str,
)
def test_parts_that_do_not_say_where_they_are(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        whorl.partial_attention(*draw(), **options)


def test_only_parts_of_the_same_queries_join() -> None:
    parts = [whorl.partial_attention(*draw(length)) for length in (4, 5)]
    with pytest.raises(ValueError, match=r"all parts must have the same queries.*\[2, 4, 5\]"):
        whorl.merge_attention(parts)
    for wrong in ([], [torch.ones(1)]):
        with pytest.raises(TypeError, match="at least one result of partial_attention; got"):
            whorl.merge_attention(wrong)  # type: ignore[arg-type]
