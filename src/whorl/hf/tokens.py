"""Attention of one layer over its cache, with the mask that transformers hands to it.

``interface`` says what a mask may be.
"""

import math
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from whorl._support.tensors import has_values
from whorl.attention import attention
from whorl.encodings import Encoding, NoPE

__all__ = ["attend_tokens"]


class _Places(NamedTuple):
    """Positions of queries [T] or [B, T] and of keys [S] or [B, S]."""

    queries: Tensor
    keys: Tensor


def attend_tokens(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None,
    mask: Tensor | None,
    *,
    causal: bool,
    offset: int | Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    weights: bool = False,
    skip_padding: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of q [B, H, T, D] over k, v [B, G, S, D]: [B, H, T, D], and the weights or None.

    Args:
        mask: as the mask function makes it, or numbers to be added to the scores.
        offset: position of the first query, that of the first key being 0; S - T by default.
        weights: also return the attention weights, [B, H, T, S].
        skip_padding: positions count the tokens that are not padding, also between them.
    """
    T, S = q.shape[2], k.shape[2]
    q, k = q.to(v.dtype), k.to(v.dtype)  # under autocast, rotated tokens are float32
    places = None
    # A mask with a row for each query, or over a cache with room for more, says everything.
    is_whole = mask is not None and (mask.is_floating_point() or mask.shape[2] != 1)
    if offset is not None and (isinstance(offset, Tensor) or offset + T != S):
        keys = torch.arange(S, device=k.device)
        places, is_whole = _Places(keys[:T] + offset, keys), mask is not None
    elif skip_padding and mask is not None and not is_whole and not _is_in_one_piece(mask):
        keys = (mask[:, 0, 0].long().cumsum(-1) - 1).clamp(min=0)
        places = _Places(keys[:, S - T :], keys)
    if T == 1 and places is None and not (weights or dropout) and _is_bias(encoding):
        return _attend_last(q, k, v, encoding, mask, scale), None
    causal = causal and not is_whole
    if weights or (mask is not None and mask.is_floating_point()):
        if places is None:
            keys = torch.arange(S, device=k.device)
            places = _Places(keys[S - T :], keys)
        scores = _compute_scores(q, k, encoding or NoPE(), places, scale)
        found = _compute_weights(scores, places, mask, causal)
        return _mix_values(found, v, encoding or NoPE(), places, dropout), found
    if mask is not None and not is_whole:
        mask = mask[:, 0, 0].expand(q.shape[0], S)
    out = attention(
        q,
        k,
        v,
        encoding,
        causal=causal,
        mask=mask,
        positions=None if places is None else places.queries,
        key_positions=None if places is None else places.keys,
        scale=scale,
        dropout=dropout,
    )
    return out, None


def _is_bias(encoding: Encoding | None) -> TypeGuard[Encoding]:
    """Whether an encoding does nothing in attention but add a bias by distance."""
    return (
        encoding is not None
        and encoding.hooks <= {"score", "scale"}
        and not (encoding.acts("content_score") or encoding.acts("query_scale"))
    )


def _attend_last(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Attention of the last token alone, which sees all keys: a step of generation.

    Here the arguments are known to be right, so that a step need not pay for looking at them.
    """
    S = k.shape[2]
    bias = encoding.distance_bias(torch.arange(S - 1, -1, -1, device=k.device))  # [H, S]
    added = None if bias is None else bias.to(q.dtype)[None, :, None]
    if mask is not None:
        hidden = torch.finfo(q.dtype).min
        more = mask if mask.is_floating_point() else torch.where(mask, 0.0, hidden).to(q.dtype)
        added = more if added is None else added + more
    scale = encoding.softmax_scale(q.shape[3]) if scale is None else scale
    grouped = q.shape[1] != k.shape[1]
    return nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=added, scale=scale, enable_gqa=grouped
    )


def _is_in_one_piece(mask: Tensor) -> bool:
    """Whether the visible keys of each row of [B, 1, 1, S] are known to be consecutive."""
    if not has_values(mask):
        return False
    visible = mask[:, 0, 0]
    begins = visible[:, 1:] & ~visible[:, :-1]
    return bool((begins.sum(-1) + visible[:, 0] <= 1).all())


# Below, attention by one T x S matrix: for weights that are returned, and masks of numbers.


def _compute_scores(
    q: Tensor, k: Tensor, encoding: Encoding, places: _Places, scale: float | None
) -> Tensor:
    """Scores [B, H, T, S] before the mask."""
    H, D = q.shape[1], q.shape[3]
    if encoding.acts("forward"):
        q, k = encoding(q, k, places.queries, places.keys)
    k = k.repeat_interleave(H // k.shape[1], 1)
    scores = q @ k.mT
    content = encoding.content_score(q, k, places.queries, places.keys)
    scores = scores if content is None else scores + content
    scale = encoding.softmax_scale(D) if scale is None else scale
    scores = scores * (D**-0.5 if scale is None else scale)
    bias = encoding.distance_bias(places.queries.unsqueeze(-1) - places.keys.unsqueeze(-2))
    if bias is None:
        return scores
    return scores + (bias.transpose(0, 1) if bias.dim() == 4 else bias)


def _compute_weights(scores: Tensor, places: _Places, mask: Tensor | None, causal: bool) -> Tensor:
    """Attention weights [B, H, T, S]; 0 in all of a row that sees no key."""
    if causal:
        hidden = places.queries.unsqueeze(-1) < places.keys.unsqueeze(-2)  # [(B,) T, S]
        scores = scores.masked_fill(hidden if hidden.dim() == 2 else hidden[:, None], -math.inf)
    if mask is not None:
        scores = scores + (mask if mask.is_floating_point() else torch.where(mask, 0.0, -math.inf))
    return scores.softmax(-1, dtype=torch.float32).nan_to_num().to(scores.dtype)


def _mix_values(
    weights: Tensor, v: Tensor, encoding: Encoding, places: _Places, dropout: float
) -> Tensor:
    """Values weighted, [B, H, T, D]."""
    weights = nn.functional.dropout(weights, dropout) if dropout else weights
    out = weights @ v.repeat_interleave(weights.shape[1] // v.shape[1], 1)
    term = encoding.value_term(weights, places.queries, places.keys)
    return out if term is None else out + term
