"""Checks of what users pass to linear attention: what must hold, what came, what to do."""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.attention._checks import check_encoding, check_qkv
from whorl.encodings.alibi import ALiBi
from whorl.encodings.base import Encoding

from .features import FEATURE_MAPS
from .positions import Asked

if TYPE_CHECKING:
    from .attention import LinearState

__all__ = [
    "Acting",
    "acting_parts",
    "check_decay_axes",
    "check_mask",
    "check_options",
    "check_same",
    "check_state",
    "check_tensors",
]


class Acting(NamedTuple):
    """The parts of an encoding that linear attention can use."""

    rotation: Encoding | None = None
    decay: ALiBi | None = None


def acting_parts(encoding: Encoding | None, causal: bool, heads: int) -> Acting:
    """What acts here; refuse what cannot be written as sums over keys."""
    check_encoding(encoding, "linear_attention")
    if encoding is None:
        return Acting()
    acting = Acting()
    for one in encoding.parts:
        if isinstance(one, ALiBi):
            acting = acting._replace(decay=_checked_decay(one, acting.decay, causal, heads))
        elif one.hooks & {"score", "value"}:
            raise ValueError(
                f"linear_attention: {one!r} cannot be used, because it acts on the scores of all"
                " pairs of tokens inside a softmax, and linear attention only ever has sums over"
                " keys that all queries share; use whorl.attention, or a rotation such as RoPE,"
                " or under causal=True ALiBi."
            )
        if one.causal and not causal:
            raise ValueError(
                f"linear_attention: {one!r} is for causal attention only, because a key after its"
                " query would be scored up without bound; pass causal=True, or use RoPE."
            )
        if one.acts("forward"):
            acting = acting._replace(rotation=one)
    return acting


def _checked_decay(alibi: ALiBi, other: ALiBi | None, causal: bool, heads: int) -> ALiBi:
    if not causal:
        raise ValueError(
            f"linear_attention: {alibi!r} needs causal=True, because exp(-m |i - j|) is a factor of"
            " the query times one of the key only where no key comes after its query; use"
            " whorl.attention, or RoPE."
        )
    if other is not None:
        raise ValueError(
            f"linear_attention: one ALiBi at a time; got {other!r} and {alibi!r}. Their slopes add"
            " up: build one with slope_scale=."
        )
    if alibi.config.num_heads != heads:
        raise ValueError(
            f"linear_attention: {alibi!r} has {alibi.config.num_heads} heads but q has {heads};"
            f" build it with num_heads={heads}."
        )
    return alibi


def check_decay_axes(asked: Asked) -> None:
    """Refuse ALiBi beside a rotation by several axes, where tokens differ on them."""
    for given in (asked.positions, asked.key_positions):
        if asked.axes > 1 and isinstance(given, Tensor) and given.dim() > 1:
            raise ValueError(
                "linear_attention: ALiBi needs one distance between two tokens, but positions have"
                f" {asked.axes} axes; leave ALiBi out. With MRoPE you can pass positions [T], as of"
                " text, instead."
            )


def check_same(made: Encoding | None, encoding: Encoding | None) -> None:
    """Refuse to go on from keys that another encoding has turned or weighed."""
    if made is encoding or torch.compiler.is_compiling():
        return
    before, now = (
        [] if each is None else [part for part in each.parts if part.hooks - {"input", "scale"}]
        for each in (made, encoding)
    )
    alike = len(before) == len(now) and all(
        old is new or (type(old) is type(new) and old.to_dict() == new.to_dict())
        for old, new in zip(before, now, strict=True)
    )
    if not alike:
        raise ValueError(
            f"linear_attention: the state was made with {made!r} but the call has {encoding!r}; use"
            " one for the whole sequence, because sums hold keys as they were turned."
        )


def check_tensors(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> None:
    """Refuse tensors that do not belong together."""
    check_qkv(q, k, v, "linear_attention")
    T, S = q.shape[2], k.shape[2]
    if causal and T > S:
        raise ValueError(
            "linear_attention: under causal=True the queries are the last of the keys' tokens, so"
            f" there cannot be more of them; got {T} queries and {S} keys."
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
    """Which keys are seen, boolean [B, S]; None for all."""
    if mask is None:
        return None
    B, S = k.shape[0], k.shape[2]
    whole = isinstance(mask, Tensor) and not (mask.is_floating_point() or mask.is_complex())
    if not whole or mask.device != k.device:
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
    """Refuse a state that these tokens cannot follow; like: a numerator as it has to be."""
    if (state is not None or wanted) and not causal:
        raise ValueError(
            "linear_attention: a state holds what came before, so it needs causal=True; without it"
            " pass all keys in one call."
        )
    if state is None:
        return
    from .attention import LinearState  # which needs this file

    if not isinstance(state, LinearState):
        raise TypeError(
            "linear_attention: state must be a LinearState, from return_state=True; got"
            f" {type(state).__name__}."
        )
    if state.feature_map != feature_map:
        raise ValueError(
            f"linear_attention: the state was made with feature_map={state.feature_map!r} but the"
            f" call has {feature_map!r}; use one for the whole sequence."
        )
    held = state.numerator
    for name in ("numerator", "denominator"):
        check_storage(getattr(state, name), "linear_attention", f"state.{name}")
    if held.dtype != like.dtype or held.device != like.device:
        raise TypeError(
            f"linear_attention: the state is {held.dtype} on {held.device}, but these tokens need"
            f" {like.dtype} on {like.device}; start without a state."
        )
    if held.shape != like.shape:
        raise ValueError(
            "linear_attention: the state must have the batch, heads and widths of the call: its"
            f" numerator is {list(held.shape)}, but {list(like.shape)} is needed. Start without a"
            " state, or use state.reorder for other rows."
        )
