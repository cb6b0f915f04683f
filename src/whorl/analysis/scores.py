"""The logits of attention with an encoding, through every hook."""

import copy

import torch
from torch import Tensor

from whorl.encodings import Encoding

__all__ = ["as_used", "embedded", "scores", "widened"]


def widened(encoding: Encoding, where: str) -> Encoding:
    """A copy in float64 that trains nothing."""
    if not isinstance(encoding, Encoding):
        raise TypeError(f"{where}: encoding must be a whorl.Encoding; got {encoding!r}.")
    return copy.deepcopy(encoding).double().requires_grad_(False)


def scores(encoding: Encoding, q: Tensor, k: Tensor, at: Tensor, keys_at: Tensor) -> Tensor:
    """Logits [B, H, T, S] of q [B, H, T, D] at positions [T] and k [B, G, S, D] at [S].

    Where positions have several axes, all of them count tokens.
    """
    axes, scale = encoding.position_axes, encoding.softmax_scale(q.shape[3])
    places = (at, keys_at) if axes == 1 else (at.expand(axes, -1), keys_at.expand(axes, -1))
    turned_q, turned_k = encoding(q, k, *places) if "rotation" in encoding.hooks else (q, k)
    raw = turned_q @ turned_k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT
    if (content := encoding.content_score(q, k, at, keys_at)) is not None:
        raw = raw + content
    raw = raw * (q.shape[3] ** -0.5 if scale is None else scale)
    if (by_query := encoding.query_scale(at)) is not None:
        raw = raw * by_query.to(raw.dtype).unsqueeze(-1)
    distance = at.unsqueeze(-1) - keys_at
    if (bias := encoding.distance_bias(distance)) is not None:
        raw = raw + bias.to(raw.dtype)
    return raw


def as_used(encoding: Encoding, q: Tensor) -> Tensor:
    """Random queries of variance 1 as large as the encoding is used with, so that scores compare.

    T5 does not divide scores by sqrt(D); its queries start smaller by as much instead.
    """
    D = q.shape[-1]
    return q * D**-0.5 if encoding.softmax_scale(D) == 1.0 else q


def embedded(encoding: Encoding, width: int, positions: Tensor) -> Tensor:
    """What the encoding adds to embeddings at positions [T]: [T, width]."""
    nothing = torch.zeros(1, positions.shape[0], width, dtype=torch.float64)
    return encoding.embed(nothing, positions)[0]
