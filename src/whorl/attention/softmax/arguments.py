"""The arguments of attention: checks, and what they say about which keys are visible."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.tensors import has_values
from whorl._support.tracing import is_exporting
from whorl._support.words import quote
from whorl.attention._checks import (
    check_encoding,
    check_heads,
    check_integers,
    check_mask,
    check_qkv,
    has_key_axis,
)
from whorl.encodings import Encoding
from whorl.encodings.composition import has_option
from whorl.positions import from_documents, resolve
from whorl.positions.sequences import find_starts

from .visibility import Visibility

if TYPE_CHECKING:
    from whorl.attention.cache.kv_cache import CacheStep, KVCache

__all__ = [
    "VisibilityArguments",
    "build_visibility",
    "check_cached",
    "check_inputs",
    "check_query_weight",
    "check_score_options",
    "check_segments",
    "get_softmax_scale",
    "read_cache_step",
]


@dataclass(frozen=True)
class VisibilityArguments:
    """The arguments of ``attention`` that decide which keys a query sees, not checked yet."""

    causal: bool = False
    window: int | None = None
    sinks: int = 0
    positions: Tensor | None = None
    key_positions: Tensor | None = None
    mask: Tensor | None = None
    documents: Tensor | None = None
    cu_seqlens: Tensor | None = None

    @property
    def is_masked(self) -> bool:
        """Whether it matters to a mask where tokens are."""
        return self.causal or self.window is not None


def read_cache_step(step: "CacheStep", window: int | None, sinks: int) -> VisibilityArguments:
    """The arguments that a cache gives in place of the caller's."""
    if step.open:  # one token that sees all keys: no mask by distance is needed
        return VisibilityArguments(
            positions=step.positions, key_positions=step.key_positions, mask=step.valid
        )
    return VisibilityArguments(True, window, sinks, step.positions, step.key_positions, step.valid)


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
            f"{where}: causal must be True for {quote(encoding)}, because the score of a key after"
            " its query would grow with the distance; got False."
        )
    check_heads(encoding, q.shape[1], where)


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


def check_score_options(sink_logits: Tensor | None, softcap: float | None, q: Tensor) -> None:
    """Refuse sink logits and a softcap that scores cannot have."""
    if sink_logits is not None:
        right = isinstance(sink_logits, Tensor) and sink_logits.is_floating_point()
        if not right or sink_logits.shape != q.shape[1:2] or sink_logits.device != q.device:
            came = quote(sink_logits)
            if isinstance(sink_logits, Tensor):
                came = f"{list(sink_logits.shape)} of {sink_logits.dtype} on {sink_logits.device}"
            raise ValueError(
                f"attention: sink_logits must be one number for each of the {q.shape[1]} heads, a"
                f" tensor [H] of floating point on {q.device}, or None; got {came}."
            )
        check_storage(sink_logits, "attention", "sink_logits")
    number = isinstance(softcap, int | float) and not isinstance(softcap, bool)
    if softcap is not None and not (number and 0 < softcap < math.inf):
        raise ValueError(
            "attention: softcap must be a positive number, which no score exceeds, or None; got"
            f" {quote(softcap)}."
        )


def check_query_weight(weight: Tensor | None, q: Tensor, encoding: Encoding) -> None:
    """Refuse factors of query channels in the wrong shape, or for a rotation block by block."""
    if weight is None:
        return
    right = isinstance(weight, Tensor) and weight.is_floating_point()
    if not right or weight.shape != q.shape[3:] or weight.device != q.device:
        came = quote(weight)
        if isinstance(weight, Tensor):
            came = f"{list(weight.shape)} of {weight.dtype} on {weight.device}"
        raise ValueError(
            f"attention: query_weight must be one number for each of the {q.shape[3]} channels, a"
            f" tensor [D] of floating point on {q.device}, or None; got {came}."
        )
    check_storage(weight, "attention", "query_weight")
    rotation = encoding.rotating_part
    if rotation is not None and rotation.acts("span"):
        raise ValueError(
            f"attention: query_weight must be None with {quote(rotation)}, whose rotation may"
            " happen block by block later; multiply q by it before the call."
        )


def check_cached(
    cache: "KVCache",
    encoding: Encoding,
    arguments: VisibilityArguments,
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


def _check_match(cache: "KVCache", encoding: Encoding, arguments: VisibilityArguments) -> None:
    """Refuse an encoding, a window or sinks that differ from those of the cache."""
    if cache.encoding is not None and cache.encoding is not encoding:
        raise ValueError(
            f"attention: encoding must be that of the cache, {quote(cache.encoding)}; got"
            f" {quote(encoding)}. Pass the same one, or none."
        )
    if cache.encoding is None and encoding.acts("forward"):
        raise ValueError(
            f"attention: cache must be built with the encoding, because {quote(encoding)} rotates"
            " keys; got a KVCache without one. Build it with KVCache(encoding)."
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
            f" {list(segments.shape)} for {quote(encoding)}."
        )
    return segments[..., S - T :], segments


def build_visibility(
    q: Tensor, k: Tensor, arguments: VisibilityArguments, encoding: Encoding, *, rotated: bool
) -> Visibility:
    """Check the arguments, and find positions of queries and keys and which keys are visible.

    rotated: q and k are rotated already, so that positions have one axis whatever the encoding.
    """
    _check_window(arguments.window, arguments.sinks)
    T, S, positions = q.shape[2], k.shape[2], arguments.positions
    ids = None
    if arguments.documents is not None or arguments.cu_seqlens is not None:
        ids = _get_document_ids(arguments, q, k)
    # Tokens count by their order where they have no position, or several on different axes.
    ordered = positions is None or _has_axes(arguments, 1 if rotated else encoding.position_axes)
    if arguments.window is not None and ordered and has_values(q) and T <= S <= arguments.window:
        arguments = replace(arguments, window=None, sinks=0)  # it hides nothing
    if ids is not None and ordered:
        ids = find_starts(ids).cumsum(-1)  # positions start again in each run of one id
    needed = arguments.is_masked or bool(encoding.hooks - {"input"})
    found = _get_positions(q, k, arguments, ids, ordered, needed)
    if positions is not None:
        _check_positions(q, k, arguments, encoding, ordered)
    key_mask, mask = (None, None) if arguments.mask is None else _read_mask(arguments.mask, q, k)
    return Visibility(
        *found,
        causal=arguments.causal,
        window=arguments.window,
        sinks=arguments.sinks,
        key_mask=key_mask,
        documents=None if ids is None else (ids[..., S - T :], ids),
        restarts=ids is not None and ordered,
        mask=mask,
    )


# Distances are int64.
_MOST = 2**62


def _check_window(window: int | None, sinks: int) -> None:
    if window is not None and (type(window) is not int or not 1 <= window <= _MOST):
        raise ValueError(
            "attention: window must be a positive int up to 2^62, how many positions back a query"
            f" sees counting its own, or None; got {quote(window)}."
        )
    if type(sinks) is not int or not 0 <= sinks <= _MOST:
        raise ValueError(f"attention: sinks must be an int >= 0, up to 2^62; got {quote(sinks)}.")
    if sinks and window is None:
        raise ValueError(
            f"attention: sinks must be 0 without a window, because every key is visible then; got"
            f" {sinks}. Pass window= or leave sinks out."
        )


def _has_axes(arguments: VisibilityArguments, axes: int) -> bool:
    """Whether positions differ between axes, so that masks and biases go by the tokens' order."""
    given = [x for x in (arguments.positions, arguments.key_positions) if isinstance(x, Tensor)]
    if axes == 1 or not given:
        return False
    several = [x.dim() > 1 for x in given]
    if any(several) and not all(several):
        raise ValueError(
            f"attention: positions and key_positions must both have {axes} axes, [{axes}, T] or"
            f" [{axes}, B, T], or for MRoPE both be [T], the same position on every axis; got"
            f" {[list(x.shape) for x in given]}."
        )
    return all(several)


def _check_positions(
    q: Tensor, k: Tensor, arguments: VisibilityArguments, encoding: Encoding, ordered: bool
) -> None:
    """Refuse positions that are not finite, or whose order a mask or a bias needs and has not."""
    T, S = q.shape[2], k.shape[2]
    if ordered and T > S and (arguments.is_masked or encoding.hooks - {"input", "rotation"}):
        raise ValueError(
            "attention: positions on several axes do not say which keys a query comes after, so"
            f" there must not be more queries than keys; got {T} and {S}. Leave out causal,"
            " window and biases, or with MRoPE pass positions [T]."
        )
    for name in ("positions", "key_positions"):
        given = getattr(arguments, name)
        if given is None or not has_values(given):
            continue
        check_storage(given, "attention", name)
        if given.is_floating_point() and not bool(given.isfinite().all()):
            raise ValueError(
                f"attention: {name} must be finite, because a token at NaN or infinity is nowhere;"
                " got some that are not. Give padding any position, and hide it with mask=."
            )


def _get_document_ids(arguments: VisibilityArguments, q: Tensor, k: Tensor) -> Tensor | None:
    """The document of each key, [S] or [B, S]; None where all are known to be in one."""
    documents, cu_seqlens = arguments.documents, arguments.cu_seqlens
    S, T = k.shape[2], q.shape[2]
    if cu_seqlens is not None:
        if documents is not None:
            raise ValueError(
                "attention: documents must be None with cu_seqlens, which says the same; got both."
                " Leave one out."
            )
        _check_cu_seqlens(cu_seqlens, k)
        # Not repeat_interleave, whose length compiled code cannot know.
        ends = cu_seqlens.to(torch.int64)
        documents = torch.bucketize(torch.arange(S, device=k.device), ends, right=True)
    assert documents is not None
    check_integers(documents, "attention", "documents", "integers [S] or [B, S]")
    if not has_key_axis(documents, k) or T > S:
        raise ValueError(
            f"attention: documents must be integers [S] or [B, S], one id for each of the {S} keys,"
            f" and T <= S; got {list(documents.shape)} for T = {T}."
        )
    one = has_values(documents) and bool((documents == documents[..., :1]).all())
    return None if one else documents


def _check_cu_seqlens(cu_seqlens: Tensor, k: Tensor) -> None:
    check_integers(cu_seqlens, "attention", "cu_seqlens", "integers [N + 1]")
    B, S = k.shape[0], k.shape[2]
    right = cu_seqlens.dim() == 1 and cu_seqlens.shape[0] > 0 and B == 1
    if right and has_values(cu_seqlens):
        ends = cu_seqlens.tolist()
        right = ends == sorted(ends) and ends[0] == 0 and ends[-1] == S
    if not right:
        came = cu_seqlens if has_values(cu_seqlens) else list(cu_seqlens.shape)
        raise ValueError(
            "attention: cu_seqlens must be integers [N + 1] for one packed row, B = 1, that rise"
            f" from 0 to the {S} keys; got {came} and B = {B}. Use documents= for several rows."
        )


def _get_positions(
    q: Tensor,
    k: Tensor,
    arguments: VisibilityArguments,
    ids: Tensor | None,
    ordered: bool,
    needed: bool,
) -> tuple[Tensor, Tensor, int | None, int]:
    """Positions by which masks and biases go: the caller's, or the order of the tokens.

    The first four fields of a ``Visibility``. needed: it matters where tokens are.
    """
    positions, key_positions = arguments.positions, arguments.key_positions
    B, T, S, device = q.shape[0], q.shape[2], k.shape[2], q.device
    if positions is not None and key_positions is None and T != S:
        raise ValueError(
            f"attention: key_positions must be given with positions, because q has {T} tokens and k"
            f" has {S}; got None. Pass the positions of the keys."
        )
    if positions is None and key_positions is not None:
        raise ValueError(
            "attention: positions must be given with key_positions; got None. Pass both."
        )
    if positions is None and T > S and needed:
        raise ValueError(
            f"attention: positions must be given, because {T} queries cannot be the last of {S}"
            " keys; got None. Pass positions= and key_positions=."
        )
    if ordered:
        if ids is not None:
            counted = from_documents(ids)
            return counted[..., S - T :], counted, None, 0
        keys = torch.arange(S, device=device)
        return (keys[S - T :] if T <= S else torch.arange(T, device=device)), keys, S - T, 0
    queries, _ = resolve(positions, 0, B, T, device, "attention")
    assert queries is not None
    both = (queries, queries)
    if key_positions is not None:
        given, _ = resolve(key_positions, 0, B, S, device, "attention")
        assert given is not None
        both = (queries, given)
    return *both, *_find_offset(*both)


def _find_offset(queries: Tensor, keys: Tensor) -> tuple[int | None, int]:
    """Offset of query 0 from key 0 if positions are consecutive in all rows, else None.

    And the position of key 0, or 0 where there is no offset.
    """
    if not queries.numel() or not keys.numel() or not (has_values(queries) and has_values(keys)):
        return None, 0
    both = (queries,) if queries is keys else (queries, keys)
    if any(x.dim() > 1 or x.is_floating_point() or not bool((x.diff() == 1).all()) for x in both):
        return None, 0
    first = int(keys[0])
    return int(queries[0]) - first, first


def _read_mask(mask: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The mask as padding [B, S] or as any other [B, H, T, S]; one of the two is None.

    Both are None where the mask is known to hide nothing: without a mask other ways are faster.
    """
    B, H, T, _ = q.shape
    S = k.shape[2]
    mask = check_mask(mask, q.device, "attention")
    is_padding = mask.shape == (B, S)
    fits = mask.dim() == 4 and all(
        n in (1, size) for n, size in zip(mask.shape, (B, H, T, S), strict=True)
    )
    if not is_padding and not fits:
        raise ValueError(
            f"attention: mask must be [B, S] for padding, here [{B}, {S}], or [B, H, T, S] with 1"
            f" where it is the same, here [{B}, {H}, {T}, {S}]; got {list(mask.shape)}. Pass"
            " mask[None, None] for a mask [T, S] of all rows."
        )
    if has_values(mask) and bool(mask.all()):
        return None, None
    return (mask, None) if is_padding else (None, mask)
