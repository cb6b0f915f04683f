"""Softmax attention of rotated queries and keys: the three ways to compute it.

whole     no bias, and a mask that the fused kernel knows: one call
vector    a bias by distance on consecutive positions: queries in blocks, each block reversed,
          so that row r and key j read entry r + j of one vector per head
blocks    anything else: a block of queries with all keys that it sees, computed again in the
          backward pass; memory grows with n, not with n^2
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whorl.encodings import Encoding, XPos

from ._scope import Scope, Span, pick

__all__ = ["Job"]


class _Parts:
    """Results of blocks, written straight to their place where no gradient is needed."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, trained: bool = False) -> None:
        tracked = trained or any(x.requires_grad for x in (q, k, v))
        self._kept: list[Tensor] = []
        self._into = q.new_empty(*q.shape[:3], v.shape[3])
        self._tracked = torch.is_grad_enabled() and tracked

    def add(self, part: Tensor, first: int, last: int) -> None:
        if self._tracked:
            self._kept.append(part)
        else:
            self._into[:, :, first:last] = part

    def joined(self) -> Tensor:
        return torch.cat(self._kept, 2) if self._kept else self._into


class Job:
    """One attention call whose queries and keys are rotated."""

    def __init__(
        self, encoding: Encoding, scope: Scope, scale: float, dropout: float, block: int
    ) -> None:
        self.encoding, self.scope, self.scale = encoding, scope, scale
        self.dropout, self.block = dropout, block
        self.segments: tuple[Tensor, Tensor] | None = None  # of queries and of keys
        self.scored = "score" in encoding.hooks
        self.asking = encoding.acts("content_score")
        trained = any(p.requires_grad for p in encoding.parameters())
        self.trained = trained and self.scored and torch.is_grad_enabled()

    def run(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if (by_query := self.encoding.query_scale(self.scope.at)) is not None:
            q = q * _over_heads(by_query.unsqueeze(-1)).to(q.dtype)
        if self.dropout or "value" in self.encoding.hooks or v.shape[3] != q.shape[3]:
            return self.blocks(q, k, v)
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
        scope, parts = self.scope, _Parts(q, k, v)
        assert scope.start is not None
        for first, last in self._steps(q.shape[2]):
            ((low, high),) = scope.keys(first, last)
            line = self._line(q, first, last, low, high).detach()
            shape = (1, q.shape[1], last - first, high - low)
            rows = line.as_strided(shape, (0, line.stride(0), 1, 1))
            turned = q[:, :, first:last].flip(2)
            part = self._fused(turned, k[:, :, low:high], v[:, :, low:high], attn_mask=rows)
            parts.add(part.flip(2), first, last)
        return parts.joined()

    def blocks(self, q: Tensor, k: Tensor, v: Tensor, xpos: XPos | None = None) -> Tensor:
        """Blocks of queries, each with the keys that it sees and a bias of its own."""
        grads = torch.is_grad_enabled() and (self.trained or q.requires_grad or k.requires_grad)
        again = grads or (torch.is_grad_enabled() and v.requires_grad)
        parts = _Parts(q, k, v, self.trained)
        for first, last in self._steps(q.shape[2]):
            arguments = (q[:, :, first:last], k, v, first, last, xpos)
            if again:
                part = checkpoint(
                    self._one,
                    *arguments,
                    use_reentrant=False,
                    preserve_rng_state=self.dropout > 0,
                )
            else:
                part = self._one(*arguments)
            parts.add(part, first, last)
        return parts.joined()

    def _one(
        self, q: Tensor, k: Tensor, v: Tensor, first: int, last: int, xpos: XPos | None
    ) -> Tensor:
        spans = self.scope.keys(first, last)
        k, v = (_keys(x, spans) for x in (k, v))
        if xpos is not None:
            q, k = self._near(q, k, first, last, spans, xpos)
        if self.trained and not self.asking and not self.dropout and self.scope.by_distance:
            return self._diagonal(q, k, v, self._line(q, first, last, *spans[0]))
        added = self._added(q, k, first, last, spans)
        seen = self.scope.visible(first, last, spans)
        some = None
        if not k.shape[2]:
            return self._empty(q, v)
        if seen is not None:
            some = seen.any(-1, keepdim=True)
            nothing = torch.zeros((), dtype=_wide(q), device=q.device)
            hidden = torch.where(seen, nothing, -math.inf)
            hidden = torch.where(some, hidden, nothing)  # a row of -inf would give NaN
            added = hidden if added is None else added + hidden
        values = "value" in self.encoding.hooks
        if values or self.dropout:
            out = self._weighed(q, k, v, added, first, last, spans)
        else:
            if added is not None:
                added = added.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
            out = self._fused(q, k, v, attn_mask=added)
        return out if some is None else torch.where(some, out, torch.zeros_like(out))

    def _added(
        self, q: Tensor, k: Tensor, first: int, last: int, spans: list[Span]
    ) -> Tensor | None:
        """Everything but q k^T, as it is added to scaled scores: [B, H, b, s] or less."""
        added = None
        if (content := self._content(q, k, first, last, spans)) is not None:
            added = content.to(_wide(q)) * self.scale
        if (bias := self._bias(first, last, spans)) is not None:
            bias = bias.to(_wide(q))
            added = bias if added is None else added + bias
        return added

    def _bias(self, first: int, last: int, spans: list[Span]) -> Tensor | None:
        """The bias of queries first .. last - 1 and the keys in ``spans``, [(B,) H, b, s]."""
        if not self.encoding.acts("distance_bias"):
            return None
        scope = self.scope
        if scope.start is not None and len(spans) == 1 and spans[0][0] < spans[0][1]:
            ((low, high),) = spans  # the same numbers run along every diagonal
            line = self.encoding.distance_bias(scope.line(first, last, low, high))
            return None if line is None else line.unfold(-1, high - low, 1).flip(1)
        at, keys = scope.at[..., first:last], pick(scope.keys_at, spans)
        bias = self.encoding.distance_bias(at.unsqueeze(-1) - keys.unsqueeze(-2))
        return bias.transpose(0, 1) if bias is not None and bias.dim() == 4 else bias

    def _content(
        self, q: Tensor, k: Tensor, first: int, last: int, spans: list[Span]
    ) -> Tensor | None:
        if not self.asking:
            return None
        at, keys = self.scope.at[..., first:last], pick(self.scope.keys_at, spans)
        more: dict[str, Any] = {}
        if self.segments is not None:
            mine, theirs = self.segments
            more = {"segments": mine[..., first:last], "key_segments": pick(theirs, spans)}
        return self.encoding.content_score(q, k, at, keys, **more)

    def _weighed(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        added: Tensor | None,
        first: int,
        last: int,
        spans: list[Span],
    ) -> Tensor:
        """With the weights in hand, as dropout and values by position need them."""
        wide = _wide(q)
        score = _product(q.to(wide), k.to(wide).mT) * self.scale
        weights = (score if added is None else score + added).softmax(-1)
        weights = F.dropout(weights, self.dropout) if self.dropout else weights
        out = _product(weights, v.to(wide))
        at, keys = self.scope.at[..., first:last], pick(self.scope.keys_at, spans)
        if (more := self.encoding.value_term(weights, at, keys)) is not None:
            out = out + more
        return out.to(v.dtype)

    def _line(self, q: Tensor, first: int, last: int, low: int, high: int) -> Tensor:
        """Bias and mask by distance, [H, b + s - 1]; see ``Scope.line``."""
        distance = self.scope.line(first, last, low, high)
        line = torch.where(self.scope.seen(distance), 0.0, -math.inf)
        if (bias := self.encoding.distance_bias(distance)) is not None:
            line = line + bias
        return line.to(_wide(q)).expand(q.shape[1], -1).contiguous()

    def _diagonal(self, q: Tensor, k: Tensor, v: Tensor, line: Tensor) -> Tensor:
        """With a trained line: its gradient is the sum along each diagonal of the scores'."""
        B, H, T, _ = q.shape
        wide, times = line.dtype, H // k.shape[1]
        rows = line.unfold(-1, k.shape[2], 1)  # [H, b, s], the last query first
        turned = q.flip(2).to(wide).flatten(0, 1)
        keys, values = (x.repeat_interleave(times, 1).to(wide).flatten(0, 1) for x in (k, v))
        added = rows if B == 1 else rows.repeat(B, 1, 1)
        weights = torch.baddbmm(added, turned, keys.mT, alpha=self.scale).softmax(-1)
        return (weights @ values).view(B, H, T, -1).flip(2).to(v.dtype)

    def _near(
        self, q: Tensor, k: Tensor, first: int, last: int, spans: list[Span], xpos: XPos
    ) -> tuple[Tensor, Tensor]:
        """Rotate for XPos with a reference near these queries, so that no factor overflows."""
        at, keys = self.scope.at[..., first:last], pick(self.scope.keys_at, spans)
        lowest = at.amin(-1)
        span = int(xpos.config.scale_base)
        near = lowest.div(span, rounding_mode="floor").long() * span
        reference = int(near) if near.dim() == 0 else near
        return (
            xpos.rotate(q, at, role="query", reference=reference),
            xpos.rotate(k, keys, role="key", reference=reference),
        )

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        grouped = k.shape[1] != q.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, scale=self.scale, enable_gqa=grouped, **options
        )

    def _steps(self, length: int) -> list[Span]:
        return [(n, min(length, n + self.block)) for n in range(0, length, self.block)]

    @staticmethod
    def _empty(q: Tensor, v: Tensor) -> Tensor:
        return q.new_zeros(*q.shape[:3], v.shape[3])


def _keys(x: Tensor, spans: list[Span]) -> Tensor:
    """Spans of the tokens of x [B, G, S, D], joined."""
    parts = [x[:, :, low:high] for low, high in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a [B, H, T, X] times b [B, G, X, Y], where G divides H."""
    B, H, T, X = a.shape
    G = b.shape[1]
    if G == H:
        return a @ b
    return (a.reshape(B, G, H // G * T, X) @ b).reshape(B, H, T, b.shape[3])


def _over_heads(t: Tensor) -> Tensor:
    """[T, 1] or [B, T, 1] with an axis for heads."""
    return t.unsqueeze(1) if t.dim() == 3 else t


def _wide(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32
