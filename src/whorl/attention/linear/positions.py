"""Positions of the queries and keys of a call of linear attention."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.encodings.rotary.call import ResolvedPositions, find_context_length
from whorl.encodings.rotary.rotary import Rotary

if TYPE_CHECKING:
    from .attention import LinearState
    from .compute import LinearCall

__all__ = ["CausalPositions", "find_causal_positions", "find_followed_length", "find_positions"]

_NAME = "linear_attention"


class CausalPositions(NamedTuple):
    """Positions of the keys of a causal call; the queries are the last of them.

    line: one position per token that never decreases, [1, S] or [B, S], where positions came as a
    tensor; hidden tokens have that of the last visible one before them.
    """

    where: ResolvedPositions
    line: Tensor | None
    next_position: int | Tensor


def find_positions(call: "LinearCall") -> tuple[ResolvedPositions, ResolvedPositions]:
    """Positions of queries and of keys where every query sees every key."""
    T, S = call.q.shape[2], call.k.shape[2]
    queries = call.resolve(call.positions, call.offset, T)
    if call.key_positions is not None:
        return queries, call.resolve(call.key_positions, 0, S)
    if call.rotation is not None and T != S:
        message = _NO_POSITIONS if call.positions is None else _TWO_LENGTHS
        raise ValueError(message.format(T, S))
    return queries, queries


def find_causal_positions(call: "LinearCall", state: "LinearState | None") -> CausalPositions:
    """Positions of a causal call, after a state if there is one."""
    S, several = call.k.shape[2], call.axes > 1
    where = _find_key_positions(call, state)
    values, offset = where
    if values is None:
        _check_offset(offset, state, S)
        return CausalPositions(where, None, offset + S)
    line = _compute_line(values.amax(0) if several else values, call.key_mask, state)
    if not several and has_values(values):
        wrong = values != line if call.key_mask is None else (values != line) & call.key_mask
        if bool(wrong.any()):
            raise ValueError(_DECREASING.format("positions that do"))
    if not S:
        return CausalPositions(where, line, 0 if state is None else state.next_position)
    return CausalPositions(where, line, (line[:, -1] + 1).expand(call.q.shape[0]))


def find_followed_length(
    call: "LinearCall", queries: ResolvedPositions, keys: ResolvedPositions, has_state: bool
) -> int | Tensor | None:
    """The context length: the caller's, or for a scaling that depends on it that of the tokens."""
    rotation = call.rotation
    scaling = rotation.config.scaling if isinstance(rotation, Rotary) else None
    if call.context_length is not None or scaling is None or not scaling.follows_length:
        return call.context_length
    if has_state:
        raise ValueError(
            f"{_NAME}: context_length must be given with a state for {quote(scaling)}, which"
            " depends on the current length, because keys in sums cannot be rotated again; got"
            " None. Pass the same in every call, or process the whole sequence in one call."
        )
    lengths = [call.q.shape[2], call.k.shape[2]]
    return find_context_length([queries, keys], lengths, call.axes)


def _find_key_positions(call: "LinearCall", state: "LinearState | None") -> ResolvedPositions:
    T, S, axes, offset = call.q.shape[2], call.k.shape[2], call.axes, call.offset
    positions, key_positions = call.positions, call.key_positions
    for given in (positions, key_positions):
        if call.decay is not None and axes > 1 and isinstance(given, Tensor) and given.dim() > 1:
            raise ValueError(
                f"{_NAME}: positions must be [T] or [B, T] with ALiBi, which needs one distance"
                f" between two tokens; got {list(given.shape)} on {axes} axes. Leave ALiBi out, or"
                " with MRoPE pass positions [T], as of text."
            )
    if key_positions is not None:
        keys = call.resolve(key_positions, 0, S)
        if positions is not None:
            _check_last_positions(call.resolve(positions, offset, T)[0], keys[0])
        return keys
    if positions is not None and T != S:
        raise ValueError(_TWO_LENGTHS.format(T, S))
    if positions is None and offset is None and state is not None:
        offset = state.next_position
    if isinstance(offset, Tensor) and offset.is_floating_point():  # after fractional positions
        values = offset.unsqueeze(-1) + torch.arange(S, device=call.q.device)  # [B, S]
        return (values if axes == 1 else values.expand(axes, *values.shape)), 0
    return call.resolve(positions, offset, S)


def _compute_line(values: Tensor, key_mask: Tensor | None, state: "LinearState | None") -> Tensor:
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


def _check_offset(offset: int, state: "LinearState | None", S: int) -> None:
    """Refuse tokens that begin before the end of a state."""
    if state is None or not S or not has_values(state.denominator):
        return
    following = state.next_position
    last = int(following.max() if isinstance(following, Tensor) else following) - 1
    if offset < last and not bool(state.empty.all()):
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
