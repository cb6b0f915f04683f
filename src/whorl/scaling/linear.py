"""Linear scaling, also called position interpolation: every frequency divided by one factor.

    theta_i / s      Linear: s = factor      DynamicLinear: s = max(1, L_now / L)

Chen et al. 2023, Extending Context Window of Large Language Models via Positional Interpolation,
https://arxiv.org/abs/2306.15595; the dynamic form is from Peng et al. 2023, YaRN, section 3.3,
https://arxiv.org/abs/2309.00071. transformers calls the first "linear" and lacks the second.
"""

from dataclasses import dataclass

from torch import Tensor

from .base import Frequencies, Ladder, Scaling, compute_length_ratio, divide_frequencies, register

__all__ = ["DynamicLinear", "Linear"]


@register("linear")
@dataclass(frozen=True, repr=False)
class Linear(Scaling):
    """theta_i / factor: ``factor`` times as many positions fit into the angles of training.

    >>> import whorl
    >>> rope = whorl.RoPE(8, scaling=whorl.Linear(factor=4.0))
    >>> rope.frequencies().inv_freq.tolist()
    [0.25, 0.025, 0.0025, 0.00025]
    """

    factor: float

    def __post_init__(self) -> None:
        self._check_positive("factor")

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        return Frequencies(ladder.inv_freq / self.factor)


@register("dynamic_linear")
@dataclass(frozen=True, repr=False)
class DynamicLinear(Scaling):
    """Linear with the smallest factor that fits the context length: s = max(1, L_now / L).

    Nothing changes up to ``original_context``. Each batch row uses its own length.
    """

    original_context: int

    def __post_init__(self) -> None:
        self._check_original_context()

    @property
    def follows_length(self) -> bool:
        return True

    @property
    def short_context_limit(self) -> int | None:
        return self.original_context

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        factor = compute_length_ratio(context_length, self.original_context)
        return Frequencies(divide_frequencies(ladder.inv_freq, factor))

    def full_factor(self, context_length: int | None) -> float:
        return float(compute_length_ratio(context_length, self.original_context))
