"""NTK-aware scaling: raise the base so that slow pairs stretch and the fastest pair stays.

    base -> base s^(R / (R - 2))      NTK: s = factor
                                      DynamicNTK: s = factor L_now / L - (factor - 1), 1 up to L

bloc97 2023, NTK-Aware Scaled RoPE; emozilla 2023, Dynamically Scaled RoPE; both described in
Peng et al. 2023, YaRN, sections 3.1 and 3.3, https://arxiv.org/abs/2309.00071.

Different from transformers' "dynamic": there one length, the longest that the module has seen in
any row and any earlier call, serves the whole batch, and R = 2 divides by zero; here each row has
its own length, and a single pair, which is the fastest, stays. transformers takes L from
``max_position_embeddings``, whatever ``original_max_position_embeddings`` says.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl._support.words import quote

from .base import Frequencies, Ladder, Scaling, register

__all__ = ["NTK", "DynamicNTK"]


def _ntk(ladder: Ladder, stretch: float | Tensor) -> Frequencies:
    """Multiply the base by stretch ** (R / (R - 2)): the last pair slows by exactly ``stretch``."""
    rotary_dim = ladder.rotary_dim
    if rotary_dim == 2:  # the only pair is the fastest one, which never changes
        values = ladder.inv_freq
        if isinstance(stretch, Tensor):
            values = values.to(stretch.device).expand(*stretch.shape, 1)
        return Frequencies(values)
    try:
        by = stretch ** (rotary_dim / (rotary_dim - 2))
    except OverflowError:  # of floats; tensors have infinities
        by = math.inf
    return Frequencies(ladder.stretched(by))


@register("ntk")
@dataclass(frozen=True, repr=False)
class NTK(Scaling):
    """base -> base factor^(R / (R - 2)), whatever the current length.

    The fastest pair keeps its frequency and the slowest turns ``factor`` times slower. A model
    trained with a raised base needs no scaling: pass that base to RoPE.
    """

    factor: float

    def __post_init__(self) -> None:
        self._positive("factor")

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        return _ntk(ladder, float(self.factor))

    def full_factor(self, context_length: int | None) -> float:
        return self.factor


@register("dynamic_ntk")
@dataclass(frozen=True, repr=False)
class DynamicNTK(Scaling):
    """NTK whose stretch follows the current length: factor L_now / L - (factor - 1), 1 up to L.

    Formed as 1 + factor (L_now - L) / L, which is exactly 1 at L. ``L_now`` is each row's own
    length, so a row's result never depends on its batch-mates. Keys cached under one length
    disagree with queries of another: see ``RoPE.retune``.

    alpha: instead of factor and original_context, a stretch that does not follow the length, for
    models whose config says "dynamic" with an ``alpha`` (Hunyuan); the same as NTK(factor=alpha).
    """

    factor: float | None = None
    original_context: int | None = None
    alpha: float | None = None

    def __post_init__(self) -> None:
        if self.alpha is not None:
            self._positive("alpha")
            if self.factor is not None or self.original_context is not None:
                raise ValueError(
                    "DynamicNTK: alpha fixes the stretch, so factor and original_context would"
                    f" change nothing; got {quote(self)}. Leave out the two, or alpha."
                )
            return
        if self.factor is None:
            raise ValueError(
                "DynamicNTK: needs factor and original_context to follow the length, or alpha"
                f" alone to stay put; got {quote(self)}."
            )
        self._positive("factor", at_least=1.0)
        self._context_of_training()

    @property
    def follows_length(self) -> bool:
        return self.alpha is None

    @property
    def short_up_to(self) -> int | None:
        return self.original_context

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        if self.alpha is None and (
            context_length is None
            or (isinstance(context_length, int) and context_length <= self._options[1])
        ):
            return Frequencies(ladder.inv_freq)
        return _ntk(ladder, self._stretch(context_length))

    def full_factor(self, context_length: int | None) -> float:
        return float(self._stretch(context_length))

    @property
    def _options(self) -> tuple[float, int]:
        assert self.factor is not None
        assert self.original_context is not None
        return float(self.factor), self.original_context

    def _stretch(self, context_length: int | Tensor | None) -> float | Tensor:
        if self.alpha is not None:
            return float(self.alpha)
        factor, trained = self._options
        if isinstance(context_length, Tensor):
            now = torch.clamp(context_length.to(torch.float64), min=trained)
            return 1.0 + factor * (now - trained) / trained
        return 1.0 + factor * (max(trained, context_length or trained) - trained) / trained
