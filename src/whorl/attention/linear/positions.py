"""Positions of the queries and keys of a call of linear attention."""

from typing import NamedTuple

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl.encodings.base import Encoding
from whorl.encodings.rotary.call import ResolvedPositions, find_context_length
from whorl.encodings.rotary.rotary import Rotary
from whorl.positions import resolve

__all__ = [
    "CausalPositions",
    "PositionArguments",
    "StateEnd",
    "find_causal_positions",
    "find_followed_length",
    "find_positions",
]

_NAME = "linear_attention"


class PositionArguments(NamedTuple):
    """The caller's positions; without an offset tokens continue after the state, or from 0."""

    positions: Tensor | None
    key_positions: Tensor | None
    offset: int | Tensor | None
    axes: int


class StateEnd(NamedTuple):
    """The end of a state: its next position, and which rows [B] have seen no key at all."""

    next_position: int | Tensor
    empty: Tensor


class CausalPositions(NamedTuple):
    """Positions of the keys of a causal call; the queries are the last of them.

    line: one position per token that never decreases, [1, S] or [B, S], where positions came as a
    tensor; hidden tokens have that of the last visible one before them.
    """

    where: ResolvedPositions
    line: Tensor | None
    next_position: int | Tensor


def find_positions(
    q: Tensor, k: Tensor, arguments: PositionArguments, rotates: bool
) -> tuple[ResolvedPositions, ResolvedPositions]:
    """Positions of queries and of keys where every query sees every key."""
    (B, _, T, _), S, offset = q.shape, k.shape[2], arguments.offset
    offset = 0 if offset is None else offset
    queries = resolve(arguments.positions, offset, B, T, q.device, _NAME, arguments.axes)
    if arguments.key_positions is not None:
        keys = resolve(arguments.key_positions, 0, B, S, k.device, _NAME, arguments.axes)
        return queries, keys
    if rotates and T != S:
        message = _NO_POSITIONS if arguments.positions is None else _TWO_LENGTHS
        raise ValueError(message.format(T, S))
    return queries, queries


def find_causal_positions(
    q: Tensor,
    k: Tensor,
    arguments: PositionArguments,
    key_mask: Tensor | None,
    state: StateEnd | None,
) -> CausalPositions:
    """Positions of a causal call, after a state if there is one."""
    S = k.shape[2]
    where = _find_key_positions(q, k, arguments, state)
    values, offset = where
    if values is None:
        _check_offset(offset, state, S)
        return CausalPositions(where, None, offset + S)
    several = arguments.axes > 1
    line = _compute_line(values.amax(0) if several else values, key_mask, state)
    if not several:
        _check_order(values, line, key_mask)
    if not S:
        return CausalPositions(where, line, 0 if state is None else state.next_position)
    return CausalPositions(where, line, (line[:, -1] + 1).expand(q.shape[0]))


def find_followed_length(
    rotation: Encoding | None, where: list[ResolvedPositions], lengths: list[int], has_state: bool
) -> int | Tensor | None:
    """The context length for a scaling that depends on it, if the caller gave none."""
    scaling = rotation.config.scaling if isinstance(rotation, Rotary) else None
    if rotation is None or scaling is None or not scaling.follows_length:
        return None
    if has_state:
        raise ValueError(
            f"{_NAME}: context_length must be given with a state for {scaling!r}, which depends on"
            " the current length, because keys in sums cannot be rotated again; got None. Pass the"
            " same in every call, or process the whole sequence in one call."
        )
    return find_context_length(where, lengths, rotation.position_axes)


def _find_key_positions(
    q: Tensor, k: Tensor, arguments: PositionArguments, state: StateEnd | None
) -> ResolvedPositions:
    (B, _, T, _), S, device = q.shape, k.shape[2], q.device
    positions, key_positions, offset, axes = arguments
    if key_positions is not None:
        keys = resolve(key_positions, 0, B, S, device, _NAME, axes)
        if positions is not None:
            queries = resolve(positions, offset or 0, B, T, device, _NAME, axes)
            _check_last_positions(queries[0], keys[0])
        return keys
    if positions is not None:
        if T != S:
            raise ValueError(_TWO_LENGTHS.format(T, S))
        return resolve(positions, 0 if offset is None else offset, B, S, device, _NAME, axes)
    if offset is None:
        offset = 0 if state is None else state.next_position
    if isinstance(offset, Tensor) and offset.is_floating_point():  # after fractional positions
        values = offset.unsqueeze(-1) + torch.arange(S, device=device)  # [B, S]
        return (values if axes == 1 else values.expand(axes, *values.shape)), 0
    return resolve(None, offset, B, S, device, _NAME, axes)


def _compute_line(values: Tensor, key_mask: Tensor | None, state: StateEnd | None) -> Tensor:
    """The largest position of a visible token so far, those of the state included."""
    line = values if values.dim() == 2 else values.unsqueeze(0)
    if not line.shape[0] or not line.shape[1]:
        return line
    before = line.amin() - 1
    if state is not None:
        last = torch.as_tensor(state.next_position, device=line.device) - 1
        before = torch.where(state.empty, before, last).unsqueeze(-1)  # [B, 1]
    if key_mask is not None:
        # Hidden tokens before the first visible one have its position.
        first = torch.where(key_mask, line, line.amax()).amin(-1, keepdim=True)
        hidden = torch.where(key_mask.any(-1, keepdim=True), first, before)
        line = torch.where(key_mask, line, hidden)
    return torch.maximum(line, before).cummax(-1).values


def _check_order(values: Tensor, line: Tensor, key_mask: Tensor | None) -> None:
    """Refuse positions of visible tokens that decrease."""
    if not has_values(values):
        return
    wrong = values != line
    if key_mask is not None:
        wrong = wrong & key_mask
    if bool(wrong.any()):
        raise ValueError(_DECREASING.format("positions that do"))


def _check_offset(offset: int, state: StateEnd | None, S: int) -> None:
    """Refuse tokens that begin before the end of a state."""
    if state is None or not S or not has_values(state.empty):
        return
    following, empty = state
    last = int(following.max() if isinstance(following, Tensor) else following) - 1
    if offset < last and not bool(empty.all()):
        raise ValueError(_DECREASING.format(f"position {offset} after a state that ends at {last}"))


def _check_last_positions(positions: Tensor | None, keys: Tensor | None) -> None:
    """Refuse positions of queries that are not the last of the keys'."""
    if positions is None or keys is None or not (has_values(positions) and has_values(keys)):
        return
    last = keys[..., keys.shape[-1] - positions.shape[-1] :]
    if positions.dim() < last.dim():
        positions = positions.unsqueeze(-2)
    elif last.dim() < positions.dim():
        last = last.unsqueeze(-2)
    if not bool((positions == last).all()):
        raise ValueError(
            f"{_NAME}: positions must be the last of key_positions under causal=True, because the"
            " queries are the last of the keys' tokens; got others. Leave positions out, or use"
            " whorl.attention."
        )


_TWO_LENGTHS = (
    f"{_NAME}: key_positions must be given with positions, because q has {{}} tokens and k has"
    " {}; got None. Pass the positions of the keys."
)
_NO_POSITIONS = (
    f"{_NAME}: positions must be given, because q has {{}} tokens and k has {{}}, which does not"
    " say where the queries are among the keys; got None. Pass positions= and key_positions=."
)
_DECREASING = (
    f"{_NAME}: positions must not decrease under causal=True, which goes by the order of tokens;"
    " got {}. Sort the tokens, hide padding by mask=, and give packed documents a row each."
)
