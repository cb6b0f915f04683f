"""Softmax attention with any encoding, without a T x S matrix.

    out_i = sum_j softmax_j(scale (q_i . k_j + content_ij) + bias_(i-j)) v_j    j: keys that i sees

On PyTorch's fused kernel, in the way that a call needs: ``_job`` has three.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whorl.encodings import Encoding, NoPE, XPos

from ._job import Job
from ._scope import Scope, scope_of
from ._softmax_checks import check, check_cached, check_segments, parts_of

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
        cache: holds earlier keys and values, with its own window and sinks; q, k, v are then the
            new tokens, and positions and mask are theirs.
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
    if encoding is None and cache is not None:
        encoding = cache.encoding
    encoding = NoPE() if encoding is None else encoding
    check(q, k, v, encoding, causal, dropout, block)
    rotated = cache is not None
    if cache is not None:
        check_cached(cache, encoding, window, sinks, (documents, cu_seqlens, key_positions))
        step = cache.update(q, k, v, positions=positions, mask=mask)
        q, k, v, mask = step.q, step.k, step.v, step.valid
        positions, key_positions = step.positions, step.key_positions
        window, sinks = cache.window, cache.sinks
        if step.open:  # a single token that sees all that is held
            causal, window, sinks = False, None, 0
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
    job = Job(encoding, scope, _scale(encoding, scale, q), dropout, block)
    if segments is not None:
        job.segments = check_segments(segments, q, k, encoding, rotated)
    if not rotated:
        if (xpos := _moving(encoding)) is not None and not _fits(xpos, scope, q):
            return job.blocks(q, k, v, xpos)
        q, k = _turned(encoding, q, k, positions, key_positions, scope, context_length)
    return job.run(q, k, v)


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
    return next((part for part in parts_of(encoding) if isinstance(part, XPos)), None)


def _fits(xpos: XPos, scope: Scope, q: Tensor) -> bool:
    """Whether one reference, position 0, serves the whole call."""
    if torch.compiler.is_compiling() or not scope.keys_at.numel() or not scope.at.numel():
        return True
    low = min(float(scope.at.min()), float(scope.keys_at.min()))
    high = max(float(scope.at.max()), float(scope.keys_at.max()))
    return max(abs(low), abs(high)) <= xpos.span(q.dtype)
