"""Positions of new tokens, as a model was told them, against those that attention counts.

transformers hands ``position_ids`` of the new tokens to attention, and nothing of those in the
cache. Where attention rotates the keys itself, it counts tokens: all of them by their place in the
cache, or those that are not padding. What neither count gives is refused.
"""

from contextvars import ContextVar
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl._support.words import quote

__all__ = [
    "TokenPositions",
    "are_known",
    "choose_count",
    "choose_positions",
    "count_tokens",
    "find_next_positions",
    "find_offset",
    "holds_all",
    "is_in_one_piece",
    "leave_out_padding",
    "read_visible",
    "recall_positions",
    "remember_positions",
]


class TokenPositions(NamedTuple):
    """Positions of queries [T] or [B, T] and of keys [S] or [B, S].

    context: the length of each row, [B], where frequencies depend on it; None for the largest
    position + 1.
    """

    queries: Tensor
    keys: Tensor
    context: Tensor | None = None


def choose_count(
    positions: Tensor | None, mask: Tensor | None, T: int, S: int, *, all_held: bool = True
) -> Tensor | None:
    """Positions [B, S] of the keys if those of T new tokens skip padding; None if they do not.

    Refuses positions that fit neither count of S tokens, with padding or without.

    Args:
        positions: [B, T] or [1, T]. mask: [B, S], False for padding; None without any.
        all_held: whether the S tokens are all of the text, or only the last ones.
    """
    if positions is None or not are_known(positions) or not T:
        return None
    counts = [torch.arange(S, device=positions.device)[None]]
    visible = counts[0] >= 0 if mask is None else mask
    if mask is not None:
        counts.append(count_tokens(mask))
    now, fits = visible[:, S - T :], []
    for count in counts:
        shift = positions - count[:, S - T :]
        first = shift.masked_fill(~now, torch.iinfo(shift.dtype).max).amin(-1)
        last = shift.masked_fill(~now, torch.iinfo(shift.dtype).min).amax(-1)
        alike = first == last
        if T < S:
            alike = alike & (first == 0 if all_held else first >= 0)
        fits.append(bool((alike | ~now.any(-1)).all()))
    if not any(fits):
        _refuse_positions(positions, S - T)
    if T < S and not all_held and fits == [True, True]:
        _refuse_padding_between(visible)
    return None if fits[0] else counts[1]


def choose_positions(
    mask: Tensor, positions: Tensor | None, offset: int | Tensor, *, window: int | None
) -> TokenPositions:
    """Positions of all tokens for a whole mask [B, 1, T, S], by the count that ``positions`` fit.

    A key counts by its place in the cache, or without those that no query sees, which are padding.
    Rows may hold several texts, each with positions of its own, if none sees another.

    Args:
        positions: of the queries, [B, T] or [1, T]; None if unknown, for places in the cache.
        offset: place of the first query among the keys.
        window: of the layer, whose cache may have dropped what is farther away; None for no limit.
    """
    T, S = mask.shape[2:]
    keys = torch.arange(S, device=mask.device)
    queries = keys[:T] + offset
    if positions is None or not are_known(positions) or not has_values(mask):
        return TokenPositions(queries, keys)
    visible = read_visible(mask).any(1)  # [B, T, S]
    visible = visible.expand(max(visible.shape[0], positions.shape[0]), -1, -1)
    counts, first = count_tokens(visible.any(1)), int(offset)
    all_held = holds_all(first, window)
    found = [
        choice
        for choice in (TokenPositions(queries, keys), TokenPositions(counts[:, queries], counts))
        if _are_continued(positions - choice.queries, visible, first, all_held)
    ]
    if not found:
        _refuse_positions(positions, first)
    if first and not all_held and len(found) == 2:
        _refuse_padding_between(visible.any(1))
    return found[0]


def holds_all(held: int, window: int | None) -> bool:
    """Whether a layer with a window has dropped no token yet, with ``held`` ones in its cache."""
    return window is None or held < window - 1


def _are_continued(shift: Tensor, visible: Tensor, offset: int, all_held: bool) -> bool:
    """Whether tokens differ from a count by the same number as those that they see.

    shift: positions - count of the queries, [B, T]. visible: [B, T, S]. Those in the cache are
    taken to differ by 0, or, if some were dropped before, by no less.
    """
    B, T, _ = visible.shape
    shift, order = shift.expand(B, -1), torch.arange(T, device=shift.device)
    real = visible[:, order, order + offset]  # padding does not see itself
    latest = torch.where(real, order, -1).cummax(1).values
    before = torch.cat((latest.new_full((B, 1), -1), latest[:, :-1]), 1)  # the last that is real
    known, before = before >= 0, before.clamp(min=0)
    linked = visible.gather(2, (before + offset).unsqueeze(-1)).squeeze(-1)
    same = shift == shift.gather(1, before)
    goes_on = shift == 0 if all_held else shift >= 0
    uses_cache = visible[:, :, :offset].any(-1)
    return bool((~real | ((same | ~linked | ~known) & (goes_on | ~uses_cache))).all())


def _refuse_positions(positions: Tensor, held: int) -> NoReturn:
    """Say that attention does not go by these positions, after ``held`` tokens in the cache."""
    raise ValueError(
        "position_ids must count tokens one by one with encoding= or keys='unrotated', and go on"
        " where those in the cache end, because attention goes by their order; got"
        f" {quote(positions[:, 0].tolist())} first, after {held} tokens in the cache. Leave out"
        " position_ids (and, for packed rows, attention_mask), pad on the left, or call"
        " whorl.hf.uninstall(model)."
    )


def find_next_positions(
    expected: list[int], positions: Tensor | None, padding: Tensor | None, held: int
) -> list[int]:
    """The position that the next token of each row must have; -1 or no list if unknown.

    For caches that count tokens without gaps: refuses new ones that do not go on where the last
    ended, or skip some.

    Args:
        expected: the same, for these tokens. positions: [B, T] or [1, T], as the model was told.
        padding: [B, T], False for padding; None without any. held: tokens that came before.
    """
    if positions is None or not are_known(positions) or not positions.shape[1]:
        return []
    rows = positions.expand(len(expected), -1)
    if padding is None:
        starts, ends = rows[:, 0].tolist(), rows[:, -1].tolist()
        counts = [rows.shape[1]] * len(rows)
    else:
        limits = torch.iinfo(rows.dtype)
        starts = rows.masked_fill(~padding, limits.max).amin(-1).tolist()
        ends = rows.masked_fill(~padding, limits.min).amax(-1).tolist()
        counts = padding.sum(-1).tolist()
    found = []
    for start, end, count, wanted in zip(starts, ends, counts, expected, strict=True):
        if count and (end - start + 1 != count or wanted not in (-1, start)):
            _refuse_positions(positions, held)
        found.append(end + 1 if count else wanted)
    return found


def _refuse_padding_between(visible: Tensor) -> None:
    """Refuse padding between the tokens of a window, [B, S], where both counts are possible."""
    if not is_in_one_piece(visible):
        raise ValueError(
            "attention_mask must not hide tokens between others, with encoding= or"
            " keys='unrotated' and a window that has dropped tokens, because nothing says whether"
            " the positions of those in the cache count them. Pad on the left, or pass"
            " past_key_values=whorl.hf.UnrotatedCache()."
        )


def is_in_one_piece(mask: Tensor) -> bool:
    """Whether the visible keys of each row of [B, S] are known to be consecutive."""
    if not has_values(mask):
        return False
    begins = mask[:, 1:] & ~mask[:, :-1]
    return bool((begins.sum(-1) + mask[:, 0] <= 1).all())


def are_known(positions: Tensor | None) -> bool:
    """Whether positions are there, on one axis, and can be read."""
    return positions is not None and positions.dim() == 2 and has_values(positions)


def count_tokens(mask: Tensor) -> Tensor:
    """Positions [B, S] that count the tokens of a mask [B, S] without its padding."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)


def leave_out_padding(mask: Tensor, places: TokenPositions) -> TokenPositions:
    """Positions that count the keys which a query of a mask [B, 1, T, S] sees, and no others.

    places: those that count all keys, which do as well if there is no padding between tokens.
    """
    visible = read_visible(mask).any(1).any(1)  # [B, S]
    if is_in_one_piece(visible):
        return places
    counts = count_tokens(visible)
    return TokenPositions(counts[:, places.queries], counts)


def read_visible(mask: Tensor) -> Tensor:
    """True where a mask, of True and False or of numbers to add, lets a query see a key."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def find_offset(mask: Tensor) -> Tensor:
    """Place of the first query among the keys, from a causal mask [B, 1, T, S].

    A token sees itself last, so that two neighbours that give the same offset are right. Padding
    gives smaller ones, tokens of an image, which see later ones, larger ones: no two alike.
    """
    T, S = mask.shape[2:]
    last = (read_visible(mask) * torch.arange(S, device=mask.device)).amax(-1)  # [B, 1, T]
    found = last - torch.arange(T, device=mask.device)
    alike = torch.where(found[..., 1:] == found[..., :-1], found[..., 1:], -1).flatten()
    best = torch.cat((alike, alike.new_full((1,), -1))).amax()
    return torch.where(best >= 0, best, found.amax()).clamp(min=0, max=S - T)


#: What the rotary module of the present forward pass was called with, in this thread.
_CALLED_WITH: ContextVar[Tensor | None] = ContextVar("called_with", default=None)


def remember_positions(positions: Tensor) -> None:
    """Keep positions [axes, B, T], equal on all axes, for attention, which may not be told them."""
    if not torch.compiler.is_compiling():
        _CALLED_WITH.set(positions[0] if positions.dim() == 3 else None)


def recall_positions(count: int) -> Tensor | None:
    """Positions [B, T] that were kept in this forward pass for ``count`` tokens; None if none."""
    found = None if torch.compiler.is_compiling() else _CALLED_WITH.get()
    return found if found is not None and found.shape[1] == count else None
