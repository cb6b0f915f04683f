"""Softmax attention with content scores that are read by distance, such as DeBERTa's.

    score_ij = scale (q_i . k_j + q_i . keys[a] + k_j . queries[b])    a, b: rows of distance i - j

keys and queries are vectors of distances. Their products with all queries and keys are two matrices
for each head, from which the C library reads the two numbers of every pair.

One autograd function computes all blocks of queries, a few heads of a row at a time, in the same
memory: getting new memory from the system takes longer than filling it, and matrices of a few heads
stay in the processor's cache.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.encodings.base import ScoreVectors
from whorl.kernels.scores import ScoredPairs, gather_scores, scatter_scores

from .visibility import QueryBlock

__all__ = ["ContentCall", "ScoredBlock"]

# Scores of the heads that are computed together, if there is more than one.
_SCORES_TOGETHER = 1 << 19
# Up to so many weights are stored for the backward pass: 64 MB in float32, a little more than 12
# heads of 1024 tokens need. More are computed again.
_STORED_WEIGHTS = 1 << 24


@dataclass(frozen=True)
class ScoredBlock:
    """Queries start .. stop - 1 and keys low .. high - 1, and the rows of their distances.

    hidden: 0 for visible keys and -inf for others, [b, s] or [B, 1, 1, s]; None if all are visible.
    """

    start: int
    stop: int
    low: int
    high: int
    pairs: ScoredPairs
    hidden: Tensor | None

    @classmethod
    def build(
        cls, block: QueryBlock, distances: Tensor, vectors: ScoreVectors, hidden: Tensor | None
    ) -> "ScoredBlock":
        """The block, with its ``distances`` from the largest down, [b + s - 1]."""
        ((low, high),) = block.key_ranges
        rows, key_rows = vectors.find_rows(distances)
        pairs = ScoredPairs(
            block.stop - block.start,
            low,
            high - low,
            None if vectors.keys is None else rows,
            None if vectors.queries is None else key_rows,
        )
        return cls(block.start, block.stop, low, high, pairs, hidden)

    def hide_keys(self, scores: Tensor, row: int) -> None:
        """Add -inf to the scores [H, b, s] of hidden keys."""
        if self.hidden is not None:
            scores += self.hidden if self.hidden.dim() == 2 else self.hidden[row, 0]


class _Memory:
    """Matrices by name, in memory that is used again for the next one of that name."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._flat: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        size = math.prod(shape)
        if name not in self._flat or self._flat[name].numel() < size:
            self._flat[name] = self._like.new_empty(size)
        return self._flat[name][:size].view(shape)


class _Part(NamedTuple):
    """What is computed at once: some heads of a row, in a block; and whether it is their first."""

    number: int
    row: int
    heads: slice
    block: ScoredBlock
    is_first: bool

    def count_weights(self) -> int:
        count: int = self.heads.stop - self.heads.start
        return count * self.block.pairs.T * self.block.pairs.S


@dataclass(frozen=True)
class ContentCall:
    """One call of attention, with all but its tensors; q, k, v have equally many heads."""

    blocks: tuple[ScoredBlock, ...]
    scale: float
    dropout: float = 0.0

    def attend(self, q: Tensor, k: Tensor, v: Tensor, vectors: ScoreVectors) -> Tensor:
        """Attention [B, H, T, Dv]."""
        tensors = (q, k, v, vectors.keys, vectors.queries)
        tracked = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in tensors
        )
        if not tracked and not self.dropout:
            return self._attend_fused(*tensors)
        # One random number decides all that is dropped, so that it can be dropped again.
        seed = int(torch.randint(1 << 62, ())) if self.dropout else 0
        stored = tracked and q.shape[:3].numel() * k.shape[2] <= _STORED_WEIGHTS
        out: Tensor = _AttendFunction.apply(*tensors, self, seed, stored)  # type: ignore[no-untyped-call]
        return out

    def _attend_fused(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, queries: Tensor | None
    ) -> Tensor:
        """Attention without gradients, by the fused kernel of torch."""
        memory, out, by_key = _Memory(q), _build_output(q, v.shape[3]), None
        for part in self.list_parts(q):
            row, heads, block = part.row, part.heads, part.block
            if part.is_first:
                by_key = self.multiply_keys(k[row, heads], _take(queries, heads), memory)
            asking = q[row : row + 1, heads, block.start : block.stop]
            k_block, v_block = (x[row : row + 1, heads, block.low : block.high] for x in (k, v))
            scaled = asking[0] * self.scale
            scores = self._fill_scores(block, scaled, _take(keys, heads), by_key, memory)
            block.hide_keys(scores, row)
            out[row : row + 1, heads, block.start : block.stop] = F.scaled_dot_product_attention(
                asking, k_block, v_block, attn_mask=scores.unsqueeze(0), scale=self.scale
            )
        return out

    def multiply_keys(self, k: Tensor, queries: Tensor | None, memory: _Memory) -> Tensor | None:
        """Scaled products of all keys [H, S, D] of a row with the vectors for them."""
        if queries is None:
            return None
        shape = (*k.shape[:2], queries.shape[1])
        return torch.bmm(k, (queries * self.scale).mT, out=memory.take("by key", *shape))

    def _fill_scores(
        self,
        block: ScoredBlock,
        q: Tensor,
        keys: Tensor | None,
        by_key: Tensor | None,
        memory: _Memory,
        out: Tensor | None = None,
    ) -> Tensor:
        """Content scores [H, b, s] of scaled queries [H, b, D]."""
        by_query = None
        if keys is not None:
            by_query = memory.take("by query", *q.shape[:2], keys.shape[1])
            torch.bmm(q, keys.mT, out=by_query)
        if out is None:
            out = memory.take("scores", *q.shape[:2], block.high - block.low)
        gather_scores(block.pairs, by_query, by_key, out)
        return out

    def compute_weights(
        self,
        block: ScoredBlock,
        row: int,
        q: Tensor,
        k: Tensor,
        keys: Tensor | None,
        by_key: Tensor | None,
        memory: _Memory,
        out: Tensor | None = None,
    ) -> Tensor:
        """Attention weights [H, b, s] of scaled queries [H, b, D] and keys [H, s, D]."""
        scores = self._fill_scores(block, q, keys, by_key, memory, out)
        block.hide_keys(scores, row)
        scores.baddbmm_(q, k.mT)
        return torch.softmax(scores, -1, out=scores)

    def draw_dropout(self, seed: int, number: int, out: Tensor) -> Tensor:
        """Factors of weights in a row and block: 0 for dropped ones; always the same of a seed."""
        generator = torch.Generator().manual_seed(seed + number)
        share = 1 - self.dropout
        return out.bernoulli_(share, generator=generator).div_(share)

    def list_parts(self, q: Tensor) -> Iterator["_Part"]:
        """Every row, group of heads, and block."""
        B, H = q.shape[:2]
        most = max(block.pairs.T * block.pairs.S for block in self.blocks)
        together = max(1, min(H, _SCORES_TOGETHER // max(1, most)))
        number = 0
        for row in range(B):
            for first in range(0, H, together):
                for block in self.blocks:
                    heads = slice(first, min(first + together, H))
                    yield _Part(number, row, heads, block, block is self.blocks[0])
                    number += 1

    def attend_by_definition(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keys: Tensor | None,
        queries: Tensor | None,
        seed: int,
    ) -> Tensor:
        """The same by torch's own functions, whose gradients have gradients."""
        out = torch.zeros_like(_build_output(q, v.shape[3]))
        for number, row, heads, block, _ in self.list_parts(q):
            asking = q[row, heads, block.start : block.stop] * self.scale
            k_block, v_block = (x[row, heads, block.low : block.high] for x in (k, v))
            scores, (H, T, S) = (
                asking @ k_block.mT,
                (len(asking), asking.shape[1], k_block.shape[1]),
            )
            columns = torch.arange(S) - torch.arange(T).unsqueeze(-1) + T - 1
            if keys is not None and block.pairs.query_index is not None:
                index = block.pairs.query_index.long()[columns].expand(H, T, S)
                scores = scores + (asking @ keys[heads].mT).gather(-1, index)
            if queries is not None and block.pairs.key_index is not None:
                index = block.pairs.key_index.long()[columns].mT.expand(H, S, T)
                products = k_block @ (queries[heads] * self.scale).mT
                scores = scores + products.gather(-1, index).mT
            block.hide_keys(scores, row)
            weights = scores.softmax(-1)
            if self.dropout:
                weights = weights * self.draw_dropout(seed, number, torch.empty_like(weights))
            out[row, heads, block.start : block.stop] = weights @ v_block
        return out


class _AttendFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keys: Tensor | None,
        queries: Tensor | None,
        call: ContentCall,
        seed: int,
        stored: bool,
    ) -> Tensor:
        memory, out, by_key = _Memory(q), _build_output(q, v.shape[3]), None
        sizes = [part.count_weights() for part in call.list_parts(q)]
        all_weights = torch.split(q.new_empty(sum(sizes)), sizes) if stored else ()
        for part in call.list_parts(q):
            number, row, heads, block, is_first = part
            if is_first:
                by_key = call.multiply_keys(k[row, heads], _take(queries, heads), memory)
            asking = q[row, heads, block.start : block.stop] * call.scale
            k_block, v_block = (x[row, heads, block.low : block.high] for x in (k, v))
            target = None
            if stored:
                target = all_weights[number].view(len(asking), block.pairs.T, block.pairs.S)
            weights = call.compute_weights(
                block, row, asking, k_block, _take(keys, heads), by_key, memory, target
            )
            if call.dropout:
                factors = call.draw_dropout(seed, number, memory.take("dropout", *weights.shape))
                weights = factors.mul_(weights)
            out[row, heads, block.start : block.stop] = torch.bmm(weights, v_block)
        ctx.call, ctx.seed = call, seed
        ctx.save_for_backward(q, k, v, keys, queries, *all_weights)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, keys, queries, *stored = ctx.saved_tensors
        call: ContentCall = ctx.call
        needed = ctx.needs_input_grad[:5]
        if torch.is_grad_enabled():  # this gradient will need one in its turn
            given = (q, k, v, keys, queries)
            out = call.attend_by_definition(*given, ctx.seed)
            wanted = [x for x, need in zip(given, needed, strict=True) if need]
            found = iter(torch.autograd.grad(out, wanted, gradient, create_graph=True))
            return *(next(found) if need else None for need in needed), None, None, None
        backward = _BackwardPass(call, ctx.seed, q, k, v, keys, queries)
        return *backward.run(gradient, stored), None, None, None


class _BackwardPass:
    """Gradients of one call, summed up block by block."""

    def __init__(
        self,
        call: ContentCall,
        seed: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keys: Tensor | None,
        queries: Tensor | None,
    ) -> None:
        self.call, self.seed = call, seed
        self.q, self.k, self.v, self.keys, self.queries = q, k, v, keys, queries
        self.memory = _Memory(q)
        self.q_gradient = _build_output(q, q.shape[3])
        self.k_gradient, self.v_gradient = (_build_output(x, x.shape[3]) for x in (k, v))
        # Side by side, or each head is multiplied by itself.
        self.keys_gradient, self.queries_gradient = (
            None if x is None else x.new_zeros(x.shape) for x in (keys, queries)
        )

    def run(self, gradient: Tensor, stored: list[Tensor]) -> tuple[Tensor | None, ...]:
        """Gradients of q, k, v, keys and queries."""
        for _, parts in groupby(self.call.list_parts(self.q), key=lambda p: (p.row, p.heads.start)):
            self._run_heads(list(parts), gradient, stored)
        return (
            self.q_gradient,
            self.k_gradient,
            self.v_gradient,
            self.keys_gradient,
            self.queries_gradient,
        )

    def _run_heads(self, parts: list[_Part], gradient: Tensor, stored: list[Tensor]) -> None:
        """Gradients of some heads of a row, in all blocks."""
        call, memory, row, heads = self.call, self.memory, parts[0].row, parts[0].heads
        k, keys, queries = self.k[row, heads], _take(self.keys, heads), _take(self.queries, heads)
        by_key = None if stored else call.multiply_keys(k, queries, memory)
        sums = None
        if queries is not None:
            sums = memory.take("gradient by key", *k.shape[:2], queries.shape[1]).zero_()
        k_sum = memory.take("gradient of keys", *k.shape).zero_()
        v_sum = memory.take("gradient of values", *self.v[row, heads].shape).zero_()
        for part in parts:
            block, shown = part.block, slice(part.block.low, part.block.high)
            q = self.q[row, heads, block.start : block.stop] * call.scale
            if stored:
                weights = stored[part.number].view(len(q), block.pairs.T, block.pairs.S)
            else:
                weights = call.compute_weights(block, row, q, k[:, shown], keys, by_key, memory)
            block_gradient = gradient[row, heads, block.start : block.stop]
            changes = self._compute_score_gradient(
                part.number, weights, block_gradient, self.v[row, heads, shown], v_sum[:, shown]
            )
            k_sum[:, shown].baddbmm_(changes.mT, q)
            q_sum = torch.bmm(changes, k[:, shown])
            self._add_vectors(part, q, changes, q_sum, sums)
            self.q_gradient[row, heads, block.start : block.stop] = q_sum.mul_(call.scale)
        if queries is not None and sums is not None:
            sums.mul_(call.scale)
            k_sum.baddbmm_(sums, queries)
            assert self.queries_gradient is not None
            self.queries_gradient[heads].baddbmm_(sums.mT, k)
        self.k_gradient[row, heads], self.v_gradient[row, heads] = k_sum, v_sum

    def _compute_score_gradient(
        self, number: int, weights: Tensor, gradient: Tensor, v: Tensor, v_sum: Tensor
    ) -> Tensor:
        """The gradient of scores [H, b, s]; adds that of the values to ``v_sum``."""
        changes = self.memory.take("gradient of scores", *weights.shape)
        torch.bmm(gradient, v.mT, out=changes)
        used = weights
        if self.call.dropout:
            used = self.memory.take("dropout", *weights.shape)
            self.call.draw_dropout(self.seed, number, used)
            changes *= used
            used *= weights
        v_sum.baddbmm_(used.mT, gradient)
        # weights (changes - sum of weights changes), in place.
        torch.ops.aten._softmax_backward_data.out(
            changes, weights, -1, weights.dtype, grad_input=changes
        )
        return changes

    def _add_vectors(
        self, part: _Part, q: Tensor, changes: Tensor, q_sum: Tensor, sums: Tensor | None
    ) -> None:
        """What reading vectors by distance adds to the gradients."""
        by_query, keys = None, _take(self.keys, part.heads)
        if keys is not None:
            by_query = self.memory.take("by query", *q.shape[:2], keys.shape[1]).zero_()
        scatter_scores(part.block.pairs, changes, by_query, sums)
        if keys is not None and by_query is not None:
            q_sum.baddbmm_(by_query, keys)
            assert self.keys_gradient is not None
            self.keys_gradient[part.heads].baddbmm_(by_query.mT, q)


def _take(vectors: Tensor | None, heads: slice) -> Tensor | None:
    """The vectors of some heads."""
    return None if vectors is None else vectors[heads]


def _build_output(like: Tensor, width: int) -> Tensor:
    """An empty tensor [B, H, T, width], laid out as [B, T, H, width]."""
    B, H, T = like.shape[:3]
    return like.new_empty(B, T, H, width).transpose(1, 2)
