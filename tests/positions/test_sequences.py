"""Positions from masks, documents and shards."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whorl
from whorl import positions as p

SPIRAL: Any = "spiral"


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_documents_and_cu_seqlens_agree_with_counting(lengths: list[int]) -> None:
    want = [i for n in lengths for i in range(n)]
    ends = torch.tensor([0, *lengths]).cumsum(0)
    assert p.from_cu_seqlens(ends).tolist() == want
    assert p.from_cu_seqlens(ends.int()).dtype == torch.int64
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    assert p.from_documents(ids).tolist() == want
    assert p.from_documents(ids.expand(2, -1)).tolist() == [want, want]


def test_document_ids_may_come_back() -> None:
    assert p.from_documents(torch.tensor([7, 7, 2, 7, 7, 7])).tolist() == [0, 1, 0, 0, 1, 2]


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 5))
def test_masks_count_real_tokens(left: int, real: int, right: int) -> None:
    mask = torch.tensor([[0] * left + [1] * real + [0] * right])
    got = p.from_mask(mask)[0]
    assert got[left : left + real].tolist() == list(range(real))
    assert p.from_mask(mask.bool()).equal(p.from_mask(mask))
    assert int(got.min()) >= 0


def test_left_padding_gives_each_row_what_it_gets_alone() -> None:
    rope = whorl.RoPE(8)
    x = torch.randn(2, 1, 5, 8)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    padded = rope.rotate(x, p.from_mask(mask))
    alone = rope.rotate(x[:1, :, 2:].contiguous())
    assert torch.equal(padded[:1, :, 2:], alone)


def test_packed_documents_equal_separate_ones() -> None:
    rope = whorl.RoPE(8)
    a, b = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 4, 8)
    packed = rope.rotate(torch.cat((a, b), 2), p.from_cu_seqlens(torch.tensor([0, 3, 7])))
    assert torch.equal(packed, torch.cat((rope.rotate(a), rope.rotate(b)), 2))


@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from(["contiguous", "zigzag"]))
def test_shards_cover_the_sequence_once(world: int, piece: int, order: Any) -> None:
    length = 2 * world * piece
    parts = [p.shard(length, rank, world, order) for rank in range(world)]
    assert sorted(torch.cat(parts).tolist()) == list(range(length))
    assert {len(part) for part in parts} == {2 * piece}
    packed = p.shard(torch.arange(length).expand(3, -1), 0, world, order)
    assert packed.tolist() == [parts[0].tolist()] * 3


def test_zigzag_balances_causal_work() -> None:
    work = [int(p.shard(16, rank, 4, "zigzag").sum()) for rank in range(4)]
    assert len(set(work)) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: p.from_mask(torch.ones(3)),
            r"mask must be \[B, T\].*got \[3\]\. Pass the attention",
        ),
        (
            lambda: p.from_mask(torch.ones(1, 3)),
            r"boolean, or integers 0 .padding. and 1 .token.; got torch\.float32",
        ),
        (
            lambda: p.from_mask(torch.tensor([[2]])),
            r"An additive mask of 0 and -inf becomes one by",
        ),
        (
            lambda: p.from_documents(torch.ones(3)),
            r"ids must be integers \[T\] or \[B, T\].*float32",
        ),
        (
            lambda: p.from_documents(torch.tensor(3)),
            r"one document id per token; got torch\.int64 \[",
        ),
        (
            lambda: p.from_cu_seqlens(torch.tensor([1, 3])),
            r"must start at 0 and never decrease; got",
        ),
        (
            lambda: p.from_cu_seqlens(torch.tensor([0, 3, 2])),
            r"F\.pad\(lengths\.cumsum\(0\), \(1, 0",
        ),
        (lambda: p.from_cu_seqlens(torch.ones(2)), r"cu_seqlens must be integers \[N \+ 1\]"),
        (
            lambda: p.from_cu_seqlens(torch.tensor([]).long()),
            r"after a leading 0; got torch\.int64",
        ),
        (
            lambda: p.shard(10, 0, 4),
            r"must divide into 4 equal pieces .*got 10\. Pad the sequence to 12",
        ),
        (lambda: p.shard(12, 0, 4, "zigzag"), r"into 8 equal pieces .*Pad the sequence to 16"),
        (lambda: p.shard(8, 4, 4), r"rank must be in 0 \.\. world - 1; got rank 4 of world 4"),
        (
            lambda: p.shard(8, 0, 4, SPIRAL),
            r"order must be 'contiguous' or 'zigzag'; got 'spiral'",
        ),
    ],
)
def test_bad_input_says_what_to_do(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda wrong: p.from_mask(wrong),
        lambda wrong: p.from_documents(wrong),
        lambda wrong: p.from_cu_seqlens(wrong),
        lambda wrong: p.shard(wrong, 0, 2),
    ],
)
def test_lists_are_not_tensors(call: Any) -> None:
    with pytest.raises(
        TypeError, match=r"must be a tensor; got \[0, 1\]\. Use torch\.tensor\(\.\.\.\)"
    ):
        call([0, 1])
    with pytest.raises(TypeError, match=r"rank and world must be ints; got 0\.5 and 2"):
        p.shard(8, 0.5, 2)  # type: ignore[arg-type]
