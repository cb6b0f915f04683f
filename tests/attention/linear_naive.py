"""Linear attention from its definition: every pair of tokens, in float64."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Turn", "naive", "random", "rotary", "unrotated"]

Turn = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def unrotated(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return q, k


def rotary(positions: Tensor, key_positions: Tensor, inv_freq: Tensor) -> Turn:
    """RoPE in the half layout as a complex product, on the first 2 P channels; no scale."""

    def turned(x: Tensor, at: Tensor) -> Tensor:
        pairs = inv_freq.shape[-1]
        angles = at.double().unsqueeze(-1) * inv_freq  # [T, P] or [B, T, P]
        angles = angles.unsqueeze(-3) if angles.dim() == 3 else angles
        one, other, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
        z = torch.complex(one, other) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((z.real, z.imag, rest), -1)

    return lambda q, k: (turned(q, positions), turned(k, key_positions))


def naive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    turn: Turn = unrotated,
    kind: str = "elu",
    weights: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """weights: [.., T, S], 0 where a query does not see a key; all 1 by default."""
    q, k, v = q.double(), k.double(), v.double()
    groups = q.shape[1] // k.shape[1]
    k_turned_like = k
    if kind == "cosine":
        q_turned, k_turned = turn(q, k_turned_like)
        size = q.norm(dim=-1)[..., None] * k.norm(dim=-1).repeat_interleave(groups, 1)[:, :, None]
        product = q_turned @ k_turned.repeat_interleave(groups, 1).mT
        above = below = 1 + torch.where(size > 0, product / size, 0.0)
    else:
        phi = (lambda x: torch.where(x > 0, x + 1, x.exp())) if kind == "elu" else torch.relu
        q, k = phi(q), phi(k)
        q_turned, k_turned = turn(q, k)
        above = q_turned @ k_turned.repeat_interleave(groups, 1).mT
        below = q @ k.repeat_interleave(groups, 1).mT
    if weights is not None:
        above, below = above * weights, below * weights
    total = below.sum(-1, keepdim=True)
    least = 0.0 if kind == "elu" else eps
    return torch.where(total > least, above @ v.repeat_interleave(groups, 1) / total, 0.0)
