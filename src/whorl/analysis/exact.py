"""cos and sin of RoPE's angles with fifty digits: what tables are measured against."""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext

import torch
from torch import Tensor

__all__ = ["exact_tables"]

# 2 pi, cut after 60 digits: an angle of 2^24 radians is reduced with 50 digits to spare.
_DIGITS = 60
_TURN = Decimal("6.28318530717958647692528676655900576839433879875021164194988918")


def exact_tables(
    positions: Sequence[int],
    head_dim: int,
    base: float,
    *,
    inv_freq: Sequence[float] | None = None,
) -> tuple[Tensor, Tensor]:
    """cos and sin of p base ** (-2 i / D), float64 [T, D/2], right to 1e-15.

    The angle is formed and brought to -pi .. pi with 60 digits; only then does it become a float.
    inv_freq: frequencies instead of those of ``base``, each taken for exactly what it is.
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
            rows.append([float(a - _TURN * (a / _TURN).to_integral_value()) for a in angles])
    cos = [[math.cos(angle) for angle in row] for row in rows]
    sin = [[math.sin(angle) for angle in row] for row in rows]
    return torch.tensor(cos, dtype=torch.float64), torch.tensor(sin, dtype=torch.float64)
