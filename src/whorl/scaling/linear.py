"""Linear scaling, also called position interpolation: every frequency divided by the factor.

Chen et al. 2023, Extending Context Window of Large Language Models via Positional Interpolation,
https://arxiv.org/abs/2306.15595.
"""

from dataclasses import dataclass

from torch import Tensor

from .base import Frequencies, Ladder, Scaling, register

__all__ = ["Linear"]


@register("linear")
@dataclass(frozen=True)
class Linear(Scaling):
    """theta_i / factor: ``factor`` times as many positions fit into the angles seen in training.

    >>> import whorl
    >>> rope = whorl.RoPE(8, scaling=whorl.Linear(factor=4.0))
    >>> rope.frequencies().inv_freq.tolist()
    [0.25, 0.025, 0.0025, 0.00025]
    """

    factor: float

    def __post_init__(self) -> None:
        self._positive("factor")

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        return Frequencies(ladder.inv_freq / self.factor)
