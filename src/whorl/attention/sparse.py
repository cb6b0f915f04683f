"""Shifted sparse attention: groups of tokens, half of the heads by half a group further on.

    heads 0 .. H/2 - 1:  groups   [0, g) [g, 2g) ...
    the others:          groups   [0, g/2) [g/2, 3g/2) ...

Each token attends within its group, O(n g); information crosses groups through the shifted heads.
Chen et al. 2023, LongLoRA, section 3.2, https://arxiv.org/abs/2309.12307.

Different from the paper's code: it rolls the shifted heads, so that the last half group meets the
first and, in the causal case, late tokens leak to early ones. Here the ends are groups of their
own.
Windows, sinks and packed documents are options of ``attention``.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Encoding, NoPE, XPos
from whorl.positions import resolve

from ._checks import check_encoding, check_qkv
from ._output import build_zeros
from .softmax.attention import BLOCK, softmax_scale
from .softmax.checks import check_fits
from .softmax.compute import Job, full_precision, lowered, scaled
from .softmax.visibility import Scope

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
    _check(q, k, v, encoding, group, causal)
    number = softmax_scale(encoding, scale, q, "shifted_attention")
    q, k, v = lowered(q, k, v)
    with full_precision(q):
        at = _places(q, encoding, positions)
        if (by_query := encoding.query_scale(at)) is not None:
            q = scaled(q, by_query)
        xpos = next((part for part in encoding.parts if isinstance(part, XPos)), None)
        if xpos is None:
            q, k = encoding(q, k, positions, context_length=context_length)
        if k.shape[1] % 2:  # one of its heads would be in both halves
            times = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        halves: tuple[list[Tensor], list[Tensor]] = ([], [])
        for panel in _panels(q.shape[2], group):
            a, b, c = (panel.of(x) for x in (q, k, v))
            if xpos is not None:
                a, b = _turned(xpos, a, b, panel, at)
            job = Job(encoding, panel.scope(a, causal), scale=number, block=BLOCK)
            for half, out in zip(halves, panel.undo(job.attend(a, b, c)), strict=True):
                half.append(out)
    if not halves[0]:
        return build_zeros(q, k, v, *encoding.parameters(), width=v.shape[3])
    return torch.cat([torch.cat(half, 2) for half in halves], 1)


class _Panel(NamedTuple):
    """Groups that are worked on at once: tokens (start, count) of either half of the heads.

    Each half starts at the first token of its group: only differences of places matter. The shorter
    one is padded behind.
    """

    straight: tuple[int, int]
    shifted: tuple[int, int]
    groups: int = 1

    @property
    def width(self) -> int:
        return max(self.straight[1], self.shifted[1])

    def of(self, x: Tensor) -> Tensor:
        """[B, H, T, D] -> [B groups, H, width, D]."""
        cut = []
        for half, (start, count) in zip(x.chunk(2, 1), (self.straight, self.shifted), strict=True):
            tokens = half[:, :, start : start + count]
            cut.append(F.pad(tokens, (0, 0, 0, self.width - count)))
        grouped = torch.unflatten(torch.cat(cut, 1), 2, (self.groups, -1))
        return grouped.transpose(1, 2).flatten(0, 1)

    def places(self, at: Tensor) -> list[Tensor]:
        """Positions [B, T] of both halves, [B groups, width] each; padding is at the last token."""
        found = []
        for start, count in (self.straight, self.shifted):
            index = torch.arange(start, start + self.width, device=at.device)
            index = index.clamp(max=max(start + count, 1) - 1)
            found.append(at[:, index].reshape(at.shape[0] * self.groups, self.width // self.groups))
        return found

    def scope(self, x: Tensor, causal: bool) -> Scope:
        """Who sees whom in each group of ``x``; under a causal mask nobody sees padding anyway."""
        size, mask = x.shape[2], None
        at = torch.arange(size, device=x.device)
        counts = (self.straight[1], self.shifted[1])
        if not causal and counts[0] != counts[1]:
            half = x.shape[1] // 2
            mask = torch.stack([at < count for count in counts]).repeat_interleave(half, 0)
            mask = mask[None, :, None]  # [1, H, 1, width]
        return Scope(at, at, 0, 0, causal, mask=mask)

    def undo(self, out: Tensor) -> list[Tensor]:
        """The halves [B, H / 2, count, Dv], without padding."""
        N, H, size, width = out.shape
        folded = out.view(N // self.groups, self.groups, H, size, width)
        flat = folded.transpose(1, 2).flatten(2, 3)
        spans = zip(flat.chunk(2, 1), (self.straight[1], self.shifted[1]), strict=True)
        return [half[:, :, :count] for half, count in spans]


def _panels(length: int, group: int) -> list[_Panel]:
    """All tokens of both halves, in order; whole groups are worked on together."""
    half, whole = group // 2, length // group
    panels = [_Panel((0, min(group, length)), (0, min(half, length)))] if length else []
    if whole > 1:
        count = (whole - 1) * group
        panels.append(_Panel((group, count), (half, count), whole - 1))
    done = whole * group
    if whole:
        panels.append(
            _Panel((done, length - done), (done - half, min(group, length - done + half)))
        )
    if length > done + half:
        panels.append(_Panel((length, 0), (done + half, length - done - half)))
    return panels


def _turned(xpos: XPos, q: Tensor, k: Tensor, panel: _Panel, at: Tensor) -> tuple[Tensor, Tensor]:
    """Each group with a reference of its own, so that no factor overflows."""
    at = at if at.dim() == 2 else at.unsqueeze(0)
    at = at.expand(q.shape[0] // panel.groups, -1)
    turned: tuple[list[Tensor], list[Tensor]] = ([], [])
    for a, b, here in zip(q.chunk(2, 1), k.chunk(2, 1), panel.places(at), strict=True):
        near = xpos.reference_near(here)
        turned[0].append(xpos.rotate(a, here, role="query", reference=near))
        turned[1].append(xpos.rotate(b, here, role="key", reference=near))
    return torch.cat(turned[0], 1), torch.cat(turned[1], 1)


def _places(q: Tensor, encoding: Encoding, positions: Tensor | None) -> Tensor:
    """Positions of all tokens, [T] or [B, T]: of several axes, their order."""
    order = torch.arange(q.shape[2], device=q.device)
    if positions is None or encoding.position_axes > 1:
        return order
    at, _ = resolve(positions, 0, q.shape[0], q.shape[2], q.device, "shifted_attention")
    assert at is not None
    return at


def _check(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, group: int, causal: bool) -> None:
    where = "shifted_attention"
    check_qkv(q, k, v, where)
    if q.shape[2] != k.shape[2]:
        raise ValueError(
            f"{where}: q and k must be as long as each other, because groups hold queries with"
            f" their keys; got {list(q.shape)} and {list(k.shape)}."
        )
    if q.shape[1] % 2:
        raise ValueError(
            f"{where}: half of the heads are shifted, so q must have an even number of them; got"
            f" {q.shape[1]}."
        )
    if type(group) is not int or group < 2 or group % 2:
        raise ValueError(f"{where}: group must be an even int >= 2; got {quote(group)}.")
    check_fits(q, encoding, causal, where)
