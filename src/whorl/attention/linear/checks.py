"""Checks of what is passed to linear attention: what must hold, what came, what to do."""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.attention._checks import check_encoding, check_qkv
from whorl.encodings.base import Encoding

from .features import FEATURE_MAPS
from .positions import PositionArguments

if TYPE_CHECKING:
    from .attention import LinearState

__all__ = [
    "LinearParts",
    "check_decay_axes",
    "check_mask",
    "check_options",
    "check_same_encoding",
    "check_state",
    "check_tensors",
    "find_parts",
]


class LinearParts(NamedTuple):
    """The parts of an encoding that linear attention can use.

    decay: one whose bias is -m distance, as ALiBi's.
    """

    rotation: Encoding | None = None
    decay: Encoding | None = None


def find_parts(encoding: Encoding | None, causal: bool, heads: int) -> LinearParts:
    """The parts that linear attention uses; refuse others that act in attention."""
    check_encoding(encoding, "linear_attention")
    found = LinearParts()
    for part in [] if encoding is None else encoding.parts:
        if part.acts("decay_slopes"):
            _check_decay(part, found.decay, causal, heads)
            found = found._replace(decay=part)
        elif part.hooks & {"score", "value"}:
            raise ValueError(
                "linear_attention: encoding must not act on the scores of pairs of tokens, because"
                f" linear attention only has sums over keys that all queries share; got {part!r}."
                " Use whorl.attention, or a rotation such as RoPE, or under causal=True ALiBi."
            )
        if part.causal and not causal:
            raise ValueError(
                f"linear_attention: causal must be True for {part!r}, because the score of a key"
                " after its query would grow with the distance; got False. Use RoPE without it."
            )
        if part.acts("forward"):
            found = found._replace(rotation=part)
    return found


def _check_decay(part: Encoding, other: Encoding | None, causal: bool, heads: int) -> None:
    """Refuse a decay without a causal mask, beside another, or for other heads."""
    if not causal:
        raise ValueError(
            f"linear_attention: causal must be True for {part!r}, because exp(-m |i - j|) is a"
            " factor of the query times one of the key only where no key comes after its query; got"
            " False. Use whorl.attention, or RoPE."
        )
    if other is not None:
        raise ValueError(
            f"linear_attention: encoding must have at most one ALiBi; got {other!r} and {part!r}."
            " Their slopes add up: build one with slope_scale=."
        )
    slopes = part.decay_slopes()
    if slopes is not None and len(slopes) != heads:
        raise ValueError(
            f"linear_attention: q must have {len(slopes)} heads for {part!r}; got {heads}. Build"
            f" the encoding with num_heads={heads}."
        )


def check_decay_axes(arguments: PositionArguments) -> None:
    """Refuse a decay where positions differ between axes, so that there is no one distance."""
    for given in (arguments.positions, arguments.key_positions):
        if arguments.axes > 1 and isinstance(given, Tensor) and given.dim() > 1:
            raise ValueError(
                "linear_attention: positions must be [T] or [B, T] with ALiBi, which needs one"
                f" distance between two tokens; got {list(given.shape)} on {arguments.axes} axes."
                " Leave ALiBi out, or with MRoPE pass positions [T], as of text."
            )


def check_same_encoding(old: Encoding | None, encoding: Encoding | None) -> None:
    """Refuse to continue a state whose keys another encoding has rotated or decayed."""
    if old is encoding or torch.compiler.is_compiling():
        return
    before, now = (
        [] if each is None else [part for part in each.parts if part.hooks - {"input", "scale"}]
        for each in (old, encoding)
    )
    same = len(before) == len(now) and all(
        a is b or (type(a) is type(b) and a.to_dict() == b.to_dict())
        for a, b in zip(before, now, strict=True)
    )
    if not same:
        raise ValueError(
            f"linear_attention: encoding must be that of the state, {old!r}, because its sums hold"
            f" rotated keys; got {encoding!r}. Use one for the whole sequence."
        )


def check_tensors(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> None:
    """Refuse tensors that do not belong together."""
    check_qkv(q, k, v, "linear_attention")
    T, S = q.shape[2], k.shape[2]
    if causal and T > S:
        raise ValueError(
            "linear_attention: q must not be longer than k under causal=True, because the queries"
            f" are the last of the keys' tokens; got {T} queries and {S} keys."
        )


def check_options(feature_map: str, eps: float, chunk: int) -> None:
    """Refuse options that have no meaning."""
    if feature_map not in FEATURE_MAPS:
        raise ValueError(
            "linear_attention: feature_map must be 'elu', 'relu' or 'cosine'; got"
            f" {quote(feature_map)}."
        )
    if not isinstance(eps, (int, float)) or not 0 <= eps < math.inf:
        raise ValueError(f"linear_attention: eps must be a finite number >= 0; got {quote(eps)}.")
    if type(chunk) is not int or chunk < 1:
        raise ValueError(
            f"linear_attention: chunk must be an int >= 1, in tokens; got {quote(chunk)}."
        )
    if chunk > 1 << 62:
        raise ValueError(f"linear_attention: chunk must be at most 2^62; got {quote(chunk)}.")


def check_mask(mask: Tensor | None, k: Tensor) -> Tensor | None:
    """The visible keys, boolean [B, S]; None for all."""
    if mask is None:
        return None
    B, S = k.shape[0], k.shape[2]
    is_integer = isinstance(mask, Tensor) and not (mask.is_floating_point() or mask.is_complex())
    if not is_integer or mask.device != k.device:
        came = f"{mask.dtype} on {mask.device}" if isinstance(mask, Tensor) else repr(mask)
        raise TypeError(
            "linear_attention: mask must be a tensor, boolean or integers, 1 for keys to keep, on"
            f" {k.device}; got {came}. An additive mask of 0 and -inf becomes one by `mask == 0`."
        )
    if mask.shape != (B, S):
        raise ValueError(
            f"linear_attention: mask must be [B, S], here {[B, S]}; got {list(mask.shape)}. There"
            " are no scores to mask pair by pair: for the causal mask pass causal=True, for any"
            " other use whorl.attention."
        )
    check_storage(mask, "linear_attention", "mask")
    mask = mask.to(torch.bool)
    return None if has_values(mask) and bool(mask.all()) else mask


def check_state(
    state: "LinearState | None", wanted: bool, causal: bool, feature_map: str, like: Tensor
) -> None:
    """Refuse a state that these tokens cannot continue; like: a numerator as it must be."""
    if (state is not None or wanted) and not causal:
        raise ValueError(
            "linear_attention: causal must be True with a state, which holds earlier tokens; got"
            " False. Pass all keys in one call, without a state."
        )
    if state is None:
        return
    from .attention import LinearState  # here, because that file imports this one

    if not isinstance(state, LinearState):
        raise TypeError(
            "linear_attention: state must be a LinearState, from return_state=True; got"
            f" {type(state).__name__}."
        )
    if state.feature_map != feature_map:
        raise ValueError(
            f"linear_attention: feature_map must be that of the state, {state.feature_map!r}; got"
            f" {feature_map!r}. Use one for the whole sequence."
        )
    held = state.numerator
    for name in ("numerator", "denominator"):
        check_storage(getattr(state, name), "linear_attention", f"state.{name}")
    if held.dtype != like.dtype or held.device != like.device:
        raise TypeError(
            f"linear_attention: state must be {like.dtype} on {like.device} for these tokens; got"
            f" {held.dtype} on {held.device}. Start without a state."
        )
    if held.shape != like.shape:
        raise ValueError(
            "linear_attention: state must have the batch, heads and widths of the call, a numerator"
            f" {list(like.shape)}; got {list(held.shape)}. Start without a state, or use"
            " state.reorder for other rows."
        )
