"""Checks of what is passed to ``attention``: what must hold, what came, what to do."""

import math
from typing import TYPE_CHECKING

from torch import Tensor

from whorl._support.tracing import is_exporting
from whorl._support.words import quote
from whorl.attention._checks import (
    check_dropout,
    check_encoding,
    check_integers,
    check_qkv,
    has_key_axis,
)
from whorl.encodings import Encoding
from whorl.encodings.composition import has_option

if TYPE_CHECKING:
    from whorl.attention.cache.kv_cache import KVCache

    from .arguments import VisibilityArguments

__all__ = ["check_cached", "check_inputs", "check_options", "check_segments", "get_softmax_scale"]


def check_inputs(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, causal: bool, where: str
) -> None:
    """Refuse tensors that do not belong together, and an encoding that is not for them."""
    check_encoding(encoding, where)
    check_qkv(q, k, v, where)
    if not isinstance(causal, bool):
        raise TypeError(f"{where}: causal must be True or False; got {quote(causal)}.")
    if not q.shape[3]:
        raise ValueError(
            f"{where}: q and k must have channels, because scores are their products; got"
            f" {list(q.shape)}."
        )
    if encoding.causal and not causal:
        raise ValueError(
            f"{where}: causal must be True for {encoding!r}, because the score of a key after its"
            " query would grow with the distance; got False."
        )
    for part in encoding.parts:
        heads = getattr(part.config, "num_heads", None)
        if heads is not None and heads != q.shape[1]:
            raise ValueError(
                f"{where}: q must have {heads} heads for {encoding!r}; got {q.shape[1]}. Build the"
                f" encoding with num_heads={q.shape[1]}."
            )


def check_options(dropout: float, block: int) -> None:
    """Refuse a dropout that is no probability, and blocks without queries."""
    check_dropout(dropout, "attention")
    if type(block) is not int or block < 1:
        raise ValueError(f"attention: block must be a positive int; got {quote(block)}.")


def get_softmax_scale(encoding: Encoding, scale: float | None, head_dim: int, where: str) -> float:
    """What scores are multiplied by: the caller's number, the encoding's, or 1 / sqrt(D)."""
    if scale is None:
        scale = encoding.softmax_scale(head_dim)
        return head_dim**-0.5 if scale is None else float(scale)
    number = isinstance(scale, int | float) and not isinstance(scale, bool)
    if not number or not -math.inf < scale < math.inf:
        raise ValueError(
            f"{where}: scale must be a finite number, or None for that of the encoding; got"
            f" {quote(scale)}."
        )
    return float(scale)


def check_cached(
    cache: "KVCache",
    encoding: Encoding,
    arguments: "VisibilityArguments",
    segments: Tensor | None,
    context_length: int | Tensor | None,
) -> None:
    """Refuse arguments that contradict a cache, before it takes the new tokens in.

    A refusal leaves the cache as it was.
    """
    # Imported here, because a call without a cache does not need it.
    from whorl.attention.cache.kv_cache import KVCache

    if is_exporting():
        raise ValueError(
            "attention: cache must be None in an exported program, because it grows between calls"
            " and a program keeps nothing; got a KVCache. Export with the keys of all tokens as"
            " inputs."
        )
    if not isinstance(cache, KVCache):
        raise TypeError(f"attention: cache must be a whorl.KVCache, or None; got {quote(cache)}.")
    if not arguments.causal:
        raise ValueError(
            "attention: causal must be True with a cache, because earlier tokens cannot see later"
            " ones; got False. For attention both ways pass all tokens in one call, without a"
            " cache."
        )
    others: dict[str, object] = {"documents": arguments.documents}
    others |= {"cu_seqlens": arguments.cu_seqlens, "key_positions": arguments.key_positions}
    others |= {"segments": segments, "context_length": context_length}
    if given := [name for name, value in others.items() if value is not None]:
        raise ValueError(
            f"attention: {' and '.join(given)} must be None with a cache, which knows its keys and"
            " their length; got a value. Leave it out."
        )
    _check_match(cache, encoding, arguments)


def _check_match(cache: "KVCache", encoding: Encoding, arguments: "VisibilityArguments") -> None:
    """Refuse an encoding, a window or sinks that differ from those of the cache."""
    if cache.encoding is not None and cache.encoding is not encoding:
        raise ValueError(
            f"attention: encoding must be that of the cache, {cache.encoding!r}; got {encoding!r}."
            " Pass the same one, or none."
        )
    if cache.encoding is None and encoding.acts("forward"):
        raise ValueError(
            f"attention: cache must be built with the encoding, because {encoding!r} rotates keys;"
            " got a KVCache without one. Build it with KVCache(encoding)."
        )
    window, sinks = arguments.window, arguments.sinks
    if (window is not None and window != cache.window) or (sinks and sinks != cache.sinks):
        raise ValueError(
            f"attention: window and sinks must be those of the cache, {cache.window} and"
            f" {cache.sinks}; got {window} and {sinks}. Leave them out."
        )


def check_segments(
    segments: Tensor, q: Tensor, k: Tensor, encoding: Encoding, cached: bool
) -> tuple[Tensor, Tensor]:
    """The segment ids of queries and of keys."""
    check_integers(segments, "attention", "segments", "integers [S] or [B, S]")
    T, S = q.shape[2], k.shape[2]
    scoring = [part for part in encoding.parts if part.acts("content_score")]
    supported = scoring and all(has_option(part, "content_score", "segments") for part in scoring)
    if not has_key_axis(segments, k) or T > S or cached or not supported:
        raise ValueError(
            f"attention: segments must be integers [S] or [B, S], one for each of the {S} keys, for"
            " an encoding with vectors for them and no cache; got"
            f" {list(segments.shape)} for {encoding!r}."
        )
    return segments[..., S - T :], segments
