"""Norms of queries and keys, head by head, so that scores cannot grow with their lengths.

    q' = q / sqrt(mean(q^2) + eps) * weight      the mean over the D channels of a head

Henry et al. 2020, Query-Key Normalization, https://arxiv.org/abs/2010.04245, divide by the length;
Dehghani et al. 2023, ViT-22B, https://arxiv.org/abs/2302.05442, keep large models from diverging by
it. Qwen3 (https://arxiv.org/abs/2505.09388) has exactly this RMS norm, before the rotation; OLMo 2
(https://arxiv.org/abs/2501.00656) has one over all heads together, which is not offered here.

A rotation keeps the length of a head, so that the norm commutes with it and only the weight tells
"before" from "after": R (w * q / |q|) is not w * R q / |q|. Before the rotation, scores still
depend on differences of positions only. After it they do so only while both channels of a pair
have the same weight, which nothing keeps them at.
"""

from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whorl._support.words import quote
from whorl.encodings import Encoding
from whorl.encodings.rotary.rotary import Rotary
from whorl.types import QueryKeyNorm

__all__ = ["HeadNorm", "check_qk_norm", "normalize_heads"]


class HeadNorm(nn.Module):
    """RMS norm over the channels of each head, with a trained weight [D] that starts at 1.

    The mean is taken in float32 or wider; the result has the dtype of the input.
    """

    def __init__(self, head_dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self._normalize(x, self.weight)

    def divide(self, x: Tensor) -> Tensor:
        """``forward`` without the weight."""
        return self._normalize(x, None)

    def _normalize(self, x: Tensor, weight: Tensor | None) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        weight = None if weight is None else weight.to(wide.dtype)
        return F.rms_norm(wide, x.shape[-1:], weight, self.eps).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, eps={self.eps:g}"


def normalize_heads(
    q: Tensor, k: Tensor, q_norm: HeadNorm, k_norm: HeadNorm, where: QueryKeyNorm
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Queries and keys for ``attention``, and its ``query_weight`` if the norm comes after.

    Norms before a rotation are the same as after it, but for their weights. Those of keys may be
    multiplied into the queries, because a score is a sum over channels of their products; so a
    cache of rotated keys does not depend on weights.
    """
    if where == "before":
        return q_norm(q), k_norm(k), None
    return q_norm.divide(q), k_norm.divide(k), q_norm.weight * k_norm.weight


def check_qk_norm(qk_norm: Any, encoding: Encoding | None, where: str) -> None:
    """Refuse an unknown norm, and one after a rotation where nothing rotates or lengths change."""
    known = get_args(QueryKeyNorm)
    if qk_norm not in known:
        raise ValueError(
            f"{where}: qk_norm must be one of {', '.join(map(repr, known))}; got {quote(qk_norm)}."
        )
    if qk_norm != "after":
        return
    rotation = None if encoding is None else encoding.rotating_part
    if rotation is None:
        raise ValueError(
            f"{where}: qk_norm='after' needs an encoding that rotates queries and keys, such as"
            f" RoPE; got {quote(encoding)}. Pass qk_norm='before'."
        )
    if not isinstance(rotation, Rotary) or rotation.acts("span"):
        raise ValueError(
            f"{where}: qk_norm='after' needs a rotation that keeps the length of a head, because"
            f" the norm would remove what it changes; got {quote(rotation)}. Pass qk_norm='before'."
        )
