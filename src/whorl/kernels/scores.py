"""Scores of pairs of tokens by the bucket of their distance, in C.

    out[n, t, s] = by_query[n, t, query_index[j]] + by_key[n, s, key_index[j]]

with j = s - t + T - 1: distances fall with j, from that of the last query to the first key. The
gradient adds each number to its two places.

No operators of torch.library, and no gradients of their own: both write into tensors that they are
given. What they cannot take, such as compiled code, is scored by torch's gather.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from . import native
from .ops import is_plain

__all__ = ["ScoredPairs", "can_gather", "gather_scores", "scatter_scores"]

_JOB = struct.Struct("14q").pack
_DTYPES = {torch.float32: 0, torch.float64: 1}

# Up to this many scores one thread does it all.
_ONE_THREAD_SCORES = 1 << 15


def can_gather(*tensors: Tensor) -> bool:
    """Whether the C library can compute with such tensors, with gradients or without."""
    if torch.compiler.is_compiling() or native.find_problem() is not None:
        return False
    return is_plain(tensors) and all(x.dtype in _DTYPES for x in tensors)


class ScoredPairs(NamedTuple):
    """T queries and the S keys from ``first_key`` on, with buckets int32 [T + S - 1] of each term.

    An index is None if there is no such term.
    """

    T: int
    first_key: int
    S: int
    query_index: Tensor | None
    key_index: Tensor | None


def gather_scores(
    pairs: ScoredPairs, by_query: Tensor | None, by_key: Tensor | None, out: Tensor
) -> None:
    """Write the scores of all pairs to ``out`` [N, T, S].

    by_query [N, T, R], by_key [N, all keys, C]; one of them may be None.
    """
    _run_job(native.gather_scores, pairs, by_query, by_key, out)


def scatter_scores(
    pairs: ScoredPairs, gradient: Tensor, by_query: Tensor | None, by_key: Tensor | None
) -> None:
    """Add the gradient of each score, [N, T, S], to those of the terms that it was made of."""
    _run_job(native.scatter_scores, pairs, by_query, by_key, gradient)


def _run_job(
    call: Callable[[bytes], None],
    pairs: ScoredPairs,
    by_query: Tensor | None,
    by_key: Tensor | None,
    scores: Tensor,
) -> None:
    N, T, S = scores.shape
    numbers = [_DTYPES[scores.dtype], N, T, S]
    assert scores.is_contiguous(), "side by side"
    ranges = (
        (by_query, pairs.query_index, 0, T),
        (by_key, pairs.key_index, pairs.first_key, S),
    )
    for term, index, first, count in ranges:
        if term is None or index is None:
            numbers += (0, 0, 0)
            continue
        assert term.shape[0] == N, "one matrix of terms for each of scores"
        assert 0 <= first <= term.shape[1] - count, "all tokens have terms"
        assert term.dtype == scores.dtype, "terms of the type of scores"
        assert (index.dtype, index.shape) == (torch.int32, (T + S - 1,)), "one for each distance"
        assert term.is_contiguous(), "side by side"
        assert index.is_contiguous(), "side by side"
        skipped = first * term.shape[2] * term.element_size()
        numbers += (term.data_ptr() + skipped, term.shape[2], index.data_ptr())
    numbers.append(0 if by_key is None else by_key.shape[1] * by_key.shape[2])
    threads = torch.get_num_threads() if scores.numel() > _ONE_THREAD_SCORES else 1
    call(_JOB(*numbers, scores.data_ptr(), threads, native.ISAS["auto"]))
