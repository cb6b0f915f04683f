"""The permutation itself, against the rotation in its three plainest forms."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.kernels import reference
from whorl.weights.layout import Head, list_fused_heads, reorder_rows

from .made import interleave, random

HEADS = st.tuples(st.integers(1, 12), st.integers(0, 5), st.integers(0, 5)).map(
    lambda n: Head("q", 2 * n[0] + n[1] + n[2], n[1], 2 * n[0])
)


@given(head=HEADS)
def test_there_and_back(head: Head) -> None:
    there, back = reorder_rows(head, "interleaved"), reorder_rows(head, "half")
    assert sorted(there) == list(range(head.rows))
    assert [there[row] for row in back] == list(range(head.rows))
    rows = torch.arange(head.rows)
    assert there == interleave(rows, head.rows, head.width, head.start).tolist()


@given(head=HEADS, position=st.integers(0, 10_000))
def test_scores_are_equal(head: Head, position: int) -> None:
    q, k = (random(head.rows, seed=seed).double() for seed in (1, 2))
    angles = reference.compute_inv_freq(head.width)
    order, band = reorder_rows(head, "interleaved"), slice(head.start, head.start + head.width)

    def score(q: torch.Tensor, k: torch.Tensor, layout: str) -> float:
        turned = reference.rotate_complex(q[None, band], position * angles[None], layout=layout)
        still = q @ k - q[band] @ k[band]
        return float(turned[0] @ k[band] + still)

    # float64, sums in another order
    assert score(q, k, "half") == pytest.approx(
        score(q[order], k[order], "interleaved"), abs=1e-12 * head.rows
    )


def test_values_and_single_pairs_stay() -> None:
    assert not Head("v", 8, width=8).moves
    assert not Head("q", 2, width=2).moves
    assert reorder_rows(Head("v", 8, width=8), "half") == list(range(8))


@pytest.mark.parametrize(
    ("packing", "heads", "key_heads", "parts"),
    [
        ("concatenated", 4, 2, "qqqqkkvv"),
        ("concatenated", 3, 1, "qqqkv"),
        ("grouped", 4, 2, "qqkvqqkv"),
        ("grouped", 3, 3, "qkvqkvqkv"),
        ("codegen", 8, 8, "qqvvkk" * 4),
    ],
)
def test_packings(packing: str, heads: int, key_heads: int, parts: str) -> None:
    q, k = [Head("q", 4, width=4)] * heads, [Head("k", 4, width=4)] * key_heads
    found = list_fused_heads(packing, q, k)  # type: ignore[arg-type]
    assert "".join(head.part for head in found) == parts
