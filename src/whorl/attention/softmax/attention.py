"""Softmax attention with any encoding, without a T x S matrix.

    out_i = sum_j softmax_j(scale (q_i . k_j + content_ij) + bias_(i-j)) v_j    j: keys that i sees

On PyTorch's fused kernel, in the way that a call needs: ``_job`` has three.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl.attention.cache.checks import check_positions
from whorl.encodings import AxialRoPE, Encoding, NoPE, XPos

from .arguments import Asked, scope_of
from .checks import check, check_cached, check_scale, check_segments
from .compute import Job, full_precision, lowered
from .visibility import Scope

if TYPE_CHECKING:
    from whorl.attention.cache.kv_cache import KVCache

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
    """Softmax attention of q [B, H, T, D] over k [B, G, S, D], v [B, G, S, Dv]: [B, H, T, Dv].

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
            cu_seqlens [N + 1] for one row. Without positions an id that comes back is a new
            document; with them it is the same one.
        cache: holds earlier keys and values, with its own window and sinks; q, k, v are then the
            new tokens, and positions and mask are theirs. causal=True only.
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
    if encoding is None:
        encoding = getattr(cache, "encoding", None) or NoPE()
    check(q, k, v, encoding, causal, dropout, block)
    scale = softmax_scale(encoding, scale, q, "attention")
    rotated = cache is not None
    if cache is not None:
        unused: dict[str, object] = {"documents": documents, "cu_seqlens": cu_seqlens}
        unused |= {"key_positions": key_positions, "segments": segments}
        unused |= {"context_length": context_length}
        check_cached(cache, encoding, causal, (window, sinks), unused)
        check_positions(positions, encoding, "attention")
        step = cache.update(q, k, v, positions=positions, mask=mask)
        q, k, v, mask = step.q, step.k, step.v, step.valid
        positions, key_positions = step.positions, step.key_positions
        window, sinks = cache.window, cache.sinks
        if step.open:  # a single token that sees all that is held
            causal, window, sinks = False, None, 0
    q, k, v = lowered(q, k, v)
    asked = Asked(causal, window, sinks, positions, key_positions, mask, documents, cu_seqlens)
    axes = 1 if rotated else encoding.position_axes
    scored = bool(encoding.hooks - {"input", "rotation"})
    placed = asked.masked or scored or "rotation" in encoding.hooks
    scope = scope_of(q, k, asked, axes=axes, placed=placed, scored=scored)
    named = None if segments is None else check_segments(segments, q, k, encoding, rotated)
    job = Job(encoding, scope, scale=scale, block=block, dropout=dropout, segments=named)
    with full_precision(q):
        xpos = None if rotated else _far(encoding, scope, q)
        if not rotated and xpos is None:
            q, k = _turned(encoding, q, k, asked, scope, context_length)
        return job.run(q, k, v, xpos)


def _turned(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    asked: Asked,
    scope: Scope,
    context_length: int | Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Queries and keys through the encoding's rotation."""
    if "rotation" not in encoding.hooks:
        return q, k
    positions, key_positions = asked.positions, asked.key_positions
    counted = not any(isinstance(part, AxialRoPE) for part in encoding.parts)
    if positions is None and scope.start is None and counted:  # packed documents
        positions = _on_axes(scope.at, encoding.position_axes)
        same = q.shape[2] == k.shape[2]
        key_positions = None if same else _on_axes(scope.keys_at, encoding.position_axes)
    more = 0
    if positions is None and q.shape[2] != k.shape[2]:
        more, key_positions = k.shape[2] - q.shape[2], scope.keys_at
    turned: tuple[Tensor, Tensor] = encoding(
        q, k, positions, key_positions, offset=more, context_length=context_length
    )
    return turned


def _on_axes(at: Tensor, axes: int) -> Tensor:
    """[T] or [B, T] as a place on every axis."""
    return at if axes == 1 else at.expand(axes, *at.shape)


def softmax_scale(encoding: Encoding, scale: float | None, q: Tensor, where: str) -> float:
    """What scores are multiplied by: what the user said, the encoding, or 1 / sqrt(D)."""
    check_scale(scale, where)
    if scale is None:
        scale = encoding.softmax_scale(q.shape[3])
    return q.shape[3] ** -0.5 if scale is None else float(scale)


def _far(encoding: Encoding, scope: Scope, q: Tensor) -> XPos | None:
    """The encoding's XPos, where position 0 as the one reference does not serve the whole call."""
    xpos = next((part for part in encoding.parts if isinstance(part, XPos)), None)
    return None if xpos is None or _fits(xpos, scope, q) else xpos


def _fits(xpos: XPos, scope: Scope, q: Tensor) -> bool:
    T, S = scope.at.shape[-1], scope.keys_at.shape[-1]
    if not T or not S:
        return False  # nothing is to be rotated, wherever it is
    if scope.start is not None:
        first = scope.begun + scope.start
        low, high = min(first, scope.begun), max(first + T, scope.begun + S) - 1
    elif not (has_values(scope.at) and has_values(scope.keys_at)):
        return False  # they may be anywhere
    elif not scope.at.numel() or not scope.keys_at.numel():
        return True  # no rows
    else:
        ends = torch.stack([x.double() for each in _ends(scope) for x in each]).tolist()
        low, high = min(ends), max(ends)
    return bool(max(abs(low), abs(high)) <= xpos.span(q.dtype))


def _ends(scope: Scope) -> list[tuple[Tensor, Tensor]]:
    return [torch.aminmax(at) for at in (scope.at, scope.keys_at)]
