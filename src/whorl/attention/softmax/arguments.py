"""From the positions, masks and documents that are passed to attention to a ``Visibility``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.attention._checks import check_integers, has_key_axis
from whorl.encodings import Encoding
from whorl.positions import from_documents, resolve
from whorl.positions.sequences import find_starts

from .visibility import Visibility

if TYPE_CHECKING:
    from whorl.attention.cache.kv_cache import CacheStep

__all__ = ["VisibilityArguments", "build_visibility", "read_cache_step"]


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


def read_cache_step(step: "CacheStep", window: int | None, sinks: int) -> VisibilityArguments:
    """The arguments that a cache gives in place of the caller's."""
    if step.open:  # one token that sees all keys: no mask by distance is needed
        return VisibilityArguments(
            positions=step.positions, key_positions=step.key_positions, mask=step.valid
        )
    return VisibilityArguments(True, window, sinks, step.positions, step.key_positions, step.valid)


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
    if ids is not None and ordered:
        ids = find_starts(ids).cumsum(-1)  # positions start again in each run of one id
    if T > S and positions is None and not _needs_positions(arguments, encoding):
        # Plain cross attention, to which it does not matter where tokens are.
        queries, keys = (torch.arange(n, device=q.device) for n in (T, S))
        found = _Positions(queries, keys, 0)
    else:
        found = _get_positions(q, k, arguments, ids, ordered)
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


class _Positions(NamedTuple):
    """The first four fields of a ``Visibility``."""

    query_positions: Tensor
    key_positions: Tensor
    offset: int | None
    first_key_position: int = 0


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


def _needs_positions(arguments: VisibilityArguments, encoding: Encoding) -> bool:
    """Whether it matters where tokens are: to a mask, or to the encoding."""
    masked = arguments.causal or arguments.window is not None
    return masked or bool(encoding.hooks - {"input"})


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
    if ordered and T > S:
        masked = arguments.causal or arguments.window is not None
        if masked or encoding.hooks - {"input", "rotation"}:
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
    q: Tensor, k: Tensor, arguments: VisibilityArguments, ids: Tensor | None, ordered: bool
) -> _Positions:
    """Positions by which masks and biases go: the caller's, or the order of the tokens."""
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
    if positions is None and T > S:
        raise ValueError(
            f"attention: positions must be given, because {T} queries cannot be the last of {S}"
            " keys; got None. Pass positions= and key_positions=."
        )
    if ordered:
        if ids is not None:
            counted = from_documents(ids)
            return _Positions(counted[..., S - T :], counted, None)
        keys = torch.arange(S, device=device)
        return _Positions(keys[S - T :] if T <= S else torch.arange(T, device=device), keys, S - T)
    assert positions is not None
    queries, _ = resolve(positions, 0, B, T, device, "attention")
    assert queries is not None
    if key_positions is None:
        return _Positions(queries, queries, *_find_offset(queries, queries))
    key_tensor, _ = resolve(key_positions, 0, B, S, device, "attention")
    assert key_tensor is not None
    return _Positions(queries, key_tensor, *_find_offset(queries, key_tensor))


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
    if not isinstance(mask, Tensor) or mask.is_floating_point():
        came = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            "attention: mask must be boolean, or integers 0 and 1, where 1 is visible; got"
            f" {came}. An additive mask of 0 and -inf becomes one by `mask == 0`."
        )
    check_storage(mask, "attention", "mask")
    is_padding = mask.shape == (B, S)
    fits = mask.dim() == 4 and all(
        n in (1, size) for n, size in zip(mask.shape, (B, H, T, S), strict=True)
    )
    if not is_padding and not fits:
        raise ValueError(
            f"attention: mask must be [B, S] for padding, here [{B}, {S}], or [B, H, T, S] with 1"
            f" where it is the same, here [{B}, {H}, {T}, {S}]; got {list(mask.shape)}."
        )
    mask = mask.bool()
    if has_values(mask) and bool(mask.all()):
        return None, None
    return (mask, None) if is_padding else (None, mask)
