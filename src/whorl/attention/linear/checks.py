"""Checks of what is passed to linear attention: what must hold, what came, what to do."""

import math

from torch import Tensor

from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.attention._checks import check_heads, check_mask, check_positive, check_qkv
from whorl.encodings.base import Encoding

from .features import FEATURE_MAPS, FeatureMap
from .random_features import RandomFeatures

__all__ = ["check_arguments", "check_features", "find_parts", "read_mask"]


def check_arguments(q: Tensor, k: Tensor, v: Tensor, causal: bool, eps: float, chunk: int) -> None:
    """Refuse tensors that do not belong together, and options that have no meaning."""
    check_qkv(q, k, v, "linear_attention")
    T, S = q.shape[2], k.shape[2]
    if causal and T > S:
        raise ValueError(
            "linear_attention: q must not be longer than k under causal=True, because the queries"
            f" are the last of the keys' tokens; got {T} queries and {S} keys."
        )
    if not isinstance(eps, (int, float)) or not 0 <= eps < math.inf:
        raise ValueError(f"linear_attention: eps must be a finite number >= 0; got {quote(eps)}.")
    check_positive(chunk, "chunk", "linear_attention")


def check_features(feature_map: FeatureMap, rotation: Encoding | None, head_dim: int) -> None:
    """Refuse an unknown feature map, and random features that do not fit q or the rotation."""
    if not isinstance(feature_map, RandomFeatures):
        if feature_map not in FEATURE_MAPS:
            raise ValueError(
                "linear_attention: feature_map must be 'elu', 'relu', 'cosine' or RandomFeatures;"
                f" got {quote(feature_map)}."
            )
        return
    if feature_map.head_dim != head_dim:
        raise ValueError(
            f"linear_attention: feature_map must be for heads of {head_dim} channels, as q has; got"
            f" {quote(feature_map)}. Build it with head_dim={head_dim}."
        )
    if rotation is not None and rotation.acts("span"):
        raise ValueError(
            f"linear_attention: feature_map must be 'elu', 'relu' or 'cosine' with"
            f" {quote(rotation)}, whose keys are multiplied by powers of their distance after the"
            f" sum, which random features do not allow; got {quote(feature_map)}. Choose one of"
            " these, or RoPE."
        )


def find_parts(
    encoding: Encoding | None, causal: bool, heads: int
) -> tuple[Encoding | None, Encoding | None]:
    """The part that rotates, and the one whose bias is -m distance, as ALiBi's.

    Others that act in attention are refused.
    """
    rotation: Encoding | None = None
    decay: Encoding | None = None
    for part in [] if encoding is None else encoding.parts:
        if part.acts("decay_slopes"):
            _check_decay(part, decay, causal, heads)
            decay = part
        elif part.hooks & {"score", "value"}:
            raise ValueError(
                "linear_attention: encoding must not act on the scores of pairs of tokens, because"
                " linear attention only has sums over keys that all queries share; got"
                f" {quote(part)}. Use whorl.attention, or a rotation such as RoPE, or under"
                " causal=True ALiBi."
            )
        if part.causal and not causal:
            raise ValueError(
                f"linear_attention: causal must be True for {quote(part)}, because the score of a"
                " key after its query would grow with the distance; got False. Use RoPE without it."
            )
        if part.acts("forward"):
            rotation = part
    return rotation, decay


def _check_decay(part: Encoding, other: Encoding | None, causal: bool, heads: int) -> None:
    """Refuse a decay without a causal mask, beside another, or for other heads."""
    if not causal:
        raise ValueError(
            f"linear_attention: causal must be True for {quote(part)}, because exp(-m |i - j|) is a"
            " factor of the query times one of the key only where no key comes after its query; got"
            " False. Use whorl.attention, or RoPE."
        )
    if other is not None:
        raise ValueError(
            f"linear_attention: encoding must have at most one ALiBi; got {quote(other)} and"
            f" {quote(part)}. Their slopes add up: build one with slope_scale=."
        )
    check_heads(part, heads, "linear_attention")


def read_mask(mask: Tensor | None, k: Tensor) -> Tensor | None:
    """The mask [B, S], True for visible keys; None where it is known to hide nothing."""
    if mask is None:
        return None
    mask = check_mask(mask, k.device, "linear_attention")
    B, S = k.shape[0], k.shape[2]
    if mask.shape != (B, S):
        raise ValueError(
            f"linear_attention: mask must be [B, S], here {[B, S]}; got {list(mask.shape)}. There"
            " are no scores to mask pair by pair: for the causal mask pass causal=True, for any"
            " other use whorl.attention."
        )
    return None if has_values(mask) and bool(mask.all()) else mask
