"""Exact cos and sin of RoPE's angles, computed with 60 digits: the reference for tables."""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext

import torch
from torch import Tensor

__all__ = ["compute_exact_tables"]

# 2 pi with 60 digits: an angle of 2^24 radians, reduced to one rotation, still has 50 right digits.
_DIGITS = 60
_TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918")


def compute_exact_tables(
    positions: Sequence[int],
    head_dim: int,
    base: float,
    *,
    inv_freq: Sequence[float] | None = None,
) -> tuple[Tensor, Tensor]:
    """cos and sin of p base ** (-2 i / D), float64 [T, D/2], with errors below 1e-15.

    The angle is computed and reduced to -pi .. pi with 60 digits, and only then rounded to a float.
    inv_freq: frequencies to use instead of those of ``base``, without rounding.
    """
    with localcontext() as context:
        context.prec = _DIGITS
        if inv_freq is None:
            freqs = [Decimal(base) ** (Decimal(-2 * i) / head_dim) for i in range(head_dim // 2)]
        else:
            freqs = [Decimal(f) for f in inv_freq]
        rows = []
        for position in positions:
            angles = [position * freq for freq in freqs]
            rows.append([float(a - _TWO_PI * (a / _TWO_PI).to_integral_value()) for a in angles])
    cos = [[math.cos(angle) for angle in row] for row in rows]
    sin = [[math.sin(angle) for angle in row] for row in rows]
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)
