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

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.encodings import Encoding, NoPE

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
    """Attention of q [B, H, T, D] within groups of k [B, G, T, D], v [B, G, T, E]: [B, H, T, E].

    group: tokens of a group, even. positions: for the rotation; scores go by the order of tokens.

    >>> import torch, whorl
    >>> q, k, v = (torch.randn(1, 8, 1000, 64) for _ in range(3))
    >>> whorl.shifted_attention(q, k, v, whorl.RoPE(64), group=256, causal=True).shape
    torch.Size([1, 8, 1000, 64])
    """
    encoding = NoPE() if encoding is None else encoding
    _check(q, k, v, encoding, group, causal)
    q, k = encoding(q, k, positions, context_length=context_length)
    H, times = q.shape[1], q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    if scale is None:
        scale = encoding.softmax_scale(q.shape[3])
    scale = q.shape[3] ** -0.5 if scale is None else scale
    if (by_query := encoding.query_scale(torch.arange(q.shape[2], device=q.device))) is not None:
        q = q * by_query.unsqueeze(-1).to(q.dtype)
    halves = []
    for heads, shift in ((slice(0, H // 2), 0), (slice(H // 2, H), group // 2)):
        parts = []
        for start, count, size in _runs(q.shape[2], group, shift):
            cut = slice(start, start + count * size)
            folded = [_fold(x[:, :, cut], count) for x in (q, k, v)]
            out = _within(folded[0], folded[1], folded[2], encoding, heads, causal, scale)
            parts.append(_unfold(out, count))
        halves.append(torch.cat(parts, 2) if parts else v[:, heads])
    return torch.cat(halves, 1)


def _runs(length: int, group: int, shift: int) -> list[tuple[int, int, int]]:
    """Runs of groups of one size: first token, how many groups, tokens of each."""
    runs, start = [], min(shift, length)
    if start:
        runs.append((0, 1, start))
    whole = (length - start) // group
    if whole:
        runs.append((start, whole, group))
    if rest := length - start - whole * group:
        runs.append((length - rest, 1, rest))
    return runs


def _fold(x: Tensor, count: int) -> Tensor:
    """[B, H, count g, D] -> [B count, H, g, D]."""
    B, H, T, D = x.shape
    return x.reshape(B, H, count, T // count, D).transpose(1, 2).flatten(0, 1)


def _unfold(x: Tensor, count: int) -> Tensor:
    N, H, size, D = x.shape
    return x.view(N // count, count, H, size, D).transpose(1, 2).flatten(2, 3)


def _within(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding,
    heads: slice,
    causal: bool,
    scale: float,
) -> Tensor:
    """Dense attention of some heads within groups [N, H, g, D]."""
    at = torch.arange(q.shape[2], device=q.device)
    distance = at[:, None] - at[None, :]
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    added = torch.zeros(distance.shape, dtype=wide, device=q.device)
    if causal:
        added = added.masked_fill(distance < 0, -math.inf)
    if (bias := encoding.distance_bias(distance)) is not None:
        added = added + bias[heads].to(wide)
    if (content := encoding.content_score(q, k, at, at)) is not None:
        added = added + content[:, heads].to(wide) * scale
    q, k, v = q[:, heads], k[:, heads], v[:, heads]
    added = added.expand(q.shape[0], q.shape[1], *distance.shape)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=scale)


def _check(q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, group: int, causal: bool) -> None:
    where = "shifted_attention"
    if not isinstance(encoding, Encoding):
        raise TypeError(f"{where}: encoding must be a whorl encoding, or None; got {encoding!r}.")
    tensors = all(isinstance(x, Tensor) and x.dim() == 4 for x in (q, k, v))
    if not tensors or k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0]:
        raise ValueError(f"{where}: q, k, v must be tensors [B, H, T, D] of one batch and length.")
    if q.shape[2] != k.shape[2] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"{where}: q and k must be as long and as wide as each other, because groups hold"
            f" queries with their keys; got {list(q.shape)} and {list(k.shape)}."
        )
    if q.shape[1] % 2 or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{where}: half of the heads are shifted, so q must have an even number of them, which"
            f" the heads of k divide; got {q.shape[1]} and {k.shape[1]}."
        )
    if type(group) is not int or group < 2 or group % 2:
        raise ValueError(f"{where}: group must be an even int >= 2; got {group!r}.")
    if encoding.acts("value_term"):
        raise ValueError(
            f"{where}: {encoding!r} adds vectors to the values, which groups do not support; build"
            " it with values='none'."
        )
    if encoding.causal and not causal:
        raise ValueError(
            f"{where}: {encoding!r} is for causal attention only, because a key after its query"
            " would be scored up; pass causal=True."
        )
