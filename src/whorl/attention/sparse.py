"""Shifted sparse attention: within groups of tokens, which half of the heads shift by half a group.

    heads 0 .. H/2 - 1:  groups   [0, g) [g, 2g) ...
    the others:          groups   [0, g/2) [g/2, 3g/2) ...

Each token attends within its group, O(n g); information crosses groups through the shifted heads.
Chen et al. 2023, LongLoRA, section 3.2, https://arxiv.org/abs/2309.12307.

Different from the paper's code: it rolls the shifted heads, so that the last half group attends to
the first and, in the causal case, late tokens leak to early ones. Here the ends are groups of their
own.
Windows, sinks and packed documents are options of ``attention``.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding, NoPE
from whorl.positions import resolve

from ._checks import check_encoding
from ._output import build_zeros
from ._precision import cast_to_autocast, disable_autocast
from .softmax.arguments import check_inputs, get_softmax_scale
from .softmax.attention import BLOCK
from .softmax.compute import SoftmaxCall, scale_queries
from .softmax.visibility import Visibility

__all__ = ["shifted_attention"]


def shifted_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    group: int,
    causal: bool = False,
    positions: Tensor | None = None,
    scale: float | None = None,
    context_length: int | Tensor | None = None,
) -> Tensor:
    """Attention of q [B, H, T, D] within groups of k [B, G, T, D], v [B, G, T, Dv]: [B, H, T, Dv].

    group: tokens of a group, even. positions: for the rotation and the scale of queries; scores go
    by the order of tokens.

    >>> import torch, whorl
    >>> q, k, v = (torch.randn(1, 8, 1000, 64) for _ in range(3))
    >>> whorl.shifted_attention(q, k, v, whorl.RoPE(64), group=256, causal=True).shape
    torch.Size([1, 8, 1000, 64])
    """
    check_encoding(encoding, "shifted_attention")
    encoding = NoPE() if encoding is None else encoding
    check_inputs(q, k, v, encoding, causal, "shifted_attention")
    _check_groups(q, k, group)
    number = get_softmax_scale(encoding, scale, q.shape[3], "shifted_attention")
    q, k, v = cast_to_autocast(q, k, v)
    with disable_autocast(q):
        token_positions = _get_positions(q, encoding, positions)
        q = scale_queries(q, encoding, token_positions)
        rotation = encoding.rotating_part
        by_group = rotation is not None and rotation.acts("span")
        if not by_group:
            q, k = encoding(q, k, positions, context_length=context_length)
        if k.shape[1] % 2:  # one of its heads would be in both halves
            times = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        halves: tuple[list[Tensor], list[Tensor]] = ([], [])
        for batch in _plan_groups(q.shape[2], group):
            queries, keys, values = (batch.take(x) for x in (q, k, v))
            if rotation is not None and by_group:
                queries, keys = _rotate_groups(rotation, queries, keys, batch, token_positions)
            visibility = batch.build_visibility(queries, causal)
            call = SoftmaxCall(encoding, visibility, scale=number, block=BLOCK)
            out = batch.restore(call.attend(queries, keys, values))
            for half, part in zip(halves, out, strict=True):
                half.append(part)
    if not halves[0]:
        return build_zeros(q, k, v, *encoding.parameters(), width=v.shape[3])
    return torch.cat([torch.cat(half, 2) for half in halves], 1)


class _GroupBatch(NamedTuple):
    """Groups that are computed at once: first token and number of tokens in each half of the heads.

    Positions count from the first token of a group in both halves, as only differences matter. The
    shorter half is padded at its end.
    """

    straight: tuple[int, int]
    shifted: tuple[int, int]
    groups: int = 1

    @property
    def length(self) -> int:
        """Tokens of the longer half."""
        return max(self.straight[1], self.shifted[1])

    def take(self, x: Tensor) -> Tensor:
        """The tokens of these groups, from [B, H, T, D] to [B groups, H, length / groups, D]."""
        parts = []
        for half, (start, count) in zip(x.chunk(2, 1), (self.straight, self.shifted), strict=True):
            tokens = half[:, :, start : start + count]
            parts.append(F.pad(tokens, (0, 0, 0, self.length - count)))
        grouped = torch.unflatten(torch.cat(parts, 1), 2, (self.groups, -1))
        return grouped.transpose(1, 2).flatten(0, 1)

    def take_positions(self, positions: Tensor) -> list[Tensor]:
        """Positions [B, T] of both halves, [B groups, .]; of padding, that of the last token."""
        found = []
        for start, count in (self.straight, self.shifted):
            index = torch.arange(start, start + self.length, device=positions.device)
            index = index.clamp(max=max(start + count, 1) - 1)
            rows = positions.shape[0] * self.groups
            found.append(positions[:, index].reshape(rows, self.length // self.groups))
        return found

    def build_visibility(self, x: Tensor, causal: bool) -> Visibility:
        """The visible keys in each group of ``x``; a causal mask hides padding anyway."""
        size, mask = x.shape[2], None
        order = torch.arange(size, device=x.device)
        counts = (self.straight[1], self.shifted[1])
        if not causal and counts[0] != counts[1]:
            half = x.shape[1] // 2
            mask = torch.stack([order < count for count in counts]).repeat_interleave(half, 0)
            mask = mask[None, :, None]  # [1, H, 1, size]
        return Visibility(order, order, 0, 0, causal, mask=mask)

    def restore(self, out: Tensor) -> list[Tensor]:
        """The result of both halves, [B, H / 2, count, Dv] each, without padding."""
        N, H, size, width = out.shape
        folded = out.view(N // self.groups, self.groups, H, size, width)
        flat = folded.transpose(1, 2).flatten(2, 3)
        counts = (self.straight[1], self.shifted[1])
        return [half[:, :, :n] for half, n in zip(flat.chunk(2, 1), counts, strict=True)]


def _plan_groups(length: int, group: int) -> list[_GroupBatch]:
    """All tokens of both halves, in order; whole groups are computed together."""
    half, whole = group // 2, length // group
    batches = [_GroupBatch((0, min(group, length)), (0, min(half, length)))] if length else []
    if whole > 1:
        count = (whole - 1) * group
        batches.append(_GroupBatch((group, count), (half, count), whole - 1))
    done = whole * group
    if whole:
        batches.append(
            _GroupBatch((done, length - done), (done - half, min(group, length - done + half)))
        )
    if length > done + half:
        batches.append(_GroupBatch((length, 0), (done + half, length - done - half)))
    return batches


def _rotate_groups(
    rotation: Encoding, q: Tensor, k: Tensor, batch: _GroupBatch, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries and keys of each group, rotated with the reference position that is exact near it."""
    positions = positions if positions.dim() == 2 else positions.unsqueeze(0)
    positions = positions.expand(q.shape[0] // batch.groups, -1)
    rotated: tuple[list[Tensor], list[Tensor]] = ([], [])
    halves = zip(q.chunk(2, 1), k.chunk(2, 1), batch.take_positions(positions), strict=True)
    for queries, keys, here in halves:
        pair = rotation(queries, keys, here, reference=rotation.reference_near(here))
        for half, part in zip(rotated, pair, strict=True):
            half.append(part)
    return torch.cat(rotated[0], 1), torch.cat(rotated[1], 1)


def _get_positions(q: Tensor, encoding: Encoding, positions: Tensor | None) -> Tensor:
    """Positions of all tokens, [T] or [B, T]; their order if positions have several axes."""
    if positions is None or encoding.position_axes > 1:
        return torch.arange(q.shape[2], device=q.device)
    found, _ = resolve(positions, 0, q.shape[0], q.shape[2], q.device, "shifted_attention")
    assert found is not None
    return found


def _check_groups(q: Tensor, k: Tensor, group: int) -> None:
    where = "shifted_attention"
    if q.shape[2] != k.shape[2]:
        raise ValueError(
            f"{where}: q and k must be equally long, because groups hold queries with their keys;"
            f" got {list(q.shape)} and {list(k.shape)}."
        )
    if q.shape[1] % 2:
        raise ValueError(
            f"{where}: q must have an even number of heads, because half of them are shifted; got"
            f" {q.shape[1]}."
        )
    if type(group) is not int or group < 2 or group % 2:
        raise ValueError(f"{where}: group must be an even int >= 2; got {quote(group)}.")
