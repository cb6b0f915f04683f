"""Softmax attention with any encoding, without a T x S matrix.

    out_i = sum_j softmax_j(scale (q_i . k_j + content_ij) + bias_(i-j)) v_j    j: visible keys

The way of a call: check its arguments, let a cache add earlier keys, describe which keys are
visible (``visibility``), rotate queries and keys, and compute with PyTorch's fused kernel in the
fastest of four ways (``compute``).
"""

from typing import TYPE_CHECKING

from torch import Tensor

from whorl.attention._checks import check_dropout, check_positive
from whorl.attention._precision import cast_to_autocast, disable_autocast
from whorl.attention.cache.checks import check_positions
from whorl.encodings import Encoding, NoPE

from .arguments import (
    VisibilityArguments,
    build_visibility,
    check_cached,
    check_inputs,
    check_query_weight,
    check_score_options,
    check_segments,
    get_softmax_scale,
    read_cache_step,
)
from .compute import SoftmaxCall, scale_queries
from .rotation import rotate_call

if TYPE_CHECKING:
    from whorl.attention.cache.kv_cache import KVCache

__all__ = ["BLOCK", "attention"]

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
    sink_logits: Tensor | None = None,
    softcap: float | None = None,
    query_weight: Tensor | None = None,
    block: int = BLOCK,
) -> Tensor:
    """Softmax attention of q [B, H, T, D] over k [B, G, S, D], v [B, G, S, Dv]: [B, H, T, Dv].

    Args:
        encoding: any encoding or composition; its input hook belongs to the embeddings and does
            nothing here.
        causal: a key is visible if its position is at most that of the query.
        window: keys are visible at distances below it, back from the query (both ways if not
            causal).
        sinks: the first positions, visible at any distance in spite of the window.
        positions, key_positions: as for the encoding. By default the keys are 0 .. S - 1 and the
            queries the last T of them; with documents, positions start again in each.
        mask: [B, S], 0 for padding and 1 for other keys; or [B, H, T, S], 1 for visible keys. Two
            axes are padding even if B = T: a mask [T, S] of all rows is ``mask[None, None]``.
        documents: ids [S] or [B, S] of packed documents, which do not see each other; or
            cu_seqlens [N + 1] for one row. Without positions an id that comes back is a new
            document; with them it is the same one.
        cache: holds earlier keys and values, with its own window and sinks; q, k, v are then the
            new tokens, and positions and mask are theirs. causal=True only.
        dropout: probability that a weight is dropped.
        scale: softmax scale instead of the encoding's, or of 1 / sqrt(D).
        context_length: for scalings that depend on the length.
        segments: ids [S] or [B, S] for encodings that have vectors for them (XLNet).
        sink_logits: [H], for each head the score of one more key, which every query sees and which
            has no value: exp(sink_logits) is added to the denominator of the softmax (gpt-oss).
        softcap: limits scores to c tanh(score / c), before bias and mask (Gemma 2).
        query_weight: [D], a factor for each channel of the queries after their rotation. The
            weights of norms after the rotation come here, those of queries times those of keys:
            ``MultiheadAttention(qk_norm="after")``.
        block: queries that are computed together where there is a bias or a mask; four times as
            many if the bias is by distance and no key is hidden.

    The result of a query that sees no key is 0.

    >>> import torch, whorl
    >>> q, k, v = (torch.randn(1, 8, 1000, 64) for _ in range(3))
    >>> whorl.attention(q, k, v, whorl.RoPE(64) + whorl.ALiBi(8), causal=True).shape
    torch.Size([1, 8, 1000, 64])
    """
    if encoding is None:
        encoding = getattr(cache, "encoding", None) or NoPE()
    check_inputs(q, k, v, encoding, causal, "attention")
    check_dropout(dropout, "attention")
    check_positive(block, "block", "attention")
    scale = get_softmax_scale(encoding, scale, q.shape[3], "attention")
    check_score_options(sink_logits, softcap, q)
    check_query_weight(query_weight, q, encoding)
    arguments = VisibilityArguments(
        causal, window, sinks, positions, key_positions, mask, documents, cu_seqlens
    )
    if cache is not None:
        check_cached(cache, encoding, arguments, segments, context_length)
        check_positions(positions, encoding, "attention")
        step = cache.update(q, k, v, positions=positions, mask=mask)
        q, k, v = step.q, step.k, step.v
        arguments = read_cache_step(step, cache.window, cache.sinks)
    q, k, v = cast_to_autocast(q, k, v)
    visibility = build_visibility(q, k, arguments, encoding, rotated=cache is not None)
    ids = None if segments is None else check_segments(segments, q, k, encoding, cache is not None)
    with disable_autocast(q):
        rotation = None
        if cache is None:
            q, k, rotation = rotate_call(encoding, q, k, arguments, visibility, context_length)
        q = scale_queries(q, encoding, visibility.query_positions)
        if query_weight is not None:
            q = (q * query_weight).to(q.dtype)
        call = SoftmaxCall(
            encoding,
            visibility,
            scale=scale,
            block=block,
            dropout=dropout,
            segments=ids,
            block_rotation=rotation,
            sink_logits=sink_logits,
            softcap=softcap,
        )
        return call.attend(q, k, v)
