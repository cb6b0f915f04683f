"""Right answers in float64, for some rows of a call, and the judge of a contestant's answer.

    out_i = sum_(j <= i) softmax_j(q_i . k_j / sqrt(D) + bias_(i-j)) v_j
    linear: out_i = sum_(j <= i) n_ij v_j / sum_(j <= i) d_ij,  see ``whorl.linear_attention``

Only some rows are computed, so that a call of 64k tokens is checked in seconds.
"""

import math

import torch
from torch import Tensor

from whorl.encodings import Encoding
from whorl.kernels import reference

from .plan import HEAD_DIM, HEADS

__all__ = ["decoded", "difference", "inputs", "linear", "rows_of", "softmax", "turned"]

_ROWS = 16


def inputs(length: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Normal q, k, v [1, H, T, D]."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, HEADS, length, HEAD_DIM, generator=generator) for _ in range(3))
    return q, k, v


def rows_of(length: int) -> Tensor:
    """Rows that are compared: the first, the last, and others evenly between."""
    return torch.linspace(0, length - 1, min(length, _ROWS)).round().long()


def softmax(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, encoding: Encoding | None = None
) -> Tensor:
    """Causal attention of the queries ``rows``: float64 [1, H, N, D], differentiable."""
    distance = rows[:, None] - torch.arange(k.shape[2])  # [N, S]
    scores = q[:, :, rows].double() @ k.double().mT / math.sqrt(q.shape[3])
    if encoding is not None:
        bias = encoding.distance_bias(distance)
        assert bias is not None
        scores = scores + bias.double()
    return scores.masked_fill(distance < 0, -math.inf).softmax(-1) @ v.double()


def linear(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, feature_map: str) -> Tensor:
    """Causal linear attention with RoPE (half layout) of the queries ``rows``, float64."""
    at = torch.arange(k.shape[2])
    q, k = q[:, :, rows].double(), k.double()
    if feature_map == "cosine":
        q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
        above = below = 1.0 + turned(q, rows) @ turned(k, at).mT
    else:
        q, k = (x.relu() if feature_map == "relu" else _elu(x) for x in (q, k))
        above, below = turned(q, rows) @ turned(k, at).mT, q @ k.mT
    seen = (rows[:, None] >= at).double()
    return ((above * seen) @ v.double()) / (below * seen).sum(-1, keepdim=True)


def _elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


def decoded(q: Tensor, k: Tensor, v: Tensor, inv_freq: Tensor | None = None) -> Tensor:
    """Attention of one query over all keys, rotated at 0 .. S - 1, the query at S - 1; float64."""
    at = torch.arange(k.shape[2])
    q, k = turned(q.double(), at[-1:], inv_freq), turned(k.double(), at, inv_freq)
    return (q @ k.mT / math.sqrt(q.shape[3])).softmax(-1) @ v.double()


def turned(x: Tensor, positions: Tensor, inv_freq: Tensor | None = None) -> Tensor:
    """x [1, H, T, D] rotated at positions [T] by the reference, as RoPE does by default."""
    if inv_freq is None:
        inv_freq = reference.compute_inv_freq(x.shape[3])
    return reference.rotate(x, reference.compute_table(positions.double()[:, None] * inv_freq))


def difference(
    found: Tensor, expected: Tensor, what: str = "the result", *, slack: int = 64
) -> str | None:
    """None if they agree up to float32 rounding, else what is wrong.

    Rounding errors of a score, of a weight and of their sum are each a few eps of the largest
    entry: ``slack`` in all. Without a bias, one key missed among 16384 is off by ten times 64 eps
    or more.
    """
    if found.shape != expected.shape or found.dtype != torch.float32:
        return f"{what} is {found.dtype} {list(found.shape)}, not float32 {list(expected.shape)}"
    error = float((found.detach().double() - expected).abs().max())
    limit = slack * torch.finfo(torch.float32).eps * float(expected.abs().max())
    if not error <= limit:  # also when NaN
        return f"{what} is off by {error:.2g}, more than {limit:.2g}"
    return None
