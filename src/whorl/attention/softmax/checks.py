"""Checks of what users pass to ``attention``: what must hold, what came, what to do."""

import math
from typing import TYPE_CHECKING

from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.tracing import is_exporting
from whorl._support.words import quote
from whorl.attention._checks import check_encoding, check_qkv, has_key_axis
from whorl.encodings import Encoding
from whorl.encodings.composition import has_option

if TYPE_CHECKING:
    from whorl.attention.cache.kv_cache import KVCache

__all__ = ["check", "check_cached", "check_fits", "check_scale", "check_segments"]


def check(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, causal: bool, dropout: float, block: int
) -> None:
    check_encoding(encoding, "attention")
    check_qkv(q, k, v, "attention")
    check_fits(q, encoding, causal, "attention")
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ValueError(f"attention: dropout must be a number in [0, 1); got {quote(dropout)}.")
    if type(block) is not int or block < 1:
        raise ValueError(f"attention: block must be a positive int; got {quote(block)}.")


def check_fits(q: Tensor, encoding: Encoding, causal: bool, where: str) -> None:
    """Refuse an encoding that is for causal attention, or for other heads; and empty heads."""
    if not isinstance(causal, bool):
        raise TypeError(f"{where}: causal must be True or False; got {quote(causal)}.")
    if not q.shape[3]:
        raise ValueError(
            f"{where}: q and k must have channels, because scores are their products; got"
            f" {list(q.shape)}."
        )
    if encoding.causal and not causal:
        raise ValueError(
            f"{where}: {encoding!r} is for causal attention only, because a key after its query"
            " would be scored up; pass causal=True."
        )
    known = [getattr(part.config, "num_heads", None) for part in encoding.parts]
    heads = next((n for n in known if n is not None), None)
    if heads is not None and heads != q.shape[1]:
        raise ValueError(
            f"{where}: {encoding!r} is for {heads} heads but q has {q.shape[1]}; build it with"
            f" num_heads={q.shape[1]}."
        )


def check_scale(scale: float | None, where: str) -> None:
    if scale is None:
        return
    number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if not number or not -math.inf < scale < math.inf:
        raise ValueError(
            f"{where}: scale must be a finite number, or None for that of the encoding; got"
            f" {quote(scale)}."
        )


def check_cached(
    cache: "KVCache",
    encoding: Encoding,
    causal: bool,
    width: tuple[int | None, int],
    others: dict[str, object],
) -> None:
    """Refuse what the cache itself knows better; width: window and sinks; others: not to be given.

    Before it takes the new tokens in: a refusal must leave it as it was.
    """
    from whorl.attention.cache.kv_cache import (
        KVCache,
    )  # here, because a call without one does not need it

    if is_exporting():
        raise ValueError(
            "attention: cache cannot be exported, because it grows between calls and a program"
            " keeps nothing; export without cache=, with the keys of all tokens as inputs."
        )
    if not isinstance(cache, KVCache):
        raise TypeError(f"attention: cache must be a whorl.KVCache, or None; got {quote(cache)}.")
    if not causal:
        raise ValueError(
            "attention: with a cache pass causal=True, because tokens that were fed cannot see"
            " later ones; for attention both ways pass all tokens in one call, without a cache."
        )
    window, sinks = width
    if given := [name for name, value in others.items() if value is not None]:
        raise ValueError(
            f"attention: with a cache there is no {' or '.join(given)}, because it knows its keys"
            " and their length; leave it out."
        )
    if cache.encoding is not None and cache.encoding is not encoding:
        raise ValueError(
            f"attention: the cache was made for {cache.encoding!r}; got {encoding!r}. Pass the same"
            " encoding, or none."
        )
    if cache.encoding is None and encoding.acts("forward"):
        raise ValueError(
            f"attention: the cache does not rotate keys, but {encoding!r} does; make it with"
            " KVCache(encoding)."
        )
    if (window is not None and window != cache.window) or (sinks and sinks != cache.sinks):
        raise ValueError(
            f"attention: the cache has window {cache.window} and sinks {cache.sinks}; got {window}"
            f" and {sinks}. Leave them out."
        )


def check_segments(
    segments: Tensor, q: Tensor, k: Tensor, encoding: Encoding, cached: bool
) -> tuple[Tensor, Tensor]:
    """The ids of queries and of keys."""
    if not isinstance(segments, Tensor) or segments.is_floating_point() or segments.is_complex():
        came = segments.dtype if isinstance(segments, Tensor) else type(segments).__name__
        raise TypeError(f"attention: segments must be integers [S] or [B, S]; got {came}.")
    check_storage(segments, "attention", "segments")
    T, S = q.shape[2], k.shape[2]
    shaped = has_key_axis(segments, k)
    asking = [part for part in encoding.parts if part.acts("content_score")]
    known = asking and all(has_option(part, "content_score", "segments") for part in asking)
    if not shaped or T > S or cached or not known:
        raise ValueError(
            f"attention: segments must be integers [S] or [B, S], one for each of the {S} keys, for"
            " an encoding with vectors for them and no cache; got"
            f" {list(segments.shape)} for {encoding!r}."
        )
    return segments[..., S - T :], segments
