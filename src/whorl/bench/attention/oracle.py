"""Expected results in float64, and their comparison with those of a contestant.

    out_i = sum_(j <= i) softmax_j(q_i . k_j / sqrt(D) + bias_(i-j)) v_j
    linear: out_i = sum_(j <= i) n_ij v_j / sum_(j <= i) d_ij,  see ``whorl.linear_attention``

Only some rows are computed, so that a call with 64k tokens is verified in seconds.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from whorl.bench.contestants import Contestant
from whorl.encodings import Encoding
from whorl.kernels import reference

from .plan import HEAD_DIM, HEADS

__all__ = [
    "choose_rows",
    "compute_decode",
    "compute_linear",
    "compute_softmax",
    "describe_difference",
    "make_contestant",
    "make_inputs",
    "rotate",
]

_ROWS = 16


def make_inputs(length: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k, v [1, H, T, D], normally distributed."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, HEADS, length, HEAD_DIM, generator=generator) for _ in range(3))
    return q, k, v


def choose_rows(length: int) -> Tensor:
    """Rows that are compared: the first, the last, and others evenly spaced between them."""
    return torch.linspace(0, length - 1, min(length, _ROWS)).round().long()


def compute_softmax(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, encoding: Encoding | None = None
) -> Tensor:
    """Output of causal attention for the queries ``rows``, float64 [1, H, N, D]."""
    distance = rows[:, None] - torch.arange(k.shape[2])  # [N, S]
    scores = q[:, :, rows].double() @ k.double().mT / math.sqrt(q.shape[3])
    if encoding is not None:
        bias = encoding.distance_bias(distance)
        assert bias is not None
        scores = scores + bias.double()
    return scores.masked_fill(distance < 0, -math.inf).softmax(-1) @ v.double()


def compute_linear(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, feature_map: str) -> Tensor:
    """Output of causal linear attention with RoPE (half layout) for ``rows``, float64."""
    at = torch.arange(k.shape[2])
    q, k = q[:, :, rows].double(), k.double()
    if feature_map == "cosine":
        q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
        above = below = 1.0 + rotate(q, rows) @ rotate(k, at).mT
    else:
        q, k = (x.relu() if feature_map == "relu" else _apply_elu(x) for x in (q, k))
        above, below = rotate(q, rows) @ rotate(k, at).mT, q @ k.mT
    seen = (rows[:, None] >= at).double()
    return ((above * seen) @ v.double()) / (below * seen).sum(-1, keepdim=True)


def _apply_elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


def compute_decode(q: Tensor, k: Tensor, v: Tensor, inv_freq: Tensor | None = None) -> Tensor:
    """Output of one query at position S - 1 over keys at positions 0 .. S - 1, float64."""
    at = torch.arange(k.shape[2])
    q, k = rotate(q.double(), at[-1:], inv_freq), rotate(k.double(), at, inv_freq)
    return (q @ k.mT / math.sqrt(q.shape[3])).softmax(-1) @ v.double()


def rotate(x: Tensor, positions: Tensor, inv_freq: Tensor | None = None) -> Tensor:
    """x [1, H, T, D], rotated at positions [T] as RoPE does by default."""
    if inv_freq is None:
        inv_freq = reference.compute_inv_freq(x.shape[3])
    return reference.rotate(x, reference.compute_table(positions.double()[:, None] * inv_freq))


def make_contestant(
    name: str, call: Callable[[], Tensor], rows: Tensor, expect: Callable[[], Tensor]
) -> Contestant:
    """A contestant whose result must have, in ``rows``, what ``expect`` computes."""
    return Contestant(name, call, lambda: describe_difference(call()[:, :, rows], expect()))


def describe_difference(
    found: Tensor, expected: Tensor, what: str = "the result", *, slack: int = 64
) -> str | None:
    """What is wrong with ``found``; None if it is ``expected`` up to float32 rounding.

    ``slack`` is the error that is allowed, in eps of the largest entry; scores, weights and sums
    each add a few eps. A result that leaves out one of 16384 keys is off by ten times 64 eps or
    more, if there is no bias.
    """
    if found.shape != expected.shape or found.dtype != torch.float32:
        return f"{what} is {found.dtype} {list(found.shape)}, not float32 {list(expected.shape)}"
    error = float((found.detach().double() - expected).abs().max())
    limit = slack * torch.finfo(torch.float32).eps * float(expected.abs().max())
    if not error <= limit:  # also when NaN
        return f"{what} is off by {error:.2g}, more than {limit:.2g}"
    return None
