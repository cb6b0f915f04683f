"""Scores by distance in C, against torch's gather and its gradients."""

import itertools

import pytest
import torch
from torch import Tensor

from whorl.kernels import native
from whorl.kernels.scores import ScoredPairs, can_gather, gather_scores, scatter_scores

pytestmark = pytest.mark.skipif(native.find_problem() is not None, reason="no C library")


def make_index(length: int, buckets: int, even: bool, seed: int = 0) -> Tensor:
    """Buckets that stay or fall by one, as DeBERTa's do, or any."""
    generator = torch.Generator().manual_seed(seed)
    if not even:
        return torch.randint(buckets, (length,), generator=generator).int()
    falls = torch.randint(2, (length,), generator=generator)
    falls[length // 3 : length // 2] = 1
    return (buckets - 1 - falls.cumsum(0)).clamp(min=0).int()


def compute(pairs: ScoredPairs, by_query: Tensor | None, by_key: Tensor | None) -> Tensor:
    """The definition, by torch's gather."""
    T, first, S, *_ = pairs
    j = torch.arange(S) - torch.arange(T).unsqueeze(-1) + T - 1
    scores: list[Tensor] = []
    if by_query is not None and pairs.query_index is not None:
        index = pairs.query_index.long()[j].expand(len(by_query), T, S)
        scores.append(by_query.gather(-1, index))
    if by_key is not None and pairs.key_index is not None:
        index = pairs.key_index.long()[j].mT.expand(len(by_key), S, T)
        scores.append(by_key[:, first : first + S].gather(-1, index).mT)
    return sum(scores[1:], scores[0])


def make_case(
    T: int, S: int, even: bool, terms: str, dtype: torch.dtype
) -> tuple[ScoredPairs, Tensor | None, Tensor | None]:
    torch.manual_seed(T * S)
    by_query = torch.randn(6, T, 21, dtype=dtype) if "q" in terms else None
    by_key = torch.randn(6, S + 5, 17, dtype=dtype) if "k" in terms else None
    indices = [make_index(T + S - 1, buckets, even, buckets) for buckets in (21, 17)]
    pairs = ScoredPairs(
        T, 2, S, indices[0] if "q" in terms else None, indices[1] if "k" in terms else None
    )
    return pairs, by_query, by_key


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("terms", ["q", "k", "qk"])
def test_scores_and_gradients_are_those_of_gather(terms: str, dtype: torch.dtype) -> None:
    sizes = ((1, 1), (8, 8), (30, 70), (67, 17), (64, 130))
    for (T, S), even in itertools.product(sizes, (True, False)):
        pairs, by_query, by_key = make_case(T, S, even, terms, dtype)
        leaves = [x.requires_grad_() for x in (by_query, by_key) if x is not None]
        want = compute(pairs, by_query, by_key)
        got = torch.full(want.shape, torch.nan, dtype=dtype)
        gather_scores(pairs, by_query, by_key, got)
        assert torch.equal(got, want)
        weight = torch.randn(want.shape, dtype=dtype)
        expected = torch.autograd.grad((want * weight).sum(), leaves)
        # Gradients are added to what is there.
        found = [torch.ones_like(x) for x in leaves]
        sums = iter(found)
        by_query, by_key = (None if x is None else next(sums) for x in (by_query, by_key))
        scatter_scores(pairs, weight, by_query, by_key)
        for a, b in zip(found, expected, strict=True):
            near = 1e-4 if dtype == torch.float32 else 1e-12
            torch.testing.assert_close(a - 1, b, rtol=0, atol=near)


def test_sums_of_gradients_have_the_bits_of_plain_loops() -> None:
    """Eight tokens at a time or one, with many buckets and few."""
    for T, S, buckets in ((70, 83, 40), (70, 83, 1024), (70, 83, 1025), (9, 300, 12)):
        index = make_index(T + S - 1, buckets, even=True)
        gradient = torch.randn(2, T, S)
        by_query, by_key = torch.randn(2, T, buckets), torch.randn(2, S, buckets)
        want = [by_query.clone(), by_key.clone()]
        for t, s in itertools.product(range(T), range(S)):
            want[0][:, t, index[s - t + T - 1]] += gradient[:, t, s]
            want[1][:, s, index[s - t + T - 1]] += gradient[:, t, s]
        scatter_scores(ScoredPairs(T, 0, S, index, index), gradient, by_query, by_key)
        assert torch.equal(by_query, want[0])
        assert torch.equal(by_key, want[1])


def test_what_the_library_cannot_take() -> None:
    x = torch.zeros(1, 1, 2, 3)
    assert can_gather(x, x.double())
    assert not can_gather(x.half())
    assert not can_gather(x.to("meta"))


def test_a_bucket_outside_its_table_is_refused() -> None:
    pairs, by_query, _ = make_case(4, 5, True, "q", torch.float32)
    assert pairs.query_index is not None
    pairs.query_index[3] = 21
    with pytest.raises(AssertionError, match="status 2"):
        gather_scores(pairs, by_query, None, torch.empty(6, 4, 5))
