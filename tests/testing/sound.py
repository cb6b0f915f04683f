"""Small encodings of a third party, in no registry, that pass the suite: one for each kind of hook.

``broken.py`` spoils them, one respect at a time.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

import whorl


@dataclass(frozen=True)
class ThirdPartyConfig(whorl.Config):
    """Options of an encoding of the input."""

    dim: int
    strength: float = 1.0


class ThirdParty(whorl.Encoding):
    """input: adds position times a fixed vector to the embeddings."""

    name = "third_party"
    config: ThirdPartyConfig

    def __init__(self, dim: int, strength: float = 1.0) -> None:
        super().__init__()
        self.config = ThirdPartyConfig(dim, strength)

    def embed(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor = 0
    ) -> Tensor:
        at = torch.arange(x.shape[1], device=x.device) if positions is None else positions
        at = at + (offset.unsqueeze(-1) if isinstance(offset, Tensor) else offset)
        return (x.double() + at.double().unsqueeze(-1) * self.config.strength / 100).to(x.dtype)


@dataclass(frozen=True)
class HeadsConfig(whorl.Config):
    """Options of an encoding that differs by head."""

    num_heads: int = 4
    head_dim: int = 16


class PerHead(whorl.Encoding):
    """Base of the toys that act in attention."""

    name = "per_head"
    config: HeadsConfig

    def __init__(self, num_heads: int = 4, head_dim: int = 16) -> None:
        super().__init__()
        self.config = HeadsConfig(num_heads, head_dim)


class Slope(PerHead):
    """score: a bias that falls with distance, for each head at its own fixed rate."""

    def distance_bias(self, distance: Tensor) -> Tensor:
        heads = torch.arange(1, self.config.num_heads + 1, device=distance.device).double()
        slopes = (heads / 3).view(-1, *[1] * distance.dim())
        return (-distance.abs() * slopes).float()


class Bucket(PerHead):
    """score: a trained bias for each distance up to 7, which must be whole."""

    fractional: ClassVar[bool] = False

    def __init__(self, num_heads: int = 4, head_dim: int = 16) -> None:
        super().__init__(num_heads, head_dim)
        self.table = nn.Parameter(torch.zeros(num_heads, 8))

    def distance_bias(self, distance: Tensor) -> Tensor:
        if distance.is_floating_point():
            raise TypeError(f"Bucket: distances must be integers; got {distance.dtype}.")
        return self.table[:, distance.abs().clamp(max=7)]


class Lookback(PerHead):
    """score and value: a trained direction in content, weighted by nearness."""

    def __init__(self, num_heads: int = 4, head_dim: int = 16) -> None:
        super().__init__(num_heads, head_dim)
        self.direction = nn.Parameter(torch.zeros(num_heads, 1, head_dim))

    def content_score(
        self, q: Tensor, k: Tensor, positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        asked = (q.double() * self.direction.double()).sum(-1, keepdim=True)  # [B, H, T, 1]
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        offered = (k.double() * self.direction.double()).sum(-1).unsqueeze(-2)  # [B, H, 1, S]
        return ((asked + offered) * _nearness(positions, key_positions)).to(q.dtype)

    def value_term(self, weights: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor:
        near = (weights.double() * _nearness(positions, key_positions)).sum(-1, keepdim=True)
        return (near * self.direction.double()).to(weights.dtype)


class Cool(PerHead):
    """scale: a softmax scale of its own, and queries that sharpen with their position."""

    def softmax_scale(self, head_dim: int) -> float:
        return 2.0 / head_dim

    def query_scale(self, positions: Tensor) -> Tensor:
        return (1 + positions.double()).log1p().float()


def _nearness(positions: Tensor, key_positions: Tensor) -> Tensor:
    """1 / (1 + |i - j|), with an axis for heads where positions have one for the batch."""
    distance = (positions.unsqueeze(-1) - key_positions.unsqueeze(-2)).double()
    near = 1 / (1 + distance.abs())
    return near.unsqueeze(1) if near.dim() == 3 else near


SOUND: list[whorl.Encoding] = [
    ThirdParty(8, strength=2.0),
    Slope(),
    Bucket(num_heads=3),
    Lookback(),
    Cool(),
    ThirdParty(8) + whorl.RoPE(16) + Slope() + Cool(),
    ThirdParty(8) + Lookback() + Slope() + Cool(),
    whorl.RoPE(16) + Bucket(),
]
