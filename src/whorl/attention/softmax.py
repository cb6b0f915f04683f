"""Softmax attention with any encoding, without a T x S matrix.

    out_i = sum_j softmax_j(scale (q_i . k_j + content_ij) + bias_(i-j)) v_j    j: keys that i sees

On PyTorch's fused kernel. Three ways, chosen by what the call needs:

    whole     no bias, and a mask that the kernel knows: one call
    vector    a bias by distance on consecutive positions: queries in blocks, each block reversed,
              so that row r and key j read entry r + j of one vector per head
    blocks    anything else: a block of queries with all keys that it sees, computed again in the
              backward pass; memory grows with n, not with n^2
"""

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whorl.encodings import Composition, Encoding, NoPE, XPos

from ._scope import Scope, Span, pick, scope_of

if TYPE_CHECKING:
    from .cache import KVCache

__all__ = ["attention"]

# Queries of one block. At 4096 tokens, 8 heads of 64: 256 takes 1.08 of the time of causal
# attention without a bias, 512 1.12, 1024 1.20 (AMD EPYC, one thread, float32).
BLOCK = 256


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    sinks: int = 0,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    mask: Tensor | None = None,
    documents: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    cache: "KVCache | None" = None,
    dropout: float = 0.0,
    scale: float | None = None,
    context_length: int | Tensor | None = None,
    segments: Tensor | None = None,
    block: int = BLOCK,
) -> Tensor:
    """Softmax attention of q [B, H, T, D] over k [B, G, S, D], v [B, G, S, E]: [B, H, T, E].

    Args:
        encoding: any encoding or composition; its input hook belongs to the embeddings and does
            nothing here.
        causal: a key is seen if its position is at most that of the query.
        window: a query sees keys at distances below it, back from itself (both ways if not causal).
        sinks: the first positions, seen in spite of the window.
        positions, key_positions: as for the encoding. By default the keys are 0 .. S - 1 and the
            queries the last T of them; with documents, positions start again in each.
        mask: [B, S], 1 for keys that are no padding; or [B, H, T, S], 1 where a query sees a key.
        documents: ids [S] or [B, S] of packed documents, which do not see each other; or
            cu_seqlens [N + 1] for one row.
        cache: holds earlier keys and values; q, k, v are then the new tokens.
        dropout: probability that a weight is dropped.
        scale: softmax scale instead of the encoding's, or of 1 / sqrt(D).
        context_length: for scalings that follow the length.
        segments: ids [S] or [B, S] for encodings that have vectors for them (XLNet).
        block: queries that are worked on at a time where there is a bias or a mask.

    A query that sees no key gives 0.

    >>> import torch, whorl
    >>> q, k, v = (torch.randn(1, 8, 1000, 64) for _ in range(3))
    >>> whorl.attention(q, k, v, whorl.RoPE(64) + whorl.ALiBi(8), causal=True).shape
    torch.Size([1, 8, 1000, 64])
    """
    encoding = NoPE() if encoding is None else encoding
    _check(q, k, v, encoding, causal, dropout, block)
    rotated = cache is not None
    if cache is not None:
        _check_cached(documents, cu_seqlens, key_positions)
        step = cache.update(q, k, v, positions=positions, mask=mask)
        q, k, v, mask = step.q, step.k, step.v, step.valid
        positions, key_positions = step.positions, step.key_positions
    scope = scope_of(
        q,
        k,
        causal=causal,
        window=window,
        sinks=sinks,
        positions=positions,
        key_positions=key_positions,
        mask=mask,
        documents=documents,
        cu_seqlens=cu_seqlens,
        axes=1 if rotated else encoding.position_axes,
        placed=bool(causal or window is not None or encoding.hooks - {"input"}),
    )
    job = _Job(encoding, scope, _scale(encoding, scale, q), dropout, block)
    if segments is not None:
        job.segments = _segments(segments, q, k, encoding, rotated)
    if not rotated:
        if (xpos := _moving(encoding)) is not None and not _fits(xpos, scope, q):
            return job.blocks(q, k, v, xpos)
        q, k = _turned(encoding, q, k, positions, key_positions, scope, context_length)
    return job.run(q, k, v)


class _Job:
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
        scope, outs = self.scope, []
        assert scope.start is not None
        for first, last in self._steps(q.shape[2]):
            ((low, high),) = scope.keys(first, last)
            line = self._line(q, first, last, low, high).detach()
            shape = (1, q.shape[1], last - first, high - low)
            rows = line.as_strided(shape, (0, line.stride(0), 1, 1))
            turned = q[:, :, first:last].flip(2)
            part = self._fused(turned, k[:, :, low:high], v[:, :, low:high], attn_mask=rows)
            outs.append(part.flip(2))
        return torch.cat(outs, 2) if outs else self._empty(q, v)

    def blocks(self, q: Tensor, k: Tensor, v: Tensor, xpos: XPos | None = None) -> Tensor:
        """Blocks of queries, each with the keys that it sees and a bias of its own."""
        grads = torch.is_grad_enabled() and (self.trained or q.requires_grad or k.requires_grad)
        again = grads or (torch.is_grad_enabled() and v.requires_grad)
        outs = []
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
            outs.append(part)
        return torch.cat(outs, 2) if outs else self._empty(q, v)

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


def _turned(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    key_positions: Tensor | None,
    scope: Scope,
    context_length: int | Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Queries and keys through the encoding's rotation."""
    if "rotation" not in encoding.hooks:
        return q, k
    if positions is None and encoding.position_axes == 1 and scope.start is None:
        positions, key_positions = scope.at, scope.keys_at  # packed documents
    more = 0
    if positions is None and q.shape[2] != k.shape[2]:
        more, key_positions = k.shape[2] - q.shape[2], scope.keys_at
    turned: tuple[Tensor, Tensor] = encoding(
        q, k, positions, key_positions, offset=more, context_length=context_length
    )
    return turned


def _scale(encoding: Encoding, scale: float | None, q: Tensor) -> float:
    if scale is None:
        scale = encoding.softmax_scale(q.shape[3])
    return q.shape[3] ** -0.5 if scale is None else float(scale)


def _moving(encoding: Encoding) -> XPos | None:
    return next((part for part in _parts(encoding) if isinstance(part, XPos)), None)


def _parts(encoding: Encoding) -> list[Encoding]:
    return encoding.parts if isinstance(encoding, Composition) else [encoding]


def _fits(xpos: XPos, scope: Scope, q: Tensor) -> bool:
    """Whether one reference, position 0, serves the whole call."""
    if torch.compiler.is_compiling() or not scope.keys_at.numel() or not scope.at.numel():
        return True
    low = min(float(scope.at.min()), float(scope.keys_at.min()))
    high = max(float(scope.at.max()), float(scope.keys_at.max()))
    return max(abs(low), abs(high)) <= xpos.span(q.dtype)


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


def _segments(
    segments: Tensor, q: Tensor, k: Tensor, encoding: Encoding, cached: bool
) -> tuple[Tensor, Tensor]:
    T, S = q.shape[2], k.shape[2]
    shaped = isinstance(segments, Tensor) and segments.shape in ((S,), (k.shape[0], S))
    if not shaped or T > S or cached or not encoding.acts("content_score"):
        came = list(segments.shape) if isinstance(segments, Tensor) else type(segments).__name__
        raise ValueError(
            f"attention: segments must be integers [S] or [B, S], one for each of the {S} keys, for"
            f" an encoding with vectors for them and no cache; got {came} for {encoding!r}."
        )
    return segments[..., S - T :], segments


def _check_cached(*given: Tensor | None) -> None:
    if any(value is not None for value in given):
        raise ValueError(
            "attention: with a cache, documents, cu_seqlens and key_positions have no meaning: it"
            " knows its keys; leave them out."
        )


def _check(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, causal: bool, dropout: float, block: int
) -> None:
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"attention: encoding must be a whorl encoding, or None; got {encoding!r}."
            " whorl.make('rope', head_dim=64) makes one."
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_floating_point():
            came = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"attention: {name} must be a floating-point tensor [B, H, T, D]; got {came}."
            )
    if not q.shape[0] == k.shape[0] == v.shape[0] or k.shape[1:3] != v.shape[1:3]:
        raise ValueError(
            "attention: q, k and v must share their batch size, k and v heads and length; got"
            f" {list(q.shape)}, {list(k.shape)}, {list(v.shape)}."
        )
    if q.shape[3] != k.shape[3] or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(
            "attention: q and k must have the same head width, and the heads of k must divide those"
            f" of q; got {list(q.shape)} and {list(k.shape)}."
        )
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise ValueError(
            "attention: q, k and v must have one dtype and device; got"
            f" {q.dtype} on {q.device}, {k.dtype} on {k.device}, {v.dtype} on {v.device}."
        )
    if encoding.causal and not causal:
        raise ValueError(
            f"attention: {encoding!r} is for causal attention only, because a key after its query"
            " would be scored up; pass causal=True."
        )
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ValueError(f"attention: dropout must be a number in [0, 1); got {dropout!r}.")
    if type(block) is not int or block < 1:
        raise ValueError(f"attention: block must be a positive int; got {block!r}.")
    known = [getattr(part.config, "num_heads", None) for part in _parts(encoding)]
    heads = next((n for n in known if n is not None), None)
    if heads is not None and heads != q.shape[1]:
        raise ValueError(
            f"attention: {encoding!r} is for {heads} heads but q has {q.shape[1]}; build it with"
            f" num_heads={q.shape[1]}."
        )
