"""Where the tokens of a call of linear attention are."""

from typing import NamedTuple

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl.encodings.base import Encoding
from whorl.encodings.rotary.call import ResolvedPositions, find_context_length
from whorl.positions import resolve

__all__ = ["Asked", "Following", "Places", "both_places", "causal_places", "current_length"]

_NAME = "linear_attention"


class Asked(NamedTuple):
    """What the user said of positions; offset None stands for what follows the state, or 0."""

    positions: Tensor | None
    key_positions: Tensor | None
    offset: int | Tensor | None
    axes: int


class Following(NamedTuple):
    """Where a state ends: its next position, and which rows [B] have seen no key at all."""

    next_position: int | Tensor
    empty: Tensor


class Places(NamedTuple):
    """Positions of the keys of a causal call; the queries are the last of them.

    line: one position per token that never decreases, [1, S] or [B, S], where they came as a
    tensor: hidden tokens stand where the last one before them does.
    """

    where: ResolvedPositions
    line: Tensor | None
    next_position: int | Tensor


def both_places(
    q: Tensor, k: Tensor, asked: Asked, turning: bool
) -> tuple[ResolvedPositions, ResolvedPositions]:
    """Positions of queries and of keys where every query sees every key."""
    (B, _, T, _), S, offset = q.shape, k.shape[2], asked.offset
    offset = 0 if offset is None else offset
    where = resolve(asked.positions, offset, B, T, q.device, _NAME, asked.axes)
    if asked.key_positions is not None:
        keys = resolve(asked.key_positions, 0, B, S, k.device, _NAME, asked.axes)
        return where, keys
    if turning and T != S:
        raise ValueError((_NO_PLACES if asked.positions is None else _TWO_LENGTHS).format(T, S))
    return where, where


def causal_places(
    q: Tensor, k: Tensor, asked: Asked, keep: Tensor | None, following: Following | None
) -> Places:
    """Positions of a causal call after a state, if there is one."""
    S = k.shape[2]
    where = _key_places(q, k, asked, following)
    values, first = where
    if values is None:
        _check_first(first, following, S)
        return Places(where, None, first + S)
    several = asked.axes > 1
    line = _line(values.amax(0) if several else values, keep, following)
    if not several:
        _check_order(values, line, keep)
    if not S:
        return Places(where, line, 0 if following is None else following.next_position)
    return Places(where, line, (line[:, -1] + 1).expand(q.shape[0]))


def current_length(
    rotation: Encoding | None, where: list[ResolvedPositions], lengths: list[int], stateful: bool
) -> int | Tensor | None:
    """The context length of a scaling that follows it, where the user gave none."""
    scaling = None if rotation is None else getattr(rotation.config, "scaling", None)
    if rotation is None or scaling is None or not scaling.follows_length:
        return None
    if stateful:
        raise ValueError(
            f"{_NAME}: {scaling!r} follows the current length, but the sums of a state hold keys"
            " that cannot be turned again; pass context_length=, the same in every call, or"
            " process the whole sequence in one call."
        )
    return find_context_length(where, lengths, rotation.position_axes)


def _key_places(
    q: Tensor, k: Tensor, asked: Asked, following: Following | None
) -> ResolvedPositions:
    (B, _, T, _), S, device = q.shape, k.shape[2], q.device
    positions, key_positions, offset, axes = asked
    if key_positions is not None:
        where = resolve(key_positions, 0, B, S, device, _NAME, axes)
        if positions is not None:
            _check_same(resolve(positions, offset or 0, B, T, device, _NAME, axes)[0], where[0])
        return where
    if positions is not None:
        if T != S:
            raise ValueError(_TWO_LENGTHS.format(T, S))
        return resolve(positions, 0 if offset is None else offset, B, S, device, _NAME, axes)
    if offset is None:
        offset = 0 if following is None else following.next_position
    if isinstance(offset, Tensor) and offset.is_floating_point():  # after fractional positions
        values = offset.unsqueeze(-1) + torch.arange(S, device=device)  # [B, S]
        return (values if axes == 1 else values.expand(axes, *values.shape)), 0
    return resolve(None, offset, B, S, device, _NAME, axes)


def _line(values: Tensor, keep: Tensor | None, following: Following | None) -> Tensor:
    """The largest position of a kept token so far, the state's included."""
    at = values if values.dim() == 2 else values.unsqueeze(0)
    if not at.shape[0] or not at.shape[1]:
        return at
    before = at.amin() - 1
    if following is not None:
        last = torch.as_tensor(following.next_position, device=at.device) - 1
        before = torch.where(following.empty, before, last).unsqueeze(-1)  # [B, 1]
    if keep is not None:
        # Hidden tokens before the first that is kept stand where it does.
        first = torch.where(keep, at, at.amax()).amin(-1, keepdim=True)
        at = torch.where(keep, at, torch.where(keep.any(-1, keepdim=True), first, before))
    return torch.maximum(at, before).cummax(-1).values


def _check_order(values: Tensor, line: Tensor, keep: Tensor | None) -> None:
    if not has_values(values):
        return
    wrong = values != line
    if keep is not None:
        wrong = wrong & keep
    if bool(wrong.any()):
        raise ValueError(_BACKWARDS.format("positions that do"))


def _check_first(first: int, following: Following | None, S: int) -> None:
    if following is None or not S or not has_values(following.empty):
        return
    at, empty = following
    last = int(at.max() if isinstance(at, Tensor) else at) - 1
    if first < last and not bool(empty.all()):
        raise ValueError(_BACKWARDS.format(f"position {first} after a state that ends at {last}"))


def _check_same(positions: Tensor | None, keys: Tensor | None) -> None:
    if positions is None or keys is None or not (has_values(positions) and has_values(keys)):
        return
    tail = keys[..., keys.shape[-1] - positions.shape[-1] :]
    if positions.dim() < tail.dim():
        positions = positions.unsqueeze(-2)
    elif tail.dim() < positions.dim():
        tail = tail.unsqueeze(-2)
    if not bool((positions == tail).all()):
        raise ValueError(
            f"{_NAME}: under causal=True the queries are the last of the keys' tokens, so positions"
            " must be the last of key_positions; leave positions out, or use whorl.attention."
        )


_TWO_LENGTHS = (
    f"{_NAME}: q has {{}} tokens and k has {{}}, so one set of positions cannot serve both; pass"
    " key_positions= for the keys."
)
_NO_PLACES = (
    f"{_NAME}: q has {{}} tokens and k has {{}}, so without positions it is not clear where the"
    " queries are among the keys; pass positions= and key_positions=."
)
_BACKWARDS = (
    f"{_NAME}: causal=True goes by the order of the tokens, so positions must not decrease; got"
    " {}. Sort the tokens, hide padding by mask=, and give packed documents a row each."
)
