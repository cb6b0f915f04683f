"""Attention of one layer over its cache, with the mask that transformers hands to it.

``interface`` says what a mask may be.
"""

import math
from typing import TypeGuard

import torch
from torch import Tensor, nn

from whorl.attention import attention
from whorl.attention.softmax.visibility import Visibility
from whorl.encodings import Encoding, NoPE
from whorl.encodings.rotary.rotary import Rotary

from .caches.unrotated import PendingKeys
from .positions import (
    TokenPositions,
    are_known,
    choose_count,
    choose_positions,
    count_tokens,
    find_offset,
    holds_all,
    is_in_one_piece,
    leave_out_padding,
    read_visible,
)

__all__ = ["attend_tokens"]


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
    window: int | None = None,
    sink_logits: Tensor | None = None,
    softcap: float | None = None,
    segments: Tensor | None = None,
    positions: Tensor | None = None,
    layer_window: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention of q [B, H, T, D] over k, v [B, G, S, D]: [B, H, T, D], and the weights or None.

    Args:
        mask: as the mask function makes it, or numbers [B, H, T, S] to be added to the scores.
        offset: position of the first query, that of the first key being 0; by default S - T, or
            what the mask says, if it has a row for each query.
        weights: also return the attention weights, [B, H, T, S].
        skip_padding: positions count the tokens that are not padding, also between them.
        positions: of the new tokens, [B, T] or [1, T], as the model was told; they decide whether
            positions count padding between tokens, and are refused if attention cannot go by them.
        layer_window: beyond which the layer's cache may have dropped tokens; None for no limit.
        window, sink_logits, softcap, segments: as for ``whorl.attention``. With a cache of whorl's
            own the window of the layer, even if a whole mask contains it.
    """
    T, is_whole = q.shape[2], mask is not None and mask.dim() == 4
    S = T if isinstance(k, PendingKeys) else k.shape[2]
    all_held, skipped = holds_all(S - T, layer_window), None
    if not is_whole:
        skipped = choose_count(positions, mask, T, S, all_held=all_held)
    if isinstance(k, PendingKeys):
        if encoding is None:
            k.refuse()
        if weights:
            raise ValueError(
                "whorl.hf: output_attentions must be False with this cache, which has no matrix of"
                " weights; got True."
            )
        out = k.layer.attend(
            q.to(v.dtype),
            k.tokens.to(v.dtype),
            v,
            encoding,
            mask,
            window=window,
            scale=scale,
            dropout=dropout,
            sink_logits=sink_logits,
            softcap=softcap,
            positions=positions,
        )
        return out, None
    q, k = q.to(v.dtype), k.to(v.dtype)  # under autocast, rotated tokens are float32
    places = None
    if offset is None and is_whole and causal and encoding is not None:
        assert mask is not None
        offset = find_offset(mask)
    if is_whole and encoding is not None and are_known(positions):
        assert mask is not None
        first = S - T if offset is None else offset
        places = choose_positions(mask, positions, first, window=layer_window)
    elif offset is not None and (isinstance(offset, Tensor) or offset + T != S):
        keys = torch.arange(S, device=k.device)
        places = TokenPositions(keys[:T] + offset, keys)
        if skip_padding and is_whole:
            assert mask is not None
            places = leave_out_padding(mask, places)
    elif mask is not None and not is_whole and not is_in_one_piece(mask):
        skipped = count_tokens(mask) if skip_padding else skipped
        places = None if skipped is None else TokenPositions(skipped[:, S - T :], skipped)
    plain = window is None and sink_logits is None and softcap is None
    if T == 1 and places is None and plain and not (weights or dropout) and _is_bias(encoding):
        return _attend_last(q, k, v, encoding, mask, scale), None
    # A whole mask says what is causal; an encoding for causal attention only must hear it too.
    causal = causal and (not is_whole or (encoding is not None and encoding.causal))
    context = None if window is not None else _find_context(encoding, mask)
    if weights or (mask is not None and mask.is_floating_point()):
        if places is None:
            keys = torch.arange(S, device=k.device)
            places = TokenPositions(keys[S - T :], keys)
        places = places._replace(context=context)
        ids = {}
        if segments is not None:
            ids = {"segments": segments[:, S - T :], "key_segments": segments}
        scores = _compute_scores(q, k, encoding or NoPE(), places, scale, softcap, **ids)
        rule = Visibility(places.queries, places.keys, None, 0, causal, window)
        found = _compute_weights(scores, rule, mask, sink_logits)
        return _apply_weights(found, v, encoding or NoPE(), places, dropout), found
    if mask is not None and not is_whole:
        mask = mask.expand(q.shape[0], S)
    out = attention(
        q,
        k,
        v,
        encoding,
        causal=causal,
        window=window,
        mask=mask,
        positions=None if places is None else places.queries,
        key_positions=None if places is None else places.keys,
        scale=scale,
        dropout=dropout,
        sink_logits=sink_logits,
        softcap=softcap,
        segments=segments,
        context_length=context,
    )
    return out, None


def _find_context(encoding: Encoding | None, mask: Tensor | None) -> Tensor | None:
    """Tokens of each row that are not padding, [B], if frequencies depend on them; else None."""
    part = None if encoding is None else encoding.rotating_part
    scaling = part.config.scaling if isinstance(part, Rotary) else None
    if mask is None or scaling is None or not scaling.follows_length:
        return None
    if mask.dim() == 4:
        mask = read_visible(mask)[:, 0].any(-2)
    return mask.sum(-1).clamp(min=1)


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
        mask, hidden = mask if mask.dim() == 4 else mask[:, None, None], torch.finfo(q.dtype).min
        more = mask if mask.is_floating_point() else torch.where(mask, 0.0, hidden).to(q.dtype)
        added = more if added is None else added + more
    scale = encoding.softmax_scale(q.shape[3]) if scale is None else scale
    grouped = q.shape[1] != k.shape[1]
    if q.dtype == torch.float32 and not grouped:
        # For one query of 12 heads after 4096 tokens the fused kernel takes 1.17 of this time.
        scores = (q * (q.shape[3] ** -0.5 if scale is None else scale)) @ k.mT
        scores = scores if added is None else scores + added
        return scores.softmax(-1) @ v
    return nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=added, scale=scale, enable_gqa=grouped
    )


# Below, attention by one T x S matrix: for weights that are returned, and masks of numbers.


def _compute_scores(
    q: Tensor,
    k: Tensor,
    encoding: Encoding,
    places: TokenPositions,
    scale: float | None,
    softcap: float | None,
    **segments: Tensor,
) -> Tensor:
    """Scores [B, H, T, S] before the mask."""
    H, D = q.shape[1], q.shape[3]
    if encoding.acts("forward"):
        q, k = encoding(q, k, places.queries, places.keys, context_length=places.context)
    k = k.repeat_interleave(H // k.shape[1], 1)
    scores = q @ k.mT
    content = encoding.content_score(q, k, places.queries, places.keys, **segments)
    scores = scores if content is None else scores + content
    scale = encoding.softmax_scale(D) if scale is None else scale
    scores = scores * (D**-0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    bias = encoding.distance_bias(places.queries.unsqueeze(-1) - places.keys.unsqueeze(-2))
    if bias is None:
        return scores
    return scores + (bias.transpose(0, 1) if bias.dim() == 4 else bias)


def _compute_weights(
    scores: Tensor, rule: Visibility, mask: Tensor | None, sink_logits: Tensor | None
) -> Tensor:
    """Attention weights [B, H, T, S]; 0 in all of a row that sees no key."""
    distance = rule.query_positions.unsqueeze(-1) - rule.key_positions.unsqueeze(-2)
    visible = rule.compare_distance(distance)  # [(B,) T, S]
    visible = visible if visible.dim() == 2 else visible[:, None]
    scores = scores.masked_fill(~visible, -math.inf)
    if mask is not None:
        mask = mask if mask.dim() == 4 else mask[:, None, None]
        scores = scores + (mask if mask.is_floating_point() else torch.where(mask, 0.0, -math.inf))
    if sink_logits is not None:  # one more key, whose weights go to no value
        sink = sink_logits.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sink), -1)
    found = scores.softmax(-1, dtype=torch.float32).nan_to_num().to(scores.dtype)
    return found if sink_logits is None else found[..., :-1]


def _apply_weights(
    weights: Tensor, v: Tensor, encoding: Encoding, places: TokenPositions, dropout: float
) -> Tensor:
    """Values weighted, [B, H, T, D]."""
    weights = nn.functional.dropout(weights, dropout) if dropout else weights
    out = weights @ v.repeat_interleave(weights.shape[1] // v.shape[1], 1)
    term = encoding.value_term(weights, places.queries, places.keys)
    return out if term is None else out + term
