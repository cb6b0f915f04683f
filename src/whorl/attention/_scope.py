"""Who sees whom: the mask of an attention call, known block by block and never as a whole."""

from dataclasses import dataclass

import torch
from torch import Tensor

from whorl.positions import from_documents, resolve

__all__ = ["Scope", "Span", "pick", "scope_of"]

Span = tuple[int, int]


@dataclass(frozen=True)
class Scope:
    """Positions of queries and keys, and the rules that let one see the other.

    at [T] or [B, T], keys_at [S] or [B, S]. start: first query minus first key where both count up
    by one, alike in every row, else None. kept [B, S]: keys that are no padding. documents: ids of
    queries and of keys. mask: anything else, [B, H, T, S] with axes of size 1 where it is the same.
    """

    at: Tensor
    keys_at: Tensor
    start: int | None
    causal: bool
    window: int | None
    sinks: int
    kept: Tensor | None = None
    documents: tuple[Tensor, Tensor] | None = None
    mask: Tensor | None = None

    @property
    def by_distance(self) -> bool:
        """Whether visibility is a matter of distance alone, and every query sees a key."""
        if self.kept is not None or self.documents is not None or self.mask is not None:
            return False
        if self.start is None or (self.sinks and self.window is not None):
            return False
        T, S = self.at.shape[-1], self.keys_at.shape[-1]
        behind = not self.causal or self.start >= 0
        near = self.window is None or (self.start + T - S < self.window and self.start >= 0)
        return behind and near and S > 0

    @property
    def open(self) -> bool:
        """Whether every query sees every key."""
        if not self.by_distance or self.window is not None:
            return False
        assert self.start is not None
        return not self.causal or self.start >= self.keys_at.shape[-1] - 1

    def keys(self, first: int, last: int) -> list[Span]:
        """Spans of keys that queries first .. last - 1 may see; when in doubt, all."""
        S = self.keys_at.shape[-1]
        low, high = 0, S
        if self.start is not None:
            if self.causal:
                high = max(0, min(S, self.start + last))
            if self.window is not None:
                low = max(0, min(high, self.start + first - self.window + 1))
                if not self.causal:
                    high = max(low, min(S, self.start + last - 1 + self.window))
        if not self.sinks or not low:
            return [(low, high)]
        if self.keys_at.dim() > 1 or int(self.keys_at[0]) != 0:
            return [(0, high)]
        return [(0, min(self.sinks, low)), (low, high)]

    def line(self, first: int, last: int, low: int, high: int) -> Tensor:
        """Distances on regular positions: entry r + j is of query last - 1 - r and key low + j."""
        assert self.start is not None
        count = last - first + high - low - 1
        return self.start + last - 1 - low - torch.arange(count, device=self.at.device)

    def visible(self, first: int, last: int, spans: list[Span]) -> Tensor | None:
        """What queries first .. last - 1 see of keys in ``spans``: bool, [B, H, b, s] or less."""
        at = self.at[..., first:last].unsqueeze(-1)
        keys = pick(self.keys_at, spans).unsqueeze(-2)
        seen = None
        if self.causal or self.window is not None:
            distance = at - keys
            seen = self.seen(distance)
            if self.sinks and self.window is not None:
                sink = (keys < self.sinks) & (keys >= 0)
                seen = seen | (sink & (distance >= 0) if self.causal else sink)
        if self.documents is not None:
            mine, theirs = self.documents
            same = mine[..., first:last].unsqueeze(-1) == pick(theirs, spans).unsqueeze(-2)
            seen = same if seen is None else seen & same
        if seen is not None and seen.dim() == 3:
            seen = seen.unsqueeze(1)  # [B, 1, b, s]
        if self.kept is not None:
            kept = pick(self.kept, spans)[:, None, None, :]
            seen = kept if seen is None else seen & kept
        if self.mask is not None:
            rows = self.mask if self.mask.shape[2] == 1 else self.mask[:, :, first:last]
            more = rows if rows.shape[3] == 1 else pick(rows, spans)
            seen = more if seen is None else seen & more
        return seen

    def seen(self, distance: Tensor) -> Tensor:
        """Visibility by distance: causal mask and window."""
        seen = distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool)
        if self.window is not None:
            seen = seen & (distance < self.window)
            if not self.causal:
                seen = seen & (distance > -self.window)
        return seen


def pick(x: Tensor, spans: list[Span]) -> Tensor:
    """Spans of the last axis, joined."""
    parts = [x[..., low:high] for low, high in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def scope_of(
    q: Tensor,
    k: Tensor,
    *,
    causal: bool,
    window: int | None,
    sinks: int,
    positions: Tensor | None,
    key_positions: Tensor | None,
    mask: Tensor | None,
    documents: Tensor | None,
    cu_seqlens: Tensor | None,
    axes: int,
    placed: bool,
) -> Scope:
    """Check what the caller said about positions and masks, and make a scope of it.

    placed: whether it matters where tokens are; in plain cross attention it does not.
    """
    _check_window(window, sinks)
    ids = _ids(documents, cu_seqlens, q, k)
    if q.shape[2] > k.shape[2] and positions is None and not placed:
        at, keys_at = (torch.arange(x.shape[2], device=q.device) for x in (q, k))
        start: int | None = 0
    else:
        at, keys_at, start = _places(q, k, positions, key_positions, ids, axes)
    kept, rest = _masks(mask, q, k)
    both = None if ids is None else (ids[..., k.shape[2] - q.shape[2] :], ids)
    return Scope(at, keys_at, start, bool(causal), window, sinks, kept, both, rest)


def _check_window(window: int | None, sinks: int) -> None:
    if window is not None and (type(window) is not int or window < 1):
        raise ValueError(
            "attention: window must be a positive int, how many positions back a query sees"
            f" counting its own, or None; got {window!r}."
        )
    if type(sinks) is not int or sinks < 0:
        raise ValueError(f"attention: sinks must be an int >= 0; got {sinks!r}.")
    if sinks and window is None:
        raise ValueError(
            f"attention: sinks={sinks} needs a window, because without one every key is visible"
            " anyway; pass window= or leave sinks out."
        )


def _ids(
    documents: Tensor | None, cu_seqlens: Tensor | None, q: Tensor, k: Tensor
) -> Tensor | None:
    if cu_seqlens is not None:
        if documents is not None:
            raise ValueError("attention: pass documents or cu_seqlens, not both.")
        if not isinstance(cu_seqlens, Tensor) or cu_seqlens.dim() != 1 or k.shape[0] != 1:
            raise ValueError(
                "attention: cu_seqlens must be integers [N + 1] for one packed row, B = 1; got"
                f" {cu_seqlens!r} and B = {k.shape[0]}. Use documents= for several rows."
            )
        lengths = cu_seqlens.to(torch.int64).diff()
        documents = torch.repeat_interleave(torch.arange(len(lengths), device=k.device), lengths)
    if documents is None:
        return None
    S, T = k.shape[2], q.shape[2]
    shaped = isinstance(documents, Tensor) and documents.shape in ((S,), (k.shape[0], S))
    if not shaped or documents.is_floating_point() or T > S:
        came = list(documents.shape) if isinstance(documents, Tensor) else type(documents).__name__
        raise ValueError(
            f"attention: documents must be integers [S] or [B, S], one id for each of the {S} keys,"
            f" and T <= S; got {came} for T = {T}."
        )
    return documents


def _places(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    key_positions: Tensor | None,
    ids: Tensor | None,
    axes: int,
) -> tuple[Tensor, Tensor, int | None]:
    """Positions that masks and scores go by, and the start where they are regular."""
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
    if positions is None or axes > 1:  # several axes place a token; its order is that of the rows
        if ids is not None and positions is None:
            counted = from_documents(ids)
            return counted[..., S - T :], counted, None
        keys = torch.arange(S, device=device)
        if positions is not None and T != S:
            return torch.arange(T, device=device), keys, 0
        return keys[S - T :], keys, S - T
    at, _ = resolve(positions, 0, B, T, device, "attention")
    assert at is not None
    if key_positions is None:
        return at, at, _regular(at, at)
    keys_at, _ = resolve(key_positions, 0, B, S, device, "attention")
    assert keys_at is not None
    return at, keys_at, _regular(at, keys_at)


def _regular(at: Tensor, keys_at: Tensor) -> int | None:
    """First query minus first key, where both count up by one and are the same in every row."""
    if torch.compiler.is_compiling() or at.is_meta or not at.numel() or not keys_at.numel():
        return None
    if at.dim() > 1 or keys_at.dim() > 1 or at.is_floating_point() or keys_at.is_floating_point():
        return None
    steps = [bool((x.diff() == 1).all()) for x in ((at,) if at is keys_at else (at, keys_at))]
    return int(at[0] - keys_at[0]) if all(steps) else None


def _masks(mask: Tensor | None, q: Tensor, k: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Padding [B, S] and any other mask [B, H, T, S], of which a call may have one."""
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
    if mask.shape == (B, S):
        return mask.bool(), None
    fits = mask.dim() == 4 and all(
        n in (1, size) for n, size in zip(mask.shape, (B, H, T, S), strict=True)
    )
    if not fits:
        raise ValueError(
            f"attention: mask must be [B, S] for padding, here [{B}, {S}], or [B, H, T, S] with 1"
            f" where it is the same, here [{B}, {H}, {T}, {S}]; got {list(mask.shape)}."
        )
    return None, mask.bool()
