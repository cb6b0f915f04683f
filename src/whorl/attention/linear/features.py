"""Features of linear attention: what stands in for exp(q k), and where a rotation enters.

    elu      phi(x) = elu(x) + 1 = exp(min(x, 0)) + max(x, 0)
    relu     phi(x) = max(x, 0)
    cosine   phi(x) = (R_p x / |x|, 1), the product of two of which is 1 + cosine

A vector gives two of them: f for the numerator, rotated, and g for the denominator, which is not
rotated (elu, relu) or the same tensor (cosine, or no rotation at all).

elu(x) + 1 itself is exactly 0 in float32 below -17; where(x > 0, x + 1, exp(x)) has the values of
the above, but takes four times as long and its gradient is NaN from 89 on, where exp overflows.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl.encodings.base import Encoding
from whorl.encodings.rotary.call import ResolvedPositions
from whorl.encodings.rotary.rotary import KEY, QUERY, Rotary
from whorl.encodings.xpos import XPos

__all__ = ["FEATURE_MAPS", "KEY", "QUERY", "FeatureMap", "Features", "Pair", "part", "unscaling"]

FeatureMap = Literal["elu", "relu", "cosine"]
FEATURE_MAPS = ("elu", "relu", "cosine")

# Shorter vectors have no direction: their cosine with all others falls to 0. Small enough for any
# activation, and its square is a normal float32.
_SHORTEST = 1e-12


class Pair(NamedTuple):
    """Features of queries or of keys, [B, H, T, F]: of the numerator, and of the denominator."""

    f: Tensor
    g: Tensor


class Features(NamedTuple):
    """How the vectors of one call become features.

    undo: factor on rotated queries, [D] or [B, 1, 1, D], that takes an attention scale out again.
    """

    kind: FeatureMap
    dtype: torch.dtype
    rotation: Encoding | None
    context_length: int | Tensor | None
    undo: Tensor | None

    def of(self, x: Tensor, where: ResolvedPositions, role: int) -> Pair:
        """Features of queries or keys [B, H, T, D] at ``where``."""
        mapped = self._mapped(x)
        rotation, (positions, first), length = self.rotation, where, self.context_length
        if rotation is None:
            turned = mapped
        elif isinstance(rotation, Rotary):
            turned = rotation.rotate(mapped, positions, offset=first, context_length=length)
        else:  # one that knows pairs only: give it x as both
            turned = rotation(mapped, mapped, positions, offset=first, context_length=length)[role]
        return self._pair(turned, mapped, role)

    def both(
        self, q: Tensor, k: Tensor, where: ResolvedPositions, reference: int | Tensor | None
    ) -> tuple[Pair, Pair]:
        """Features of the queries and keys of the same tokens; reference: of XPos.

        One call of the rotation, because past its table cos and sin take longer than the rest.
        """
        mapped = turned = self._mapped(q), self._mapped(k)
        rotation, (positions, first) = self.rotation, where
        if isinstance(rotation, XPos):
            turned = rotation(*mapped, positions, offset=first, reference=reference)
        elif rotation is not None:
            length = self.context_length
            turned = rotation(*mapped, positions, offset=first, context_length=length)
        return self._pair(turned[0], mapped[0], QUERY), self._pair(turned[1], mapped[1], KEY)

    def _mapped(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        if self.kind == "elu":
            # relu, not clamp(min=0): at 0 both clamps would pass the gradient on, which is 1.
            return x.clamp(max=0).exp_() + x.relu()
        if self.kind == "relu":
            return x.relu()
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x / length.clamp(min=_SHORTEST)

    def _pair(self, turned: Tensor, mapped: Tensor, role: int) -> Pair:
        if self.undo is not None and role == QUERY:
            turned = turned * self.undo
        if self.kind == "cosine":
            turned = mapped = F.pad(turned, (0, 1), value=1.0)
        return Pair(turned, mapped)


def unscaling(
    rotation: Encoding | None, context_length: int | Tensor | None, like: Tensor, dtype: torch.dtype
) -> Tensor | None:
    """1 / a^2 for the rotated channels, where a scaling puts a on those of queries and keys."""
    if not isinstance(rotation, Rotary) or getattr(rotation.config, "scaling", None) is None:
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


def part(where: ResolvedPositions, start: int, length: int) -> ResolvedPositions:
    """Positions of tokens start .. start + length - 1 out of those of all."""
    values, first = where
    return (None, first + start) if values is None else (values[..., start : start + length], 0)
