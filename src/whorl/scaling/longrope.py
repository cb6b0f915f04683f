"""LongRoPE: one factor for each pair, in one set for short and one for long contexts.

    theta_i / short_i  up to the original context L,  theta_i / long_i  past it
    attention scale a = sqrt(1 + ln s / ln L), and 1 for s <= 1, in both

Ding et al. 2024, LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens,
https://arxiv.org/abs/2402.13753; the attention scale is that of the code released with it and of
Phi-3. Absent: the first tokens that the paper leaves unscaled, which no released model uses.

As in transformers, the long set applies if L_now > L, so L itself is short, and a is the same in
both. Different: each batch row switches by its own length, not by that of the longest row. Keys
that were cached before the switch must be changed after it: see ``RoPE.retune``.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.words import quote

from .base import Frequencies, Ladder, Scaling, register

__all__ = ["LongRoPE"]


@register("longrope")
@dataclass(frozen=True, repr=False)
class LongRoPE(Scaling):
    """theta_i divided by the factor of its pair.

    Args:
        short_factors, long_factors: one number for each rotated pair; any sequence or tensor.
        original_context: L, the last length that uses the short factors.
        factor: s, new length over original_context; only the attention scale needs it.
        attention_factor: the attention scale itself, instead of ``factor``'s.
        long_attention_factor: the attention scale past L, where it differs (Phi-3.5-MoE).
    """

    short_factors: Sequence[float]  # stored as a tuple
    long_factors: Sequence[float]
    original_context: int
    _: KW_ONLY
    factor: float | None = None
    attention_factor: float | None = None
    long_attention_factor: float | None = None

    def __post_init__(self) -> None:
        for option in ("short_factors", "long_factors"):
            object.__setattr__(self, option, _freeze_factors(getattr(self, option), option))
        if len(self.short_factors) != len(self.long_factors):
            raise ValueError(
                "LongRoPE: short_factors and long_factors must be equally long, one for each pair;"
                f" got {len(self.short_factors)} and {len(self.long_factors)}."
            )
        for option in ("factor", "attention_factor", "long_attention_factor"):
            if getattr(self, option) is not None:
                self._check_positive(option)
        if self.factor is None and self.attention_factor is None:
            raise ValueError(
                "LongRoPE: factor, the new length over the original one, must be given for the"
                " attention scale sqrt(1 + ln factor / ln original_context); got none. Pass factor"
                " or attention_factor."
            )
        by_formula = self.attention_factor is None
        self._check_original_context(at_least=2 if by_formula else 1)  # the formula divides by ln L

    @property
    def follows_length(self) -> bool:
        return True

    @property
    def short_context_limit(self) -> int | None:
        return self.original_context

    @property
    def fixed_past_limit(self) -> bool:
        return True

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        pairs, given = ladder.inv_freq.shape[0], len(self.short_factors)
        if given != pairs:
            raise ValueError(
                f"LongRoPE: short_factors and long_factors must hold {pairs} factors, one for each"
                f" pair of the {2 * pairs} rotated channels; got {given}."
            )
        short, long = self._compute_side(ladder, "short"), self._compute_side(ladder, "long")
        if not isinstance(context_length, Tensor):
            return long if (context_length or 0) > self.original_context else short
        past = context_length > self.original_context
        far, near = long.inv_freq.to(past.device), short.inv_freq.to(past.device)
        inv_freq = torch.where(past.unsqueeze(-1), far, near)
        if long.attention_scale == short.attention_scale:
            return Frequencies(inv_freq, short.attention_scale)
        ones = torch.ones(past.shape, dtype=torch.float64, device=past.device)
        scale = torch.where(past, ones * long.attention_scale, ones * short.attention_scale)
        return Frequencies(inv_freq, scale)

    def _compute_side(self, ladder: Ladder, side: str) -> Frequencies:
        factors = self.long_factors if side == "long" else self.short_factors
        like = ladder.inv_freq
        divisors = torch.tensor(factors, dtype=like.dtype, device=like.device)
        scale = self.attention_factor
        if side == "long" and self.long_attention_factor is not None:
            scale = self.long_attention_factor
        scale = self._compute_default_scale() if scale is None else scale
        return Frequencies(ladder.divide_by(divisors), scale)

    def _compute_default_scale(self) -> float:
        assert self.factor is not None
        if self.factor <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_context))


def _freeze_factors(values: object, option: str) -> tuple[float, ...]:
    """A tuple of positive numbers from any sequence, array or tensor."""
    if isinstance(values, Tensor):
        check_storage(values, "LongRoPE", option)
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, (list, tuple)) and plain:
        wrong = [v for v in plain if isinstance(v, bool) or not isinstance(v, (int, float))]
        wrong = wrong or [v for v in plain if not 0 < v < math.inf]
        if not wrong:
            return tuple(float(v) for v in plain)
        got = f"{quote(wrong[0])} among {len(plain)}"
    else:
        got = quote(plain)
    raise ValueError(
        f"LongRoPE: {option} must be finite numbers above 0, one for each pair; got {got}."
    )
