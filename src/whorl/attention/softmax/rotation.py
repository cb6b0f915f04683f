"""The rotation of the queries and keys of a call: at once, or later, block by block."""

import torch
from torch import Tensor

from whorl._support.tensors import has_values
from whorl.encodings import Encoding

from .arguments import VisibilityArguments
from .visibility import Visibility

__all__ = ["rotate_call"]


def rotate_call(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    arguments: VisibilityArguments,
    visibility: Visibility,
    context_length: int | Tensor | None,
) -> tuple[Tensor, Tensor, Encoding | None]:
    """Queries and keys, rotated if the encoding rotates, and None.

    Or both as they are, and the encoding that must rotate each block apart.
    """
    if not encoding.acts("forward"):
        return q, k, None
    rotation = _find_block_rotation(encoding, visibility, q.dtype)
    if rotation is None:
        q, k = _rotate_tokens(encoding, q, k, arguments, visibility, context_length)
    return q, k, rotation


def _rotate_tokens(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    arguments: VisibilityArguments,
    visibility: Visibility,
    context_length: int | Tensor | None,
) -> tuple[Tensor, Tensor]:
    """All queries and keys, rotated by the encoding."""
    positions, key_positions, offset = arguments.positions, arguments.key_positions, 0
    same_length = q.shape[2] == k.shape[2]
    if positions is None and visibility.offset is None and not encoding.needs_positions:
        axes = encoding.position_axes  # packed documents, whose positions start again in each
        positions = _repeat_on_axes(visibility.query_positions, axes)
        key_positions = None if same_length else _repeat_on_axes(visibility.key_positions, axes)
    if positions is None and not same_length:
        offset, key_positions = k.shape[2] - q.shape[2], visibility.key_positions
    rotated: tuple[Tensor, Tensor] = encoding(
        q, k, positions, key_positions, offset=offset, context_length=context_length
    )
    return rotated


def _find_block_rotation(
    encoding: Encoding, visibility: Visibility, dtype: torch.dtype
) -> Encoding | None:
    """The part that must rotate block by block: tokens are too far from position 0; or None."""
    rotation = encoding.rotating_part
    span = None if rotation is None else rotation.span(dtype)
    return None if span is None or _is_within(visibility, span) else rotation


def _is_within(visibility: Visibility, span: int) -> bool:
    """Whether all tokens are known to be at most ``span`` from position 0."""
    queries, keys = visibility.query_positions, visibility.key_positions
    T, S = queries.shape[-1], keys.shape[-1]
    if not T or not S:
        return False  # nothing is rotated, wherever it is
    if visibility.offset is not None:
        first_key = visibility.first_key_position
        first = first_key + visibility.offset
        low, high = min(first, first_key), max(first + T, first_key + S) - 1
    elif not (has_values(queries) and has_values(keys)):
        return False  # they may be anywhere
    elif not queries.numel() or not keys.numel():
        return True  # no rows
    else:
        ends = [end.double() for x in (queries, keys) for end in torch.aminmax(x)]
        numbers = torch.stack(ends).tolist()
        low, high = min(numbers), max(numbers)
    return bool(max(abs(low), abs(high)) <= span)


def _repeat_on_axes(positions: Tensor, axes: int) -> Tensor:
    """Positions [T] or [B, T] of text, the same on every axis."""
    return positions if axes == 1 else positions.expand(axes, *positions.shape)
