"""Positive orthogonal random features, whose products estimate exp(q k / sqrt(D)): FAVOR+.

    phi(x)_i = exp(w_i y - |y|^2 / 2) / sqrt(M),    y = x / D^(1/4),    i = 1 .. M

Each w_i is a normal vector of D numbers; those of a block of D are orthogonal to each other, which
lowers the error. The expectation of phi(q) phi(k) is exp(q k / sqrt(D)), what softmax attention
divides by its sum. Choromanski et al. 2020, Rethinking Attention with Performers, sections 2.3 and
2.4, https://arxiv.org/abs/2009.14794.

The features of a query are divided by the largest of them, which cancels in attention. Absent are
the constant that the authors' code adds to every feature, because it makes the estimate biased, and
drawing other vectors during training.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whorl._support.words import quote

__all__ = ["RandomFeatures"]

# Keys have larger exponents only if they are several times longer than normal and lie along a w_i.
# Sums of a million keys stay within float32.
_LARGEST_EXPONENT = 60.0


@dataclass(frozen=True)
class RandomFeatures:
    """A feature map of ``linear_attention`` that estimates softmax attention.

    Args:
        head_dim: width of queries and keys.
        num_features: how many features each of them gets; the error falls with its square root.
        seed: two maps with the same arguments are the same.

    >>> import torch, whorl
    >>> q, k, v = torch.randn(3, 1, 2, 50, 16, generator=torch.Generator().manual_seed(0)) / 2
    >>> favor = whorl.RandomFeatures(16, num_features=4096)
    >>> estimate = whorl.linear_attention(q, k, v, whorl.RoPE(16), feature_map=favor, causal=True)
    >>> exact = whorl.attention(q, k, v, whorl.RoPE(16), causal=True)
    >>> float((estimate - exact).abs().mean()) < 0.01
    True
    """

    head_dim: int
    num_features: int = 256
    seed: int = 0
    #: Rows w_i, float64 [M, D].
    projection: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, least in (("head_dim", 1), ("num_features", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(
                    f"RandomFeatures: {name} must be a whole number of at least {least}; got"
                    f" {quote(value)}."
                )
        drawn = _draw_projection(self.head_dim, self.num_features, self.seed)
        object.__setattr__(self, "projection", drawn)

    def compute_log_features(self, x: Tensor) -> Tensor:
        """Logarithms [..., T, M] of the features of queries or keys [..., T, D]."""
        scaled = x * self.head_dim**-0.25
        products = scaled @ self.projection.to(x).mT
        squares = scaled.square().sum(-1, keepdim=True)
        logs: Tensor = products - (squares + math.log(self.num_features)) / 2
        return logs

    def compute_query_features(self, q: Tensor) -> Tensor:
        """Features [..., T, M] of queries, the largest of each being 1."""
        logs = self.compute_log_features(q)
        return (logs - logs.detach().amax(-1, keepdim=True)).exp()

    def compute_key_features(self, k: Tensor) -> Tensor:
        """Features [..., T, M] of keys."""
        return self.compute_log_features(k).clamp(max=_LARGEST_EXPONENT).exp()


def _draw_projection(width: int, count: int, seed: int) -> Tensor:
    """Normal vectors [count, width], orthogonal in blocks of ``width``."""
    source = torch.Generator().manual_seed(seed)

    def draw() -> Tensor:
        return torch.randn(width, width, generator=source, dtype=torch.float64)

    blocks = []
    for _ in range(-(-count // width)):
        directions, triangle = torch.linalg.qr(draw())
        # With the signs of the diagonal, all directions are equally likely.
        directions = directions * triangle.diagonal().sign()
        blocks.append(directions.mT * torch.linalg.vector_norm(draw(), dim=-1, keepdim=True))
    return torch.cat(blocks)[:count]
