"""NTK-aware scaling: raise the base so that slow pairs stretch and the fastest pair stays.

bloc97 2023, NTK-Aware Scaled RoPE; emozilla 2023, Dynamically Scaled RoPE; both described in
Peng et al. 2023, YaRN, sections 3.1 and 3.3, https://arxiv.org/abs/2309.00071.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Frequencies, Ladder, Scaling, register

__all__ = ["NTK", "DynamicNTK"]


def _ntk(ladder: Ladder, stretch: float | Tensor) -> Frequencies:
    """Multiply the base by stretch ** (R / (R - 2)): the last pair slows by exactly ``stretch``."""
    rotary_dim = ladder.rotary_dim
    if rotary_dim == 2:  # the only pair is the fastest one, which never changes
        values = ladder.inv_freq
        return Frequencies(
            values.expand(*stretch.shape, 1) if isinstance(stretch, Tensor) else values
        )
    return Frequencies(ladder.stretched(stretch ** (rotary_dim / (rotary_dim - 2))))


@register("ntk")
@dataclass(frozen=True)
class NTK(Scaling):
    """base -> base factor^(R / (R - 2)), whatever the current length.

    The fastest pair keeps its frequency and the slowest turns ``factor`` times slower.
    """

    factor: float

    def __post_init__(self) -> None:
        self._positive("factor")

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        return _ntk(ladder, float(self.factor))


@register("dynamic_ntk")
@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """NTK whose stretch follows the current length: factor L_now / L - (factor - 1), 1 up to L.

    Formed as 1 + factor (L_now - L) / L, which is exactly 1 at L. ``L_now`` is each row's own
    length, so a row's result never depends on its batch-mates. Keys cached under one length
    disagree with queries of another: see ``RoPE.retune``.
    """

    factor: float
    original_context: int

    def __post_init__(self) -> None:
        self._positive("factor", at_least=1.0)
        if type(self.original_context) is not int or self.original_context < 1:
            raise ValueError(
                "DynamicNTK: original_context must be a positive int, the length that the model"
                f" was trained for; got {self.original_context!r}."
            )

    @property
    def follows_length(self) -> bool:
        return True

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        if context_length is None:
            return Frequencies(ladder.inv_freq)
        trained, factor = self.original_context, float(self.factor)
        if isinstance(context_length, Tensor):
            now = torch.clamp(context_length.to(torch.float64), min=trained)
            return _ntk(ladder, 1.0 + factor * (now - trained) / trained)
        if context_length <= trained:
            return Frequencies(ladder.inv_freq)
        return _ntk(ladder, 1.0 + factor * (context_length - trained) / trained)
