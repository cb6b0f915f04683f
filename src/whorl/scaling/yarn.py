"""YaRN: NTK by parts, with queries and keys multiplied by a scale a that grows with the factor s.

    a = attention_factor, if given
      = g(s, mscale) / g(s, mscale_all_dim), if both are given and not 0
      = g(s, 1), otherwise                          g(s, m) = 0.1 m ln s + 1, and 1 for s <= 1

The logits carry a^2, the paper's 1 / t: sqrt(1 / t) = 0.1 ln s + 1.
Peng et al. 2023, YaRN, sections 3.2 to 3.4, https://arxiv.org/abs/2309.00071. The two mscales are
DeepSeek's: DeepSeek-AI 2024, DeepSeek-V2, https://arxiv.org/abs/2405.04434.

As in transformers, mscale without mscale_all_dim, or the other way round, has no effect
(mscale_rule="each" follows DeepSeek's own code, where it has), and the factor is the option, never
a ratio of lengths. Different: attention_factor 0, which would erase every rotated channel, is
refused. Not included: models with latent attention also multiply their softmax scale by
g(s, mscale_all_dim)^2.
"""

import math
from dataclasses import dataclass
from typing import Literal, overload

import torch
from torch import Tensor

from ._ramps import interpolate_frequencies
from .base import Frequencies, Ladder, compute_length_ratio, register
from .by_parts import ByPartsOptions

__all__ = ["DynamicYaRN", "MscaleRule", "YaRN", "compute_mscale"]

MscaleRule = Literal["both", "each"]


@dataclass(frozen=True, kw_only=True, repr=False)
class _AttentionOptions(ByPartsOptions):
    """The options of YaRN that decide the attention scale."""

    mscale: float | None = None
    mscale_all_dim: float | None = None
    mscale_rule: MscaleRule = "both"
    attention_factor: float | None = None

    def _check_attention(self) -> None:
        for option in ("mscale", "mscale_all_dim"):
            value = getattr(self, option)
            if value is not None and value != 0:  # configs write 0 for "none"
                self._check_positive(option)
        self._check_choice("mscale_rule", ("both", "each"))
        if self.attention_factor is not None:
            self._check_positive("attention_factor")

    @overload
    def _compute_attention_scale(self, factor: float) -> float: ...
    @overload
    def _compute_attention_scale(self, factor: float | Tensor) -> float | Tensor: ...
    def _compute_attention_scale(self, factor: float | Tensor) -> float | Tensor:
        if self.attention_factor is not None:
            return float(self.attention_factor)
        above, below = self.mscale, self.mscale_all_dim
        if self.mscale_rule == "each":
            above, below = (1.0 if above is None else above), below or 0.0
        elif not (above and below):
            above, below = 1.0, 0.0
        assert above is not None
        assert below is not None
        return compute_mscale(factor, above) / compute_mscale(factor, below)


@register("yarn")
@dataclass(frozen=True, repr=False)
class YaRN(_AttentionOptions):
    """NTKByParts with an attention scale.

    Args:
        factor: new length over original_context.
        original_context: the length that the model was trained for.
        beta_fast, beta_slow, ramp, truncate: as in ``NTKByParts``; ramp="rotations" is the paper.
        mscale, mscale_all_dim: weights in the attention scale, see above.
        mscale_rule: "both" (transformers) uses them only if both are given; "each" (DeepSeek)
            takes a missing mscale as 1 and a missing mscale_all_dim as 0.
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
        self._check_positive("factor", at_least=1.0)
        self._check_original_context()
        self._check_parts()
        self._check_attention()

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        unscaled = self._compute_unscaled_share(ladder, self.original_context)
        scale = self._compute_attention_scale(self.factor)
        return Frequencies(interpolate_frequencies(ladder.inv_freq, self.factor, unscaled), scale)


@register("dynamic_yarn")
@dataclass(frozen=True, repr=False)
class DynamicYaRN(_AttentionOptions):
    """YaRN with the smallest factor that fits the context length: s = max(1, L_now / L).

    Nothing changes up to ``original_context``. Each batch row uses its own length.
    Peng et al. 2023, section 3.3; transformers has no such type.
    """

    original_context: int

    def __post_init__(self) -> None:
        self._check_original_context()
        self._check_parts()
        self._check_attention()

    @property
    def follows_length(self) -> bool:
        return True

    @property
    def short_context_limit(self) -> int | None:
        return self.original_context

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        factor = compute_length_ratio(context_length, self.original_context)
        unscaled = self._compute_unscaled_share(ladder, self.original_context)
        scale = self._compute_attention_scale(factor)
        return Frequencies(interpolate_frequencies(ladder.inv_freq, factor, unscaled), scale)

    def full_factor(self, context_length: int | None) -> float:
        return float(compute_length_ratio(context_length, self.original_context))


@overload
def compute_mscale(factor: float, weight: float) -> float: ...
@overload
def compute_mscale(factor: float | Tensor, weight: float) -> float | Tensor: ...
def compute_mscale(factor: float | Tensor, weight: float) -> float | Tensor:
    """The scale g(s, m) = 0.1 m ln s + 1, and 1 for s <= 1."""
    if isinstance(factor, Tensor):
        return 0.1 * weight * torch.log(factor.clamp(min=1.0)) + 1.0
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0
