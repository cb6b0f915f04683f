"""attention by positions on several axes, and of packed documents."""

from typing import Any

import pytest
import torch

import whorl
from whorl.attention import attention, linear_attention

from .test_softmax import D, H, dense, fresh, randn, visible


def test_several_axes_place_tokens_and_their_order_masks_them() -> None:
    rope = whorl.AxialRoPE(D)
    q, k, v = randn(2, H, 6, D), randn(2, 2, 6, D, seed=1), randn(2, 2, 6, D, seed=2)
    at = whorl.positions.grid(2, 3)
    turned_q, turned_k = rope(q, k, at)
    steps = torch.arange(6)
    seen = visible(steps, steps, causal=True, window=4).expand(2, H, 6, 6)
    want = dense(turned_q, turned_k, v, whorl.NoPE(), steps, steps, seen)
    got = attention(q, k, v, rope, causal=True, window=4, positions=at)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    both = attention(q, k, v, rope + whorl.ALiBi(H), positions=at)
    want = dense(turned_q, turned_k, v, whorl.ALiBi(H), steps, steps, torch.ones_like(seen))
    torch.testing.assert_close(both, want, rtol=1e-12, atol=1e-12)


def test_fewer_queries_on_several_axes_are_the_last() -> None:
    rope, steps = whorl.MRoPE(D, sections=(1, 1, 2)), torch.arange(9)
    q, k, v = randn(2, H, 9, D), randn(2, 2, 9, D, seed=1), randn(2, 2, 9, D, seed=2)
    want = attention(q, k, v, rope, causal=True)[:, :, 6:]
    for at in (steps, steps.expand(3, 9), steps.expand(3, 2, 9)):
        got = attention(
            q[:, :, 6:], k, v, rope, causal=True, positions=at[..., 6:], key_positions=at
        )
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    more = attention(q, k[:, :, :5], v[:, :, :5], rope, positions=steps, key_positions=steps[:5])
    both = steps.expand(3, 9)
    same = attention(q, k[:, :, :5], v[:, :, :5], rope, positions=both, key_positions=both[:, :5])
    torch.testing.assert_close(more, same, rtol=1e-12, atol=1e-12)


def test_one_position_for_all_axes_is_what_masks_go_by() -> None:
    both = whorl.MRoPE(D, sections=(1, 1, 2)) + whorl.ALiBi(H)
    q, k, v = randn(2, H, 9, D), randn(2, 2, 9, D, seed=1), randn(2, 2, 9, D, seed=2)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    want = attention(q, k, v, both, causal=True, window=4)[:, :, order]
    a, b, c = (x[:, :, order] for x in (q, k, v))
    got = attention(a, b, c, both, causal=True, window=4, positions=order)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block", [4, 256])
def test_documents_on_several_axes_have_sinks_of_their_own(block: int) -> None:
    rope = whorl.MRoPE(D, sections=(1, 1, 2), scaling=whorl.DynamicNTK(2.0, original_context=4))
    q, k, v = randn(2, H, 12, D), randn(2, 2, 12, D, seed=1), randn(2, 2, 12, D, seed=2)
    options: dict[str, Any] = {"causal": True, "window": 2, "sinks": 1, "block": block}
    pieces = [[x[:, :, a : a + 6] for x in (q, k, v)] for a in (0, 6)]
    alone = [attention(a, b, c, rope, **options) for a, b, c in pieces]
    places = (torch.arange(6).repeat(2).expand(3, 12), None)
    for at in places:
        got = attention(q, k, v, rope, documents=torch.arange(12) // 6, positions=at, **options)
        torch.testing.assert_close(got, torch.cat(alone, 2), rtol=1e-12, atol=1e-12)


def test_an_id_that_comes_back_is_a_new_document_unless_positions_say_more() -> None:
    q, k, v = (randn(1, H, 9, D, seed=n) for n in range(3))
    again, named = torch.tensor([0, 0, 0, 1, 1, 1, 0, 0, 0]), torch.arange(9) // 3
    got = attention(q, k, v, whorl.RoPE(D), causal=True, documents=again)
    want = attention(q, k, v, whorl.RoPE(D), causal=True, documents=named)
    assert torch.equal(got, want)
    at = torch.arange(9)
    joined = attention(q, k, v, whorl.RoPE(D), causal=True, documents=again, positions=at)
    outer = [0, 1, 2, 6, 7, 8]
    a, b, c = (x[:, :, outer] for x in (q, k, v))
    alone = attention(a, b, c, whorl.RoPE(D), causal=True, positions=at[outer])
    torch.testing.assert_close(joined[:, :, outer], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("encoding", [whorl.RoPE(D), whorl.ALiBi(H), whorl.Shaw(H, D)], ids=repr)
def test_packed_documents_are_as_if_alone(encoding: whorl.Encoding) -> None:
    encoding = fresh(encoding)
    ends = torch.tensor([0, 5, 6, 13])
    q, k, v = randn(1, H, 13, D), randn(1, 2, 13, D, seed=1), randn(1, 2, 13, D, seed=2)
    packed = attention(q, k, v, encoding, causal=True, cu_seqlens=ends, block=4)
    ids = torch.tensor([7] * 5 + [3] + [9] * 7)
    named = attention(q, k, v, encoding, causal=True, documents=ids)
    torch.testing.assert_close(packed, named)
    for a, b in ((0, 5), (5, 6), (6, 13)):
        alone = attention(q[:, :, a:b], k[:, :, a:b], v[:, :, a:b], encoding, causal=True)
        torch.testing.assert_close(packed[:, :, a:b], alone)


SCALINGS = [
    whorl.DynamicNTK(factor=2.0, original_context=11),
    whorl.LongRoPE([1.0] * 4, [1.0, 2.0, 4.0, 8.0], 11, factor=4.0),
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: type(scaling).__name__)
def test_fractions_have_a_length_too(scaling: whorl.scaling.Scaling) -> None:
    """The whole part of the largest position + 1, of each row: what a cache counts."""
    rope = whorl.RoPE(D, scaling=scaling)
    q, k, v = (randn(2, H, 9, D, seed=n) for n in range(3))
    at = torch.arange(9) + torch.tensor([[0.5], [7.25]])  # up to 8.5 and 15.25
    lengths = torch.tensor([9, 16])
    got = attention(q, k, v, rope, causal=True, positions=at)
    want = attention(q, k, v, rope, causal=True, positions=at, context_length=lengths)
    assert torch.equal(got, want)
    cached = attention(q, k, v, causal=True, positions=at, cache=whorl.KVCache(rope))
    torch.testing.assert_close(cached, want, rtol=1e-12, atol=1e-12)
    got = linear_attention(q, k, v, rope, positions=at)
    want = linear_attention(q, k, v, rope, positions=at, context_length=lengths)
    assert torch.equal(got, want)
