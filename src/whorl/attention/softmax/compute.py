"""Softmax attention of rotated queries and keys: all at once, by distance, by vectors, in blocks.

all at once     no bias, and a mask that the fused kernel knows: one call
by distance     a bias and a mask by distance, on consecutive positions: blocks of queries in
                reverse order, so that query r and key j read entry r + j of one vector per head
by vectors      content scores that are products with vectors of distances: ``content``
in blocks       anything else: each block of queries with the keys that it may see, computed again
                in the backward pass, so that memory grows with n, not with n^2. What is added to
                the scores and needs a gradient is added to plain matrices, which is faster than
                the fused kernel's own way
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whorl._support.tracing import is_exporting
from whorl.attention._output import Output, build_zeros
from whorl.encodings import Encoding
from whorl.encodings.base import Scorer
from whorl.kernels.scores import can_gather
from whorl.kernels.tables import choose_table_dtype

from .content import ContentCall, ScoredBlock
from .visibility import QueryBlock, Visibility

__all__ = ["SoftmaxCall", "scale_queries"]

# By content, up to so many scores are not computed again for gradients: 64 MB in float32, a little
# more than 12 heads of 1024 tokens need.
_STORED_SCORES = 1 << 24

_get_transform: Callable[[], object]
try:  # torch has no public way to ask
    from torch._C._functorch import peek_interpreter_stack

    _get_transform = peek_interpreter_stack
except ImportError:  # pragma: no cover
    _get_transform = lambda: None  # noqa: E731


class SoftmaxCall:
    """One call of softmax attention, with all but its tensors.

    block: queries of a block. segments: ids of queries and of keys, for encodings that have them.
    block_rotation: rotates the queries and keys of each block, if they are not rotated yet.
    sink_logits: [H], the score of a key that every query sees and that has no value.
    softcap: the largest size of a score before bias and mask.
    """

    def __init__(
        self,
        encoding: Encoding,
        visibility: Visibility,
        *,
        scale: float,
        block: int,
        dropout: float = 0.0,
        segments: tuple[Tensor, Tensor] | None = None,
        block_rotation: Encoding | None = None,
        sink_logits: Tensor | None = None,
        softcap: float | None = None,
    ) -> None:
        self.encoding, self.visibility, self.scale = encoding, visibility, scale
        self.dropout, self.block, self.segments = dropout, block, segments
        self.block_rotation = block_rotation
        self.sink_logits, self.softcap = sink_logits, softcap
        self.has_content = encoding.acts("content_score")
        self.has_bias = encoding.acts("distance_bias")
        self.needs_weights = dropout > 0 or softcap is not None or encoding.acts("value_term")
        scoring = [part for part in encoding.parts if "score" in part.hooks]
        added: list[Tensor] = [p for part in scoring for p in part.parameters()]
        added += [] if sink_logits is None else [sink_logits]
        self.is_trained = torch.is_grad_enabled() and any(x.requires_grad for x in added)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention by the first way that fits: all at once, by distance, by vectors, in blocks.

        Queries are scaled; both are rotated, unless ``block_rotation`` is to do it block by block.
        """
        if not q.shape[2] or not k.shape[2]:
            return self.build_zeros(q, k, v)
        in_blocks = self.block_rotation is not None or self.sink_logits is not None
        if in_blocks or self.needs_weights or v.shape[3] != q.shape[3]:
            return self.attend_in_blocks(q, k, v)
        visibility = self.visibility
        if not self.has_content and not self.has_bias:
            if visibility.is_full:
                return self._call_fused_kernel(q, k, v)
            square = visibility.offset == 0 and q.shape[2] == k.shape[2]
            if square and visibility.window is None and visibility.is_by_distance:
                return self._call_fused_kernel(q, k, v, is_causal=True)
        if not self.has_content and not self.is_trained and visibility.is_by_distance:
            return self.attend_by_distance(q, k, v)
        return self.attend_in_blocks(q, k, v)

    def attend_by_distance(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention whose bias and mask are read from one vector of distances per head."""
        out = Output(q, v)
        # Smaller blocks spare keys that a mask hides; larger ones are faster where all are visible.
        spares = self.visibility.causal or self.visibility.window is not None
        for block in self.visibility.plan_blocks(self.block if spares else 4 * self.block):
            bias, keys = self._compute_bias_vector(q, block).detach(), block.take_keys(k, 2)
            shape = (1, q.shape[1], block.stop - block.start, keys.shape[2])
            rows = bias.as_strided(shape, (0, bias.stride(0), 1, 1))
            reverse = block.take_queries(q, 2).flip(2)
            values = block.take_keys(v, 2)
            out.append(self._call_fused_kernel(reverse, keys, values, attn_mask=rows).flip(2))
        return out.join()

    def attend_in_blocks(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention in blocks of queries, each with the keys that it sees and a bias of its own."""
        by_vectors = self._attend_by_vectors(q, k, v)
        if by_vectors is not None:
            return by_vectors
        recompute, random = self.needs_recomputing(q, k, v), self.dropout > 0
        # With dropout the blocks and their order never depend on gradients: the same seed then
        # drops the same weights when a checkpoint around this call runs it first without them.
        backwards = recompute or random
        blocks = self.visibility.plan_blocks(self.block, self.block // 64 if backwards else 0)
        scorer = self.build_scorer(q, k, blocks)
        if len(blocks) == 1:  # nothing is saved by computing it again
            return self._attend_block(q, k, v, blocks[0], scorer)
        out = Output(q, v)
        if not backwards:
            for block in blocks:
                out.append(self._attend_block(block.take_queries(q, 2), k, v, block, scorer))
            return out.join()
        # The last block first: it is the largest, and what it frees holds what the others need.
        # Else the heap is in pieces that are just too small, and grows with the square.
        done: list[Tensor] = []
        for block in reversed(blocks):
            arguments = (block.take_queries(q, 2), k, v, block, scorer)
            # Dynamo with dynamic=True fails where checkpoints share a float of the encoding that it
            # did not meet before, outside of them. So one block is not computed again.
            if recompute and (done or not torch.compiler.is_compiling()):
                part = checkpoint(
                    self._attend_block, *arguments, use_reentrant=False, preserve_rng_state=random
                )
            else:
                part = self._attend_block(*arguments)
            done.append(part)
        for part in reversed(done):
            out.append(part)
        return out.join()

    def build_scorer(self, q: Tensor, k: Tensor, blocks: list[QueryBlock]) -> Scorer | None:
        """What gives the content scores of all blocks of a call, if the encoding has any."""
        if not self.has_content:
            return None
        positions = self.visibility.key_positions
        return self.encoding.scorer(q, k, positions, self._find_distances(blocks), self.scale)

    def _attend_by_vectors(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor | None:
        """Attention with content scores that the C library reads by distance; None if it cannot."""
        visibility, encoding = self.visibility, self.encoding
        parts = [part for part in encoding.parts if part.acts("content_score")]
        others = (self.sink_logits, self.softcap, self.segments, self.block_rotation)
        if len(parts) != 1 or self.has_bias or any(x is not None for x in others):
            return None
        wide = choose_table_dtype(q)
        q, k, v, dtype = q.to(wide), k.to(wide), v.to(wide), v.dtype
        if encoding.acts("value_term") or _is_transformed() or not can_gather(q, k, v):
            return None
        padding_only = not visibility.causal and visibility.window is None
        is_simple = visibility.is_by_distance if visibility.key_mask is None else padding_only
        if visibility.mask is not None or visibility.documents is not None or not is_simple:
            return None
        # Twice the block takes a tenth less time at 512 tokens, and the same at 1024.
        blocks = visibility.plan_blocks(2 * self.block)
        distances = self._find_distances(blocks)
        vectors = None if distances is None else parts[0].score_vectors(wide, distances)
        if vectors is None:
            return None
        scored, any_visible = [], None
        for block in blocks:
            hidden, any_visible = self.compute_bias_and_mask(q, block)
            rows = visibility.list_distances(block)
            scored.append(ScoredBlock.build(block, rows, vectors, hidden))
        if k.shape[1] != q.shape[1]:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        call = ContentCall(tuple(scored), self.scale, self.dropout)
        out = call.attend(q, k, v, vectors).to(dtype)
        return out if any_visible is None else torch.where(any_visible, out, 0.0)

    def needs_recomputing(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Whether blocks are computed again for gradients, which torch.func has no way to do."""
        if not torch.is_grad_enabled() or _is_transformed():
            return False
        may_store = self.has_content and not self.dropout and not torch.compiler.is_compiling()
        if may_store and q.shape[:3].numel() * k.shape[2] <= _STORED_SCORES:
            return False  # a constant amount of memory in each layer saves a forward pass
        return self.is_trained or any(x.requires_grad for x in (q, k, v))

    def _find_distances(self, blocks: list[QueryBlock]) -> tuple[int, int] | None:
        """The lowest and highest distance of a visible key, if positions are consecutive."""
        offset = self.visibility.offset
        if offset is None or any(len(block.key_ranges) > 1 for block in blocks):
            return None
        low = min(offset + b.start - b.key_ranges[0][1] + 1 for b in blocks)
        high = max(offset + b.stop - b.key_ranges[0][0] for b in blocks) - 1
        low = max(low, 0) if self.visibility.causal else low
        return (low, high) if low <= high else None

    def _attend_block(
        self, q: Tensor, k: Tensor, v: Tensor, block: QueryBlock, scorer: Scorer | None
    ) -> Tensor:
        """Attention of the queries of one block over all keys k, of which it takes its own."""
        q, k, v = self.take_block(q, k, v, block)
        if not k.shape[2]:
            return self.build_zeros(q, k, v)
        bias_only = not (self.has_content or self.needs_weights or self.sink_logits is not None)
        if self.is_trained and bias_only and self.visibility.is_by_distance:
            return self._attend_with_trained_bias(q, k, v, self._compute_bias_vector(q, block))
        content = self.score_content(q, k, block, scorer)
        bias, any_visible = self.compute_bias_and_mask(q, block)
        known = [x for x in (content, bias, self.sink_logits) if x is not None]
        # Under vmap a tensor does not say that it needs a gradient.
        tracked = any(x.requires_grad or self.is_trained or _is_transformed() for x in known)
        if self.needs_weights or tracked:
            out = self._attend_with_weights(q, k, v, content, bias, block)
        else:
            if content is not None:
                content = content.to(choose_table_dtype(q))
                bias = content if bias is None else content + bias
            if bias is not None:
                bias = bias.expand(*q.shape[:3], k.shape[2])
            if self.sink_logits is not None:
                k, v, bias = self._append_sink(q, k, v, bias)
            out = self._call_fused_kernel(q, k, v, attn_mask=bias)
        return out if any_visible is None else torch.where(any_visible, out, 0.0)

    def take_block(
        self, q: Tensor, k: Tensor, v: Tensor, block: QueryBlock
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The queries of a block with its keys and values, rotated if ``block_rotation`` is to."""
        k, v = block.take_keys(k, 2), block.take_keys(v, 2)
        if self.block_rotation is not None and k.shape[2]:
            queries, keys = block.query_positions, block.key_positions
            near = self.block_rotation.reference_near(queries)
            q, k = self.block_rotation(q, k, queries, keys, reference=near)
        return q, k, v

    def score_content(
        self, q: Tensor, k: Tensor, block: QueryBlock, scorer: Scorer | None
    ) -> Tensor | None:
        """The content scores of a block, [B, H, b, s], if the encoding has any."""
        if scorer is None:
            return None
        ids = {}
        if self.segments is not None:
            ids["segments"] = block.take_queries(self.segments[0])
            ids["key_segments"] = block.take_keys(self.segments[1])
        return scorer(q, k, block.query_positions, block.key_positions, **ids)

    def _append_sink(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values with one of zeros at their end, and a bias that is its score."""
        assert self.sink_logits is not None
        wide = choose_table_dtype(q)
        if bias is None:
            bias = torch.zeros((), dtype=wide, device=q.device).expand(*q.shape[:3], k.shape[2])
        sink = self.sink_logits.to(wide)[:, None, None].expand(*q.shape[:3], 1)
        return F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), torch.cat((bias, sink), -1)

    def build_zeros(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The result of queries that see no key."""
        others = [] if self.sink_logits is None else [self.sink_logits]
        return build_zeros(q, k, v, *self.encoding.parameters(), *others, width=v.shape[3])

    def compute_bias_and_mask(
        self, q: Tensor, block: QueryBlock
    ) -> tuple[Tensor | None, Tensor | None]:
        """What is added to the scores after the softmax scale, with -inf for hidden keys.

        And whether a query sees any key, [..., b, 1], where that is not certain.
        """
        wide, any_visible = choose_table_dtype(q), None
        bias = self._compute_bias(block)
        bias = None if bias is None else bias.to(wide)
        if (visible := self.visibility.compute_mask(block)) is not None:
            zero = torch.zeros((), dtype=wide, device=q.device)
            hidden = torch.where(visible, zero, -math.inf)
            if not self.visibility.is_by_distance:
                any_visible = visible.any(-1, keepdim=True)
                hidden = torch.where(any_visible, hidden, zero)  # a row of -inf would give NaN
            bias = hidden if bias is None else bias + hidden
        return bias, any_visible

    def _compute_bias(self, block: QueryBlock) -> Tensor | None:
        """The bias by distance of the queries and keys of a block, [(B,) H, b, s]."""
        if not self.has_bias:
            return None
        if self.visibility.offset is not None and len(block.key_ranges) == 1:
            # The same numbers run along every diagonal.
            vector = self.encoding.distance_bias(self.visibility.list_distances(block))
            width = block.key_positions.shape[-1]
            return None if vector is None else _expand_rows(vector, width).flip(1)
        distance = block.query_positions.unsqueeze(-1) - block.key_positions.unsqueeze(-2)
        bias = self.encoding.distance_bias(distance)
        return bias.transpose(0, 1) if bias is not None and bias.dim() == 4 else bias

    def _attend_with_weights(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        content: Tensor | None,
        bias: Tensor | None,
        block: QueryBlock,
    ) -> Tensor:
        """Attention by a matrix of weights, which the fused kernel does not give.

        Dropout that can be repeated, value terms, and scores with gradients need it.
        """
        scores = self.compute_scores(q, k, content, bias)
        wide, weights = scores.dtype, scores.softmax(-1)
        if self.sink_logits is not None:
            rest = scores.logsumexp(-1, keepdim=True) - self.sink_logits.to(wide)[:, None, None]
            weights = weights * torch.sigmoid(rest)
        weights = F.dropout(weights, self.dropout) if self.dropout else weights
        return self.sum_values(weights, v, block).to(v.dtype)

    def compute_scores(
        self, q: Tensor, k: Tensor, content: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """The scores [B, H, b, s] after scale, softcap, bias and mask, in float32 or wider."""
        wide, keys = choose_table_dtype(q), k.to(choose_table_dtype(q)).mT
        scaled = q.to(wide) * self.scale  # what replaces q k^T belongs here
        if content is None:
            scores = _multiply_heads(scaled, keys)
        else:
            scores = _add_product(content.to(wide), scaled, keys)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        return scores if bias is None else scores + bias

    def sum_values(self, weights: Tensor, v: Tensor, block: QueryBlock) -> Tensor:
        """Values summed by their weights [B, H, b, s], and the value term of the encoding."""
        out = _multiply_heads(weights, v.to(weights.dtype))
        term = self.encoding.value_term(weights, block.query_positions, block.key_positions)
        return out if term is None else out + term

    def _compute_bias_vector(self, q: Tensor, block: QueryBlock) -> Tensor:
        """Bias and mask by distance, [H, b + s - 1], as ``Visibility.list_distances`` has them."""
        distance = self.visibility.list_distances(block)
        bias = torch.where(self.visibility.compare_distance(distance), 0.0, -math.inf)
        if (more := self.encoding.distance_bias(distance)) is not None:
            bias = bias + more
        return bias.to(choose_table_dtype(q)).expand(q.shape[1], -1).contiguous()

    def _attend_with_trained_bias(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Attention with a bias vector whose gradient sums the scores' along each diagonal."""
        wide = bias.dtype
        rows = _expand_rows(bias, k.shape[2])  # [H, b, s], the last query first
        reverse = q.flip(2).to(wide) * self.scale
        weights = (_multiply_heads(reverse, k.to(wide).mT) + rows).softmax(-1)
        return _multiply_heads(weights, v.to(wide)).flip(2).to(v.dtype)

    def _call_fused_kernel(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """Attention by ``scaled_dot_product_attention`` of torch."""
        if k.shape[1] != q.shape[1]:  # decided here: the kernel does not take a symbol
            options["enable_gqa"] = True
        return F.scaled_dot_product_attention(q, k, v, scale=self.scale, **options)


def scale_queries(q: Tensor, encoding: Encoding, positions: Tensor) -> Tensor:
    """Queries times the encoding's scale at their positions, [T] or [B, T], if it has one."""
    if (scale := encoding.query_scale(positions)) is None:
        return q
    factor = scale.unsqueeze(-1)
    return q * (factor.unsqueeze(1) if factor.dim() == 3 else factor).to(q.dtype)


def _is_transformed() -> bool:
    """Whether this runs inside a transform of torch.func, such as vmap or grad."""
    return not torch.compiler.is_compiling() and _get_transform() is not None


def _expand_rows(vector: Tensor, width: int) -> Tensor:
    """[H, b + s - 1] as [H, b, s], where row r begins at entry r.

    ``unfold`` would tie a compiled graph to one length.
    """
    if not torch.compiler.is_compiling():
        return vector.unfold(-1, width, 1)
    starts = torch.arange(vector.shape[-1] - width + 1, device=vector.device)
    return vector[:, starts.unsqueeze(-1) + torch.arange(width, device=vector.device)]


def _add_product(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """x + a [B, H, T, X] b [B, G, X, Y]; in one pass if G is H and x is [B, H, T, Y]."""
    shape = (*a.shape[:3], b.shape[3])
    if torch.compiler.is_compiling() or b.shape[1] != a.shape[1] or x.shape != shape:
        return x + _multiply_heads(a, b)
    return torch.baddbmm(*(t.flatten(0, 1) for t in (x, a, b))).view(shape)


def _multiply_heads(a: Tensor, b: Tensor) -> Tensor:
    """a [B, H, T, X] times b [B, G, X, Y], where G divides H."""
    B, H, T, X = a.shape
    G = b.shape[1]
    if G == H:
        return a @ b
    if is_exporting():  # the other way would tie the program to the length T it is traced with
        return a @ b.repeat_interleave(H // G, 1)
    return (a.reshape(B, G, H // G * T, X) @ b).reshape(B, H, T, b.shape[3])
