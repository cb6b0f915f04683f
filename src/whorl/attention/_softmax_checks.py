"""Checks of what users pass to ``attention``: what must hold, what came, what to do."""

from typing import TYPE_CHECKING

from torch import Tensor

from whorl.encodings import Composition, Encoding

if TYPE_CHECKING:
    from .cache import KVCache

__all__ = ["check", "check_cached", "check_segments", "parts_of"]


def check(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, causal: bool, dropout: float, block: int
) -> None:
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"attention: encoding must be a whorl encoding, or None; got {encoding!r}."
            " whorl.make('rope', head_dim=64) makes one."
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_floating_point():
            came = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"attention: {name} must be a floating-point tensor [B, H, T, D]; got {came}."
            )
    if not q.shape[0] == k.shape[0] == v.shape[0] or k.shape[1:3] != v.shape[1:3]:
        raise ValueError(
            "attention: q, k and v must share their batch size, k and v heads and length; got"
            f" {list(q.shape)}, {list(k.shape)}, {list(v.shape)}."
        )
    if q.shape[3] != k.shape[3] or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(
            "attention: q and k must have the same head width, and the heads of k must divide those"
            f" of q; got {list(q.shape)} and {list(k.shape)}."
        )
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise ValueError(
            "attention: q, k and v must have one dtype and device; got"
            f" {q.dtype} on {q.device}, {k.dtype} on {k.device}, {v.dtype} on {v.device}."
        )
    if encoding.causal and not causal:
        raise ValueError(
            f"attention: {encoding!r} is for causal attention only, because a key after its query"
            " would be scored up; pass causal=True."
        )
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise ValueError(f"attention: dropout must be a number in [0, 1); got {dropout!r}.")
    if type(block) is not int or block < 1:
        raise ValueError(f"attention: block must be a positive int; got {block!r}.")
    known = [getattr(part.config, "num_heads", None) for part in parts_of(encoding)]
    heads = next((n for n in known if n is not None), None)
    if heads is not None and heads != q.shape[1]:
        raise ValueError(
            f"attention: {encoding!r} is for {heads} heads but q has {q.shape[1]}; build it with"
            f" num_heads={q.shape[1]}."
        )


def check_cached(
    cache: "KVCache",
    encoding: Encoding,
    window: int | None,
    sinks: int,
    others: tuple[Tensor | None, ...],
) -> None:
    """Refuse what the cache itself knows better."""
    if any(value is not None for value in others):
        raise ValueError(
            "attention: with a cache, documents, cu_seqlens and key_positions have no meaning: it"
            " knows its keys; leave them out."
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
    T, S = q.shape[2], k.shape[2]
    shaped = isinstance(segments, Tensor) and segments.shape in ((S,), (k.shape[0], S))
    if not shaped or T > S or cached or not encoding.acts("content_score"):
        came = list(segments.shape) if isinstance(segments, Tensor) else type(segments).__name__
        raise ValueError(
            f"attention: segments must be integers [S] or [B, S], one for each of the {S} keys, for"
            f" an encoding with vectors for them and no cache; got {came} for {encoding!r}."
        )
    return segments[..., S - T :], segments


def parts_of(encoding: Encoding) -> list[Encoding]:
    return encoding.parts if isinstance(encoding, Composition) else [encoding]
