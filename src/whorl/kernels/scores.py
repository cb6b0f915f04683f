"""Scores of pairs of tokens by the bucket of their distance, in C.

    out[b, h, t, s] = by_query[b, h, t, query_index[j]] + by_key[b, h, s, key_index[j]]

with j = s - t + T - 1: distances fall with j, from that of the last query to the first key. The
gradient adds each number to its two places; the gradient of that is the first function again.

No operator of torch.library: what it cannot take, such as compiled code, is scored by gather.

Blocks of queries read the same terms by key. Their gradients are added to one tensor, because a new
one for each block takes longer to get from the system than to fill.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import native
from .ops import is_plain

__all__ = ["KeyTerms", "ScoredPairs", "can_gather", "gather_scores"]

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


class KeyTerms:
    """Terms of all keys, [B, H, S, C], of which several calls read a part each."""

    def __init__(self, terms: Tensor) -> None:
        self._sums: dict[int, Tensor] = {}  # by backward pass: several may run at a time
        self.terms: Tensor = _CollectFunction.apply(terms, self)  # type: ignore[no-untyped-call]

    def get_sums(self) -> Tensor:
        """Where the gradient is summed up in the present backward pass."""
        task = torch._C._current_graph_task_id()
        if task not in self._sums:
            shape, dtype = self.terms.shape, self.terms.dtype
            self._sums[task] = torch.zeros(shape, dtype=dtype, device="cpu")
        return self._sums[task]

    def take_sums(self) -> Tensor | None:
        """The gradient of the present backward pass, or None; nothing is left of it."""
        return self._sums.pop(torch._C._current_graph_task_id(), None)


def gather_scores(pairs: ScoredPairs, by_query: Tensor | None, by_key: KeyTerms | None) -> Tensor:
    """Scores [B, H, T, S] of tensors that ``can_gather`` accepts; differentiable.

    by_query [B, H, T, R], by_key [B, H, all keys, C]; one of them may be None.
    """
    terms = None if by_key is None else by_key.terms
    out: Tensor = _GatherFunction.apply(by_query, terms, by_key, pairs)  # type: ignore[no-untyped-call]
    return out


class _CollectFunction(torch.autograd.Function):
    """Terms of keys as they are; their gradient is what calls have summed up."""

    @staticmethod
    def forward(ctx: Any, terms: Tensor, to: KeyTerms) -> Tensor:
        ctx.to = to
        ctx.set_materialize_grads(False)
        return terms.view_as(terms)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Any, ...]:
        sums = ctx.to.take_sums()
        found = [x for x in (grad, sums) if x is not None]
        return (found[0] + found[1] if len(found) == 2 else found[0] if found else None), None


class _GatherFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        by_query: Tensor | None,
        by_key: Tensor | None,
        to: KeyTerms | None,
        pairs: ScoredPairs,
    ) -> Tensor:
        ctx.to, ctx.pairs = to, pairs
        ctx.shapes = tuple(None if x is None else x.shape for x in (by_query, by_key))
        known = by_query if by_query is not None else by_key
        assert known is not None, "one of the terms at least"
        out = known.new_empty(*known.shape[:2], pairs.T, pairs.S)
        _run_job(native.gather_scores, pairs, by_query, by_key, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        to, pairs = ctx.to, ctx.pairs
        if to is None or torch.is_grad_enabled():  # which this gradient will need in its turn
            found = _ScatterFunction.apply(grad, pairs, ctx.shapes)  # type: ignore[no-untyped-call]
            return *found, None, None
        by_query = grad.new_zeros(ctx.shapes[0]) if ctx.needs_input_grad[0] else None
        by_key = to.get_sums() if ctx.needs_input_grad[1] else None
        _run_job(native.scatter_scores, pairs, by_query, by_key, grad.contiguous())
        return by_query, None, None, None


class _ScatterFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        grad: Tensor,
        pairs: ScoredPairs,
        shapes: tuple[torch.Size | None, torch.Size | None],
    ) -> tuple[Tensor | None, Tensor | None]:
        ctx.pairs = pairs
        by_query, by_key = (None if shape is None else grad.new_zeros(shape) for shape in shapes)
        _run_job(native.scatter_scores, pairs, by_query, by_key, grad.contiguous())
        return by_query, by_key

    @staticmethod
    def backward(ctx: Any, by_query: Tensor | None, by_key: Tensor | None) -> tuple[Any, ...]:
        found = _GatherFunction.apply(by_query, by_key, None, ctx.pairs)  # type: ignore[no-untyped-call]
        return found, None, None


def _run_job(
    call: Callable[[bytes], None],
    pairs: ScoredPairs,
    by_query: Tensor | None,
    by_key: Tensor | None,
    scores: Tensor,
) -> None:
    """Hand a job to the library; what it writes must be contiguous."""
    B, H, T, S = scores.shape
    numbers = [_DTYPES[scores.dtype], B * H, T, S]
    queries = None if by_query is None else by_query.contiguous()
    keys = None if by_key is None else by_key.contiguous()
    ranges = ((queries, pairs.query_index, 0, T), (keys, pairs.key_index, pairs.first_key, S))
    for term, index, first, count in ranges:
        if term is None or index is None:
            numbers += (0, 0, 0)
            continue
        assert term.shape[:2] == (B, H), "one matrix of terms for each of scores"
        assert 0 <= first <= term.shape[2] - count, "all tokens have terms"
        assert term.dtype == scores.dtype, "terms of the type of scores"
        assert (index.dtype, index.shape) == (torch.int32, (T + S - 1,)), "one for each distance"
        assert index.is_contiguous(), "side by side"
        skipped = first * term.shape[3] * term.element_size()
        numbers += (term.data_ptr() + skipped, term.shape[3], index.data_ptr())
    numbers.append(0 if keys is None else keys.shape[2] * keys.shape[3])
    threads = torch.get_num_threads() if scores.numel() > _ONE_THREAD_SCORES else 1
    call(_JOB(*numbers, scores.data_ptr(), threads, native.ISAS["auto"]))
