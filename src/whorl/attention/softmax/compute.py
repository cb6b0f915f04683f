"""Softmax attention of rotated queries and keys: the three ways to compute it.

whole     no bias, and a mask that the fused kernel knows: one call
vector    a bias by distance on consecutive positions: queries in blocks, each block reversed,
          so that row r and key j read entry r + j of one vector per head
blocks    anything else: a block of queries with all keys that it sees, computed again in the
          backward pass; memory grows with n, not with n^2. What is added to the scores and needs a
          gradient meets them in plain matrices: the fused kernel's own way for that is slower
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whorl._support.tracing import is_exporting
from whorl.attention._output import Output, build_zeros
from whorl.encodings import Encoding, XPos
from whorl.encodings.base import Scorer
from whorl.kernels.tables import choose_table_dtype

from .visibility import Block, Scope

__all__ = ["Job", "full_precision", "lowered", "scaled"]

_transform: Callable[[], object]
try:  # torch has no public way to ask
    from torch._C._functorch import peek_interpreter_stack

    _transform = peek_interpreter_stack
except ImportError:  # pragma: no cover
    _transform = lambda: None  # noqa: E731


class _Added(NamedTuple):
    """What is added to q k^T of a block, each [B, H, b, s] or less.

    content: before the softmax scale; rest: after it, bias and mask. some [..., b, 1]: whether a
    query sees any key, where that is not certain.
    """

    content: Tensor | None
    rest: Tensor | None
    some: Tensor | None


class Job:
    """One attention call. segments: ids of queries and of keys, for encodings that have them."""

    def __init__(
        self,
        encoding: Encoding,
        scope: Scope,
        *,
        scale: float,
        block: int,
        dropout: float = 0.0,
        segments: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.encoding, self.scope, self.scale = encoding, scope, scale
        self.dropout, self.block, self.segments = dropout, block, segments
        self.scored = "score" in encoding.hooks
        self.asking = encoding.acts("content_score")
        scoring = [part for part in encoding.parts if "score" in part.hooks]
        trained = any(p.requires_grad for part in scoring for p in part.parameters())
        self.trained = trained and torch.is_grad_enabled()

    def run(self, q: Tensor, k: Tensor, v: Tensor, xpos: XPos | None = None) -> Tensor:
        """Attention of rotated q and k; of unrotated ones with ``xpos``, which each block turns."""
        if (by_query := self.encoding.query_scale(self.scope.at)) is not None:
            q = scaled(q, by_query)
        return self.attend(q, k, v, xpos)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, xpos: XPos | None = None) -> Tensor:
        """``run`` for queries that have their own scale already."""
        if not q.shape[2] or not k.shape[2]:
            return build_zeros(q, k, v, *self.encoding.parameters(), width=v.shape[3])
        plain = not self.dropout and "value" not in self.encoding.hooks
        if xpos is not None or not plain or v.shape[3] != q.shape[3]:
            return self.blocks(q, k, v, xpos)
        if not self.scored and self.scope.open:
            return self._fused(q, k, v)
        square = self.scope.start == 0 and q.shape[2] == k.shape[2]
        if not self.scored and square and self.scope.by_distance and self.scope.window is None:
            return self._fused(q, k, v, is_causal=True)
        if self.scope.by_distance and not self.trained and not self.asking:
            return self.vector(q, k, v)
        return self.blocks(q, k, v)

    def vector(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Bias and mask from one vector per head; see the top of this file."""
        out = Output(q, v)
        for block in self.scope.blocks(self.block):
            line, keys = self._line(q, block).detach(), block.keys(k, 2)
            shape = (1, q.shape[1], block.last - block.first, keys.shape[2])
            rows = line.as_strided(shape, (0, line.stride(0), 1, 1))
            turned = q[:, :, block.first : block.last].flip(2)
            out.append(self._fused(turned, keys, block.keys(v, 2), attn_mask=rows).flip(2))
        return out.whole()

    def blocks(self, q: Tensor, k: Tensor, v: Tensor, xpos: XPos | None = None) -> Tensor:
        """Blocks of queries, each with the keys that it sees and a bias of its own."""
        tracked, random = self._tracked(q, k, v), self.dropout > 0
        # With dropout the blocks and their order never depend on gradients: the same seed then
        # drops the same weights when a checkpoint around this call runs it first without them.
        backwards = tracked or random
        blocks = self.scope.blocks(self.block, self.block // 64 if backwards else 0)
        scorer = self.encoding.scorer(q, self._reach(blocks)) if self.asking else None
        if len(blocks) == 1:  # nothing is saved by computing it again
            return self._one(q, k, v, blocks[0], scorer, xpos)
        out = Output(q, v)
        if not backwards:
            for block in blocks:
                part = q[:, :, block.first : block.last]
                out.append(self._one(part, k, v, block, scorer, xpos))
            return out.whole()
        # The last block first: it is the largest, and what it frees holds what the others need.
        # Else the heap is in pieces that are just too small, and grows with the square.
        done: list[Tensor] = []
        for block in reversed(blocks):
            arguments = (q[:, :, block.first : block.last], k, v, block, scorer, xpos)
            # Dynamo with dynamic=True fails where checkpoints share a float of the encoding that it
            # did not meet before, outside of them. So one block is not computed again.
            if tracked and (done or not torch.compiler.is_compiling()):
                made = checkpoint(
                    self._one, *arguments, use_reentrant=False, preserve_rng_state=random
                )
            else:
                made = self._one(*arguments)
            done.append(made)
        for part in reversed(done):
            out.append(part)
        return out.whole()

    def _tracked(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Whether blocks are to be computed again for gradients; torch.func has no way to."""
        if not torch.is_grad_enabled() or _transformed():
            return False
        return self.trained or any(x.requires_grad for x in (q, k, v))

    def _reach(self, blocks: list[Block]) -> tuple[int, int] | None:
        """The distances of pairs that may be seen, if all blocks are of consecutive positions."""
        start = self.scope.start
        if start is None or any(len(block.spans) > 1 for block in blocks):
            return None
        ends = [
            (start + b.first - b.spans[0][1] + 1, start + b.last - b.spans[0][0]) for b in blocks
        ]
        low, high = min(a for a, _ in ends), max(b for _, b in ends) - 1
        low = max(low, 0) if self.scope.causal else low
        return (low, high) if low <= high else None

    def _one(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        block: Block,
        scorer: Scorer | None,
        xpos: XPos | None,
    ) -> Tensor:
        k, v = block.keys(k, 2), block.keys(v, 2)
        if not k.shape[2]:
            return build_zeros(q, k, v, *self.encoding.parameters(), width=v.shape[3])
        if xpos is not None:
            near = xpos.reference_near(block.at)
            q = xpos.rotate(q, block.at, role="query", reference=near)
            k = xpos.rotate(k, block.keys_at, role="key", reference=near)
        bare = not self.asking and not self.dropout and "value" not in self.encoding.hooks
        if self.trained and bare and self.scope.by_distance:
            return self._diagonal(q, k, v, self._line(q, block))
        added = self._added(q, k, block, scorer)
        known = [x for x in (added.content, added.rest) if x is not None]
        # Under vmap a tensor does not say that it needs a gradient.
        grown = any(x.requires_grad or self.trained or _transformed() for x in known)
        if self.dropout or "value" in self.encoding.hooks or grown:
            out = self._weighed(q, k, v, added, block)
        else:
            mask = added.rest
            if added.content is not None:
                scaled_by = added.content.to(choose_table_dtype(q)) * self.scale
                mask = scaled_by if mask is None else scaled_by + mask
            if mask is not None:
                mask = mask.expand(*q.shape[:3], k.shape[2])
            out = self._fused(q, k, v, attn_mask=mask)
        return out if added.some is None else torch.where(added.some, out, 0.0)

    def _added(self, q: Tensor, k: Tensor, block: Block, scorer: Scorer | None) -> _Added:
        wide, content, some = choose_table_dtype(q), None, None
        if scorer is not None:
            content = scorer(q, k, block.at, block.keys_at, **self._segments(block))
        rest = self._bias(block)
        rest = None if rest is None else rest.to(wide)
        if (seen := self.scope.visible(block)) is not None:
            nothing = torch.zeros((), dtype=wide, device=q.device)
            hidden = torch.where(seen, nothing, -math.inf)
            if not self.scope.by_distance:
                some = seen.any(-1, keepdim=True)
                hidden = torch.where(some, hidden, nothing)  # a row of -inf would give NaN
            rest = hidden if rest is None else rest + hidden
        return _Added(content, rest, some)

    def _bias(self, block: Block) -> Tensor | None:
        """The bias of the queries and keys of a block, [(B,) H, b, s]."""
        if not self.encoding.acts("distance_bias"):
            return None
        if self.scope.start is not None and len(block.spans) == 1:
            # The same numbers run along every diagonal.
            line = self.encoding.distance_bias(self.scope.line(block))
            return None if line is None else _windows(line, block.keys_at.shape[-1]).flip(1)
        bias = self.encoding.distance_bias(block.at.unsqueeze(-1) - block.keys_at.unsqueeze(-2))
        return bias.transpose(0, 1) if bias is not None and bias.dim() == 4 else bias

    def _segments(self, block: Block) -> dict[str, Tensor]:
        if self.segments is None:
            return {}
        mine, theirs = self.segments
        return {"segments": block.queries(mine), "key_segments": block.keys(theirs)}

    def _weighed(self, q: Tensor, k: Tensor, v: Tensor, added: _Added, block: Block) -> Tensor:
        """With the weights in hand, as dropout, values by position and trained scores need them."""
        wide, keys = choose_table_dtype(q), k.to(choose_table_dtype(q)).mT
        if added.content is None:
            score = _product(q.to(wide) * self.scale, keys)
            score = score if added.rest is None else score + added.rest
        else:
            score = _product(q.to(wide), keys) + added.content.to(wide)
            rest = score.new_zeros(()) if added.rest is None else added.rest
            score = torch.add(rest, score, alpha=self.scale)
        weights = score.softmax(-1)
        weights = F.dropout(weights, self.dropout) if self.dropout else weights
        out = _product(weights, v.to(wide))
        if (more := self.encoding.value_term(weights, block.at, block.keys_at)) is not None:
            out = out + more
        return out.to(v.dtype)

    def _line(self, q: Tensor, block: Block) -> Tensor:
        """Bias and mask by distance, [H, b + s - 1]; see ``Scope.line``."""
        distance = self.scope.line(block)
        line = torch.where(self.scope.seen(distance), 0.0, -math.inf)
        if (bias := self.encoding.distance_bias(distance)) is not None:
            line = line + bias
        return line.to(choose_table_dtype(q)).expand(q.shape[1], -1).contiguous()

    def _diagonal(self, q: Tensor, k: Tensor, v: Tensor, line: Tensor) -> Tensor:
        """With a trained line: its gradient is the sum along each diagonal of the scores'."""
        wide = line.dtype
        rows = _windows(line, k.shape[2])  # [H, b, s], the last query first
        turned = q.flip(2).to(wide) * self.scale
        weights = (_product(turned, k.to(wide).mT) + rows).softmax(-1)
        return _product(weights, v.to(wide)).flip(2).to(v.dtype)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        if k.shape[1] != q.shape[1]:  # decided here: the kernel does not take a symbol
            options["enable_gqa"] = True
        return F.scaled_dot_product_attention(q, k, v, scale=self.scale, **options)


def scaled(q: Tensor, by_query: Tensor) -> Tensor:
    """Queries times their scale, [T] or [B, T]."""
    factor = by_query.unsqueeze(-1)
    return q * (factor.unsqueeze(1) if factor.dim() == 3 else factor).to(q.dtype)


def lowered(*tensors: Tensor) -> tuple[Tensor, ...]:
    """What autocast makes of the inputs of attention: its dtype, but for float64."""
    kind = tensors[0].device.type
    if not _autocasts(kind) or tensors[0].dtype == torch.float64:
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(kind)) for x in tensors)


def full_precision(q: Tensor) -> AbstractContextManager[None]:
    """Outside autocast, which would round scores, biases and masks to half precision."""
    kind = q.device.type
    return torch.autocast(kind, enabled=False) if _autocasts(kind) else nullcontext()


def _autocasts(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _transformed() -> bool:
    """Whether a transform of torch.func looks on."""
    return not torch.compiler.is_compiling() and _transform() is not None


def _windows(line: Tensor, width: int) -> Tensor:
    """[H, b + s - 1] -> [H, b, s]: entry r + j. ``unfold`` would fit a graph to one length."""
    if not torch.compiler.is_compiling():
        return line.unfold(-1, width, 1)
    starts = torch.arange(line.shape[-1] - width + 1, device=line.device)
    return line[:, starts.unsqueeze(-1) + torch.arange(width, device=line.device)]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a [B, H, T, X] times b [B, G, X, Y], where G divides H."""
    B, H, T, X = a.shape
    G = b.shape[1]
    if G == H:
        return a @ b
    if is_exporting():  # the other way would tie the program to the length T it is traced with
        return a @ b.repeat_interleave(H // G, 1)
    return (a.reshape(B, G, H // G * T, X) @ b).reshape(B, H, T, b.shape[3])
