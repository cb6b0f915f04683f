"""From what the caller of attention said of positions and masks to a scope."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.attention._checks import has_key_axis
from whorl.positions import from_documents, resolve
from whorl.positions.sequences import find_starts

from .visibility import Scope

__all__ = ["Asked", "scope_of"]


@dataclass(frozen=True)
class Asked:
    """Options of ``attention`` that say who sees whom."""

    causal: bool = False
    window: int | None = None
    sinks: int = 0
    positions: Tensor | None = None
    key_positions: Tensor | None = None
    mask: Tensor | None = None
    documents: Tensor | None = None
    cu_seqlens: Tensor | None = None

    @property
    def masked(self) -> bool:
        """Whether positions decide who sees whom."""
        return self.causal or self.window is not None


def scope_of(
    q: Tensor, k: Tensor, asked: Asked, *, axes: int, placed: bool, scored: bool = False
) -> Scope:
    """Check what the caller said, and make a scope of it.

    axes: of the encoding's positions. placed: whether it matters where tokens are; in plain cross
    attention it does not. scored: whether it does to more than a rotation.
    """
    _check_window(asked.window, asked.sinks)
    ids = _ids(asked, q, k)
    if ids is not None and has_values(ids) and bool((ids == ids[..., :1]).all()):
        ids = None  # one document hides nothing
    ordered = asked.positions is None or _by_order(asked, axes)
    if ids is not None and ordered:
        ids = _runs(ids)
    if q.shape[2] > k.shape[2] and asked.positions is None and not placed:
        at, keys_at = (torch.arange(x.shape[2], device=q.device) for x in (q, k))
        places = _Places(at, keys_at, 0)
    else:
        places = _places(q, k, asked, ids, ordered)
        _check_order(q, k, asked, ordered, scored)
    kept, rest = _masks(asked.mask, q, k)
    return Scope(
        at=places.at,
        keys_at=places.keys_at,
        start=places.start,
        begun=places.begun,
        causal=bool(asked.causal),
        window=asked.window,
        sinks=asked.sinks,
        kept=kept,
        documents=None if ids is None else (ids[..., k.shape[2] - q.shape[2] :], ids),
        counted=ids is not None and ordered,
        mask=rest,
    )


# Distances are int64.
_MOST = 2**62


def _by_order(asked: Asked, axes: int) -> bool:
    """Whether tokens are placed on several axes: masks and biases then go by their order."""
    given = [x for x in (asked.positions, asked.key_positions) if isinstance(x, Tensor)]
    if axes == 1 or not given:
        return False
    several = [x.dim() > 1 for x in given]
    if any(several) and not all(several):
        raise ValueError(
            f"attention: positions and key_positions must both have {axes} axes, [{axes}, T] or"
            f" [{axes}, B, T], or for MRoPE both be [T], a token's place on every axis; got"
            f" {[list(x.shape) for x in given]}."
        )
    return all(several)


def _check_order(q: Tensor, k: Tensor, asked: Asked, ordered: bool, scored: bool) -> None:
    """Refuse positions without an order where there has to be one, and such as are nowhere."""
    if asked.positions is None:
        return
    T, S = q.shape[2], k.shape[2]
    if ordered and T > S and (asked.masked or scored):
        raise ValueError(
            f"attention: {T} queries for {S} keys on several axes, so it is not clear which keys a"
            " query comes after; leave out causal, window and biases. With MRoPE you can pass"
            " positions [T] instead."
        )
    for name, at in (("positions", asked.positions), ("key_positions", asked.key_positions)):
        if at is None or not has_values(at):
            continue
        check_storage(at, "attention", name)
        if at.is_floating_point() and not bool(at.isfinite().all()):
            raise ValueError(
                f"attention: {name} must be finite, because a token at NaN or infinity is nowhere;"
                " got some that are not. Give padding any position, and hide it with mask=."
            )


def _runs(ids: Tensor) -> Tensor:
    """Each run of one id as a document of its own: positions start again in it."""
    return find_starts(ids).cumsum(-1)


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
            f"attention: sinks={sinks} needs a window, because without one every key is visible"
            " anyway; pass window= or leave sinks out."
        )


def _ids(asked: Asked, q: Tensor, k: Tensor) -> Tensor | None:
    documents, cu_seqlens = asked.documents, asked.cu_seqlens
    S, T = k.shape[2], q.shape[2]
    if cu_seqlens is not None:
        if documents is not None:
            raise ValueError("attention: pass documents or cu_seqlens, not both.")
        _check_ends(cu_seqlens, k)
        # Not repeat_interleave, whose length compiled code cannot know.
        ends = cu_seqlens.to(torch.int64)
        documents = torch.bucketize(torch.arange(S, device=k.device), ends, right=True)
    if documents is None:
        return None
    _check_whole(documents, "documents", "integers [S] or [B, S]")
    if not has_key_axis(documents, k) or T > S:
        raise ValueError(
            f"attention: documents must be integers [S] or [B, S], one id for each of the {S} keys,"
            f" and T <= S; got {list(documents.shape)} for T = {T}."
        )
    return documents


def _check_whole(given: Tensor, name: str, what: str) -> None:
    if not isinstance(given, Tensor) or given.is_floating_point() or given.is_complex():
        came = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise TypeError(f"attention: {name} must be {what}; got {came}.")
    check_storage(given, "attention", name)


def _check_ends(cu_seqlens: Tensor, k: Tensor) -> None:
    _check_whole(cu_seqlens, "cu_seqlens", "integers [N + 1]")
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


class _Places(NamedTuple):
    """Positions that masks and scores go by; start and begun as in ``Scope``."""

    at: Tensor
    keys_at: Tensor
    start: int | None
    begun: int = 0


def _places(q: Tensor, k: Tensor, asked: Asked, ids: Tensor | None, ordered: bool) -> _Places:
    positions, key_positions = asked.positions, asked.key_positions
    B, T, S, device = q.shape[0], q.shape[2], k.shape[2], q.device
    if positions is not None and key_positions is None and T != S:
        raise ValueError(
            f"attention: q has {T} tokens and k has {S}, so one set of positions cannot serve both;"
            " pass key_positions= for the keys."
        )
    if positions is None and key_positions is not None:
        raise ValueError("attention: key_positions came without positions; pass both.")
    if positions is None and T > S:
        raise ValueError(
            f"attention: {T} queries for {S} keys, so it is not clear where the queries are; pass"
            " positions= and key_positions=."
        )
    if ordered:
        if ids is not None:
            counted = from_documents(ids)
            return _Places(counted[..., S - T :], counted, None)
        keys = torch.arange(S, device=device)
        return _Places(keys[S - T :] if T <= S else torch.arange(T, device=device), keys, S - T)
    assert positions is not None
    at, _ = resolve(positions, 0, B, T, device, "attention")
    assert at is not None
    if key_positions is None:
        return _Places(at, at, *_regular(at, at))
    keys_at, _ = resolve(key_positions, 0, B, S, device, "attention")
    assert keys_at is not None
    return _Places(at, keys_at, *_regular(at, keys_at))


def _regular(at: Tensor, keys_at: Tensor) -> tuple[int | None, int]:
    """First query minus first key, where both count up by one, alike in every row; and the key."""
    if not at.numel() or not keys_at.numel() or not (has_values(at) and has_values(keys_at)):
        return None, 0
    if at.dim() > 1 or keys_at.dim() > 1 or at.is_floating_point() or keys_at.is_floating_point():
        return None, 0
    if not all(bool((x.diff() == 1).all()) for x in ((at,) if at is keys_at else (at, keys_at))):
        return None, 0
    first = int(keys_at[0])
    return int(at[0]) - first, first


def _masks(mask: Tensor | None, q: Tensor, k: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Padding [B, S] and any other mask [B, H, T, S], of which a call may have one.

    None for one that hides nothing, where that can be seen: without a mask other ways are faster.
    """
    if mask is None:
        return None, None
    B, H, T, _ = q.shape
    S = k.shape[2]
    if not isinstance(mask, Tensor) or mask.is_floating_point():
        came = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"attention: mask must be boolean, or integers 0 and 1, where 1 keeps; got {came}. An"
            " additive mask of 0 and -inf becomes one by `mask == 0`."
        )
    check_storage(mask, "attention", "mask")
    padding = mask.shape == (B, S)
    fits = mask.dim() == 4 and all(
        n in (1, size) for n, size in zip(mask.shape, (B, H, T, S), strict=True)
    )
    if not padding and not fits:
        raise ValueError(
            f"attention: mask must be [B, S] for padding, here [{B}, {S}], or [B, H, T, S] with 1"
            f" where it is the same, here [{B}, {H}, {T}, {S}]; got {list(mask.shape)}."
        )
    mask = mask.bool()
    if has_values(mask) and bool(mask.all()):
        return None, None
    return (mask, None) if padding else (None, mask)
