"""Feature maps of linear attention, whose products replace exp(q k), and their rotation.

    elu      phi(x) = elu(x) + 1 = exp(min(x, 0)) + max(x, 0)
    relu     phi(x) = max(x, 0)
    cosine   phi(x) = (R_p x / |x|, 1), the product of two of which is 1 + cosine
    RandomFeatures   phi(R_p x), the product of two of which estimates exp(q k / sqrt(D))

A vector has two features: a rotated one for the numerator, and one for the denominator, which is
not rotated (elu, relu) or the same tensor (cosine, random features, or no rotation at all).

elu(x) + 1 itself is exactly 0 in float32 below -17; where(x > 0, x + 1, exp(x)) has the values of
the above, but takes four times as long and its gradient is NaN from 89 on, where exp overflows.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.encodings.base import Encoding
from whorl.encodings.rotary.call import ResolvedPositions
from whorl.encodings.rotary.rotary import KEY, QUERY, Rotary

from .random_features import RandomFeatures

__all__ = [
    "FEATURE_MAPS",
    "KEY",
    "QUERY",
    "FeatureMap",
    "FeatureMapName",
    "FeaturePair",
    "Features",
    "compute_unscaling",
    "count_features",
    "take_positions",
]

FeatureMapName = Literal["elu", "relu", "cosine"]
FeatureMap = FeatureMapName | RandomFeatures
FEATURE_MAPS = ("elu", "relu", "cosine")

# Shorter vectors have no direction: their cosine with all others falls to 0. Small enough for any
# activation, and its square is a normal float32.
_SHORTEST = 1e-12


class FeaturePair(NamedTuple):
    """Features of queries or of keys for the numerator and for the denominator, [B, H, T, F]."""

    numerator: Tensor
    denominator: Tensor

    def apply(self, change: Callable[[Tensor], Tensor]) -> "FeaturePair":
        """Both tensors changed; if they are one tensor, they stay one."""
        numerator = change(self.numerator)
        same = self.denominator is self.numerator
        return FeaturePair(numerator, numerator if same else change(self.denominator))

    def split(self, size: int, dim: int) -> list["FeaturePair"]:
        """Pairs of at most ``size`` tokens, which are on axis ``dim``."""
        numerators = torch.split(self.numerator, size, dim)
        same = self.denominator is self.numerator
        denominators = numerators if same else torch.split(self.denominator, size, dim)
        return [FeaturePair(*both) for both in zip(numerators, denominators, strict=True)]


class Features(NamedTuple):
    """How the vectors of one call become features.

    unscaling: factor on rotated queries, [D] or [B, 1, 1, D], that removes an attention scale.
    """

    kind: FeatureMap
    dtype: torch.dtype
    rotation: Encoding | None
    context_length: int | Tensor | None
    unscaling: Tensor | None

    def compute(self, x: Tensor, where: ResolvedPositions, role: int) -> FeaturePair:
        """Features of queries or keys [B, H, T, D] at positions ``where``; role: QUERY or KEY."""
        mapped = self._apply_map(x)
        rotation, (positions, offset), length = self.rotation, where, self.context_length
        if rotation is None:
            rotated = mapped
        elif isinstance(rotation, Rotary):
            rotated = rotation.rotate(mapped, positions, offset=offset, context_length=length)
        else:  # a rotation of queries with keys only: give it x as both
            both = rotation(mapped, mapped, positions, offset=offset, context_length=length)
            rotated = both[role]
        return self._build_pair(rotated, mapped, role)

    def compute_both(
        self, q: Tensor, k: Tensor, where: ResolvedPositions, reference: int | Tensor | None
    ) -> tuple[FeaturePair, FeaturePair]:
        """Features of the queries and keys of the same tokens.

        One call of the rotation, because past its table cos and sin take longer than the rest.
        reference: position for a rotation that has a span, else None.
        """
        mapped = rotated = self._apply_map(q), self._apply_map(k)
        rotation, (positions, offset) = self.rotation, where
        if rotation is not None and reference is not None:
            rotated = rotation(*mapped, positions, offset=offset, reference=reference)
        elif rotation is not None:
            length = self.context_length
            rotated = rotation(*mapped, positions, offset=offset, context_length=length)
        queries = self._build_pair(rotated[0], mapped[0], QUERY)
        return queries, self._build_pair(rotated[1], mapped[1], KEY)

    def _apply_map(self, x: Tensor) -> Tensor:
        """What is rotated: features without the last 1 of "cosine", or x for random ones."""
        x = x.to(self.dtype)
        if isinstance(self.kind, RandomFeatures):
            return x
        if self.kind == "elu":
            # relu, not clamp(min=0): at 0 both clamps would pass the gradient on, which is 1.
            return x.clamp(max=0).exp_() + x.relu()
        if self.kind == "relu":
            return x.relu()
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / length.clamp(min=_SHORTEST)

    def _build_pair(self, rotated: Tensor, mapped: Tensor, role: int) -> FeaturePair:
        if self.unscaling is not None and role == QUERY:
            rotated = rotated * self.unscaling
        if self.kind == "cosine":
            rotated = mapped = F.pad(rotated, (0, 1), value=1.0)
        elif isinstance(self.kind, RandomFeatures):
            kind = self.kind
            compute = kind.compute_query_features if role == QUERY else kind.compute_key_features
            rotated = mapped = compute(rotated)
        return FeaturePair(rotated, mapped)


def count_features(kind: FeatureMap, width: int) -> int:
    """How many features a query or key of ``width`` channels has."""
    if isinstance(kind, RandomFeatures):
        return kind.num_features
    return width + (kind == "cosine")


def compute_unscaling(
    rotation: Encoding | None, context_length: int | Tensor | None, like: Tensor, dtype: torch.dtype
) -> Tensor | None:
    """1 / a^2 for rotated channels, if a scaling multiplies those of queries and keys by a."""
    if not isinstance(rotation, Rotary) or rotation.config.scaling is None:
        return None
    scale = rotation.frequencies(context_length).attention_scale
    if not isinstance(scale, Tensor) and scale == 1.0:
        return None
    start, width = rotation.config.rotary_start, rotation.config.width
    channels = torch.arange(like.shape[-1], device=like.device)
    rotated = (channels >= start) & (channels < start + width)
    if isinstance(scale, Tensor):
        scale = scale.to(like.device)[..., None, None, None]
    return torch.where(rotated, scale**-2, torch.ones_like(rotated, dtype=torch.float64)).to(dtype)


def take_positions(where: ResolvedPositions, start: int, length: int) -> ResolvedPositions:
    """Positions of tokens start .. start + length - 1, out of those of all tokens."""
    positions, offset = where
    if positions is None:
        return None, offset + start
    return positions[..., start : start + length], 0
