"""Scores by distance in C, against torch's gather and its gradients."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.kernels import native
from whorl.kernels.scores import KeyTerms, ScoredPairs, can_gather, gather_scores

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
        index = pairs.query_index.long()[j].expand(*by_query.shape[:2], T, S)
        scores.append(by_query.gather(-1, index))
    if by_key is not None and pairs.key_index is not None:
        index = pairs.key_index.long()[j].mT.expand(*by_key.shape[:2], S, T)
        scores.append(by_key[:, :, first : first + S].gather(-1, index).mT)
    return sum(scores[1:], scores[0])


def make_case(
    T: int, S: int, even: bool, terms: str, dtype: torch.dtype
) -> tuple[ScoredPairs, Tensor | None, Tensor | None]:
    torch.manual_seed(T * S)
    by_query = torch.randn(2, 3, T, 21, dtype=dtype) if "q" in terms else None
    by_key = torch.randn(2, 3, S + 5, 17, dtype=dtype) if "k" in terms else None
    indices = [make_index(T + S - 1, buckets, even, buckets) for buckets in (21, 17)]
    pairs = ScoredPairs(
        T, 2, S, indices[0] if "q" in terms else None, indices[1] if "k" in terms else None
    )
    return pairs, by_query, by_key


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("terms", ["q", "k", "qk"])
def test_scores_and_gradients_are_those_of_gather(terms: str, dtype: torch.dtype) -> None:
    for (T, S), even in itertools.product(((1, 1), (8, 8), (30, 70), (67, 17)), (True, False)):
        pairs, *given = make_case(T, S, even, terms, dtype)
        leaves = [x for x in given if x is not None]
        for x in leaves:
            x.requires_grad_()
        by_query, by_key = given
        got = gather_scores(pairs, by_query, None if by_key is None else KeyTerms(by_key))
        want = compute(pairs, by_query, by_key)
        assert torch.equal(got, want)
        weight = torch.randn_like(want)
        found = torch.autograd.grad((got * weight).sum(), leaves)
        expected = torch.autograd.grad((want * weight).sum(), leaves)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-12)


def test_gradients_of_blocks_are_summed_up_afresh_in_each_pass() -> None:
    pairs, by_query, by_key = make_case(9, 14, True, "qk", torch.float64)
    assert by_query is not None
    assert by_key is not None
    leaves = [by_query.requires_grad_(), by_key.requires_grad_()]

    def run(score: Any) -> Tensor:
        return score(pairs).sum() + (score(pairs._replace(first_key=5)) ** 2).sum()

    shared = KeyTerms(by_key)
    got = run(lambda which: gather_scores(which, by_query, shared))
    expected = torch.autograd.grad(run(lambda which: compute(which, by_query, by_key)), leaves)
    # Passes that need one of the two only, or both, in any order.
    for wanted in ([0], [1], [0, 1], [0], [0, 1]):
        found = torch.autograd.grad(got, [leaves[n] for n in wanted], retain_graph=True)
        for n, grad in zip(wanted, found, strict=True):
            torch.testing.assert_close(grad, expected[n], rtol=0, atol=1e-12)


def test_gradients_of_gradients() -> None:
    pairs, by_query, by_key = make_case(4, 5, True, "qk", torch.float64)
    assert by_query is not None
    assert by_key is not None

    def call(x: Tensor, y: Tensor) -> Tensor:
        shared = KeyTerms(y)
        blocks = [gather_scores(pairs._replace(first_key=n), x, shared) for n in (0, 3)]
        return torch.cat(blocks).square()

    inputs = (by_query[:1, :1].clone().requires_grad_(), by_key[:1, :1].clone().requires_grad_())
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


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
        gather_scores(pairs, by_query, None)
