"""Attention over some of the keys, with what it takes to join the results of several parts.

    of a part:  out_i = sum_j exp(s_ij - L_i) v_j    L_i = log sum_j exp(s_ij)    j: visible keys
    joined:     out = sum_p exp(L_p - L) out_p       L = log sum_p exp(L_p)       p: parts

The scores s of a block of queries are a plain matrix here, because torch's fused kernel does not
give L a gradient. Liu et al. 2023, Ring Attention, https://arxiv.org/abs/2310.01889.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whorl.attention._checks import check_positive
from whorl.attention._output import build_zeros
from whorl.attention._precision import cast_to_autocast, disable_autocast
from whorl.encodings import Encoding, NoPE
from whorl.encodings.base import Scorer
from whorl.kernels.tables import choose_table_dtype

from .arguments import (
    VisibilityArguments,
    build_visibility,
    check_inputs,
    check_score_options,
    get_softmax_scale,
)
from .attention import BLOCK
from .compute import SoftmaxCall, scale_queries
from .rotation import rotate_call
from .visibility import QueryBlock

__all__ = [
    "PartialAttention",
    "check_part_positions",
    "merge_attention",
    "partial_attention",
]


class PartialAttention(NamedTuple):
    """Attention over some of the keys, float32 or wider.

    out: [B, H, T, Dv]; 0 for a query that sees none of these keys.
    log_sum: [B, H, T], the logarithm of the sum of exp(score); -inf for such a query.
    """

    out: Tensor
    log_sum: Tensor


def partial_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    sinks: int = 0,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    mask: Tensor | None = None,
    scale: float | None = None,
    context_length: int | Tensor | None = None,
    softcap: float | None = None,
    block: int = BLOCK,
) -> PartialAttention:
    """Attention over keys that are a part of all keys; ``merge_attention`` joins such parts.

    The arguments are those of ``whorl.attention``; positions must be given where they matter. A
    scaling that depends on the length needs ``context_length``, that of the whole sequence, because
    a part does not know it.

    >>> import torch, whorl
    >>> q, k, v = (torch.randn(1, 8, 100, 64) for _ in range(3))
    >>> alibi, at = whorl.ALiBi(8), torch.arange(100)
    >>> parts = [
    ...     whorl.partial_attention(q, k[:, :, own], v[:, :, own], alibi, causal=True,
    ...                             positions=at, key_positions=at[own])
    ...     for own in (slice(0, 60), slice(60, 100))
    ... ]
    >>> whole = whorl.attention(q, k, v, alibi, causal=True)
    >>> torch.allclose(whorl.merge_attention(parts).out, whole, atol=1e-5)
    True
    """
    encoding = NoPE() if encoding is None else encoding
    check_inputs(q, k, v, encoding, causal, "partial_attention")
    check_positive(block, "block", "partial_attention")
    scale = get_softmax_scale(encoding, scale, q.shape[3], "partial_attention")
    check_score_options(None, softcap, q)
    arguments = VisibilityArguments(causal, window, sinks, positions, key_positions, mask)
    check_part_positions(positions, encoding, arguments.is_masked, "partial_attention")
    q, k, v = cast_to_autocast(q, k, v)
    visibility = build_visibility(q, k, arguments, encoding, rotated=False)
    with disable_autocast(q):
        q, k, rotation = rotate_call(encoding, q, k, arguments, visibility, context_length)
        q = scale_queries(q, encoding, visibility.query_positions)
        call = SoftmaxCall(
            encoding, visibility, scale=scale, block=block, block_rotation=rotation, softcap=softcap
        )
        return _attend(call, q, k, v)


def merge_attention(parts: Sequence[PartialAttention]) -> PartialAttention:
    """Attention over the keys of all parts, which must have the same queries and no common key.

    Round it to the dtype of the model afterwards: ``merge_attention(parts).out.to(q.dtype)``.
    """
    _check_parts(parts)
    log_sums = torch.stack([part.log_sum for part in parts])
    largest = log_sums.amax(0).detach()
    # Where no part sees a key, differences of infinities would be NaN.
    largest = torch.where(largest.isfinite(), largest, 0.0)
    weights = (log_sums - largest).exp()
    total = weights.sum(0)
    known = total.clamp(min=torch.finfo(total.dtype).tiny)
    out = sum((w / known).unsqueeze(-1) * part.out for w, part in zip(weights, parts, strict=True))
    assert isinstance(out, Tensor)
    return PartialAttention(out, torch.where(total > 0, known.log() + largest, -torch.inf))


def check_part_positions(
    positions: Tensor | None, encoding: Encoding, masked: bool, where: str
) -> None:
    """Refuse a part of a sequence that does not say where it is; ``masked``: causal or window."""
    if positions is None and (masked or encoding.hooks - {"input"}):
        raise ValueError(
            f"{where}: positions must be given, because a part of a sequence does not show where it"
            " is; got None. Pass positions= of the queries and key_positions= of the keys."
        )
    if positions is None or encoding.position_axes == 1 or positions.dim() == 1:
        return
    if masked or encoding.hooks - {"input", "rotation"}:
        raise ValueError(
            f"{where}: positions on several axes do not say which keys a query comes after, which a"
            f" causal mask, a window or a bias must know; got {list(positions.shape)}. Leave these"
            " out, or with MRoPE pass positions [T]."
        )


def _check_parts(parts: Sequence[PartialAttention]) -> None:
    if not parts or not all(isinstance(part, PartialAttention) for part in parts):
        raise TypeError(
            "merge_attention: parts must be a list of at least one result of partial_attention; got"
            f" {[type(part).__name__ for part in parts]}."
        )
    shapes = [(list(part.out.shape), list(part.log_sum.shape)) for part in parts]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "merge_attention: all parts must have the same queries, out [B, H, T, Dv] and log_sum"
            f" [B, H, T]; got {shapes}."
        )


def _attend(call: SoftmaxCall, q: Tensor, k: Tensor, v: Tensor) -> PartialAttention:
    """Attention and its log sums, in blocks that are computed again in the backward pass."""
    if not q.shape[2] or not k.shape[2]:
        return _build_nothing(call, q, k, v)
    blocks = call.visibility.plan_blocks(call.block)
    scorer = call.build_scorer(q, k, blocks)
    recompute = len(blocks) > 1 and call.needs_recomputing(q, k, v)
    done: list[PartialAttention] = []
    for block in blocks:
        arguments = (call, block.take_queries(q, 2), k, v, block, scorer)
        if recompute:
            part = checkpoint(_attend_block, *arguments, use_reentrant=False)
        else:
            part = _attend_block(*arguments)
        done.append(part)
    if len(done) == 1:
        return done[0]
    return PartialAttention(*(torch.cat(each, 2) for each in zip(*done, strict=True)))


def _attend_block(
    call: SoftmaxCall,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block: QueryBlock,
    scorer: Scorer | None,
) -> PartialAttention:
    q, k, v = call.take_block(q, k, v, block)
    if not k.shape[2]:
        return _build_nothing(call, q, k, v)
    content = call.score_content(q, k, block, scorer)
    bias, any_visible = call.compute_bias_and_mask(q, block)
    scores = call.compute_scores(q, k, content, bias)
    log_sum = scores.logsumexp(-1)
    out = call.sum_values((scores - log_sum.unsqueeze(-1)).exp(), v, block)
    if any_visible is not None:
        out = torch.where(any_visible, out, 0.0)
        log_sum = torch.where(any_visible.squeeze(-1), log_sum, -torch.inf)
    return PartialAttention(out, log_sum)


def _build_nothing(call: SoftmaxCall, q: Tensor, k: Tensor, v: Tensor) -> PartialAttention:
    """The result of queries that see no key, in the graph of all tensors."""
    wide = choose_table_dtype(q)
    out = build_zeros(q.to(wide), k, v, *call.encoding.parameters(), width=v.shape[3])
    return PartialAttention(out, out[..., :1].sum(-1) - torch.inf)
