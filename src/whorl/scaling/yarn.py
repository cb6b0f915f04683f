"""YaRN: NTK by parts, and queries and keys multiplied by a factor a that grows with the stretch.

    a = attention_factor, if given
      = g(s, mscale) / g(s, mscale_all_dim), if both are given and not 0
      = g(s, 1), otherwise                          g(s, m) = 0.1 m ln s + 1, and 1 for s <= 1

The logits carry a^2, the paper's 1 / t: sqrt(1 / t) = 0.1 ln s + 1.
Peng et al. 2023, YaRN, sections 3.2 to 3.4, https://arxiv.org/abs/2309.00071. The two mscales are
DeepSeek's: DeepSeek-AI 2024, DeepSeek-V2, https://arxiv.org/abs/2405.04434.

Settled as in transformers: a lone mscale or mscale_all_dim counts for nothing (mscale_rule="each"
is DeepSeek's own code, where it counts); the factor is what you pass, never a ratio of lengths.
Different: attention_factor 0, which would erase every rotated channel, is refused. That models
with latent attention also multiply their softmax scale by g(s, mscale_all_dim)^2 is not part of it.
"""

import math
from dataclasses import dataclass
from typing import Literal, overload

import torch
from torch import Tensor

from ._ramps import blended
from .base import Frequencies, Ladder, growth, register
from .by_parts import Parts

__all__ = ["DynamicYaRN", "MscaleRule", "YaRN", "mscale"]

MscaleRule = Literal["both", "each"]


@dataclass(frozen=True, kw_only=True, repr=False)
class _Attention(Parts):
    """The options that say by how much rotated channels are multiplied."""

    mscale: float | None = None
    mscale_all_dim: float | None = None
    mscale_rule: MscaleRule = "both"
    attention_factor: float | None = None

    def _check_attention(self) -> None:
        for option in ("mscale", "mscale_all_dim"):
            value = getattr(self, option)
            if value is not None and value != 0:  # configs write 0 for "none"
                self._positive(option)
        self._one_of("mscale_rule", ("both", "each"))
        if self.attention_factor is not None:
            self._positive("attention_factor")

    @overload
    def _attention_scale(self, stretch: float) -> float: ...
    @overload
    def _attention_scale(self, stretch: float | Tensor) -> float | Tensor: ...
    def _attention_scale(self, stretch: float | Tensor) -> float | Tensor:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        above, below = self.mscale, self.mscale_all_dim
        if self.mscale_rule == "each":
            above, below = (1.0 if above is None else above), below or 0.0
        elif not (above and below):
            above, below = 1.0, 0.0
        assert above is not None
        assert below is not None
        return mscale(stretch, above) / mscale(stretch, below)


@register("yarn")
@dataclass(frozen=True, repr=False)
class YaRN(_Attention):
    """NTKByParts with an attention scale.

    Args:
        factor: new length over original_context.
        original_context: the length that the model was trained for.
        beta_fast, beta_slow, ramp, truncate: as in ``NTKByParts``; ramp="rotations" is the paper.
        mscale, mscale_all_dim: weights in the attention scale, see above.
        mscale_rule: "both" (transformers) lets them count together or not at all; "each"
            (DeepSeek) takes a missing mscale for 1 and a missing mscale_all_dim for 0.
        attention_factor: the attention scale itself.

    >>> import whorl
    >>> from whorl.scaling import YaRN
    >>> rope = whorl.RoPE(128, base=1e6, scaling=YaRN(factor=4.0, original_context=32_768))
    >>> round(rope.frequencies().attention_scale, 6)
    1.138629
    """

    factor: float
    original_context: int

    def __post_init__(self) -> None:
        self._positive("factor", at_least=1.0)
        self._context_of_training()
        self._check_parts()
        self._check_attention()

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        kept = self._kept(ladder, self.original_context)
        scale = self._attention_scale(self.factor)
        return Frequencies(blended(ladder.inv_freq, self.factor, kept), scale)

    def full_factor(self, context_length: int | None) -> float:
        return self.factor


@register("dynamic_yarn")
@dataclass(frozen=True, repr=False)
class DynamicYaRN(_Attention):
    """YaRN with the smallest factor that fits the current length: s = max(1, L_now / L).

    Nothing changes up to ``original_context``. Each row of a batch follows its own length.
    Peng et al. 2023, section 3.3; transformers has no such type.
    """

    original_context: int

    def __post_init__(self) -> None:
        self._context_of_training()
        self._check_parts()
        self._check_attention()

    @property
    def follows_length(self) -> bool:
        return True

    @property
    def short_up_to(self) -> int | None:
        return self.original_context

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        stretch = growth(context_length, self.original_context)
        kept = self._kept(ladder, self.original_context)
        return Frequencies(blended(ladder.inv_freq, stretch, kept), self._attention_scale(stretch))

    def full_factor(self, context_length: int | None) -> float:
        return float(growth(context_length, self.original_context))


@overload
def mscale(stretch: float, weight: float) -> float: ...
@overload
def mscale(stretch: float | Tensor, weight: float) -> float | Tensor: ...
def mscale(stretch: float | Tensor, weight: float) -> float | Tensor:
    """g(s, m) = 0.1 m ln s + 1, and 1 for s <= 1."""
    if isinstance(stretch, Tensor):
        return 0.1 * weight * torch.log(stretch.clamp(min=1.0)) + 1.0
    return 0.1 * weight * math.log(stretch) + 1.0 if stretch > 1 else 1.0
