"""Attention scores with an encoding, computed with every hook."""

import copy

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding

from .record import sample_normal

__all__ = [
    "compute_embedding",
    "compute_scores",
    "copy_in_float64",
    "map_to_heads",
    "multiply_heads",
    "repeat_on_axes",
    "scale_queries",
]


def copy_in_float64(encoding: Encoding, where: str) -> Encoding:
    """A copy of the encoding in float64, without gradients."""
    if not isinstance(encoding, Encoding):
        raise TypeError(f"{where}: encoding must be a whorl.Encoding; got {quote(encoding)}.")
    return copy.deepcopy(encoding).double().requires_grad_(False)


def repeat_on_axes(encoding: Encoding, at: Tensor) -> Tensor:
    """Positions [T] as the encoding takes them: the same on each axis, if there are several."""
    return at if encoding.position_axes == 1 else at.expand(encoding.position_axes, -1)


def compute_scores(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    at: Tensor,
    keys_at: Tensor,
    query_weight: Tensor | None = None,
) -> Tensor:
    """Logits [B, H, T, S] of q [B, H, T, D] at positions [T] and k [B, G, S, D] at [S].

    An encoding with several axes gets the same positions on each. query_weight: factors [D] of
    the channels of rotated queries.
    """
    scale = encoding.softmax_scale(q.shape[3])
    places = (repeat_on_axes(encoding, x) for x in (at, keys_at))
    rotated = encoding(q, k, *places) if "rotation" in encoding.hooks else (q, k)
    raw = multiply_heads(
        rotated[0] if query_weight is None else rotated[0] * query_weight, rotated[1]
    )
    if (content := encoding.content_score(q, k, at, keys_at)) is not None:
        raw = raw + content
    raw = raw * (q.shape[3] ** -0.5 if scale is None else scale)
    if (by_query := encoding.query_scale(at)) is not None:
        raw = raw * by_query.to(raw.dtype).unsqueeze(-1)
    distance = at.unsqueeze(-1) - keys_at
    if (bias := encoding.distance_bias(distance)) is not None:
        raw = raw + bias.to(raw.dtype)
    return raw


def scale_queries(encoding: Encoding, q: Tensor) -> Tensor:
    """Random queries of variance 1, scaled so that scores of all encodings are comparable.

    T5 does not divide scores by sqrt(D); its queries start smaller by that factor instead.
    """
    D = q.shape[-1]
    return q * D**-0.5 if encoding.softmax_scale(D) == 1.0 else q


def compute_embedding(encoding: Encoding, width: int, positions: Tensor) -> Tensor:
    """The vectors that the encoding adds to embeddings at positions [T]: [T, width]."""
    nothing = torch.zeros(1, positions.shape[0], width, dtype=torch.float64)
    return encoding.embed(nothing, positions)[0]


def map_to_heads(x: Tensor, source: torch.Generator, num_heads: int, head_dim: int) -> Tensor:
    """Queries or keys [B, H, T, D] from embeddings [B, T, E] by a random projection."""
    projected = x @ sample_normal(source, x.shape[-1], num_heads * head_dim)
    return torch.unflatten(projected, -1, (num_heads, head_dim)).transpose(1, 2)


def multiply_heads(q: Tensor, k: Tensor) -> Tensor:
    """The product q k^T, [B, H, T, S], for q [B, H, T, D] and k [B, G, S, D] with G <= H."""
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT
