"""NTK-aware scaling: a larger base, which slows the slow pairs most and the fastest not at all.

    base -> base s^(R / (R - 2))      NTK: s = factor
                                      DynamicNTK: s = factor L_now / L - (factor - 1), 1 up to L

bloc97 2023, NTK-Aware Scaled RoPE; emozilla 2023, Dynamically Scaled RoPE; both described in
Peng et al. 2023, YaRN, sections 3.1 and 3.3, https://arxiv.org/abs/2309.00071.

Different from transformers' "dynamic": there, the whole batch uses one length, the longest of any
row in this and all earlier calls of the module, and R = 2 divides by zero. Here each row uses its
own length, and a single pair, which is the fastest, does not change. transformers takes L from
``max_position_embeddings`` and ignores ``original_max_position_embeddings``.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from whorl._support.words import quote

from .base import Frequencies, Ladder, Scaling, register

__all__ = ["NTK", "DynamicNTK"]


def _raise_base(ladder: Ladder, factor: float | Tensor) -> Frequencies:
    """Frequencies of the base times factor ** (R / (R - 2)): the last pair slows by ``factor``."""
    rotary_dim = ladder.rotary_dim
    if rotary_dim == 2:  # the only pair is the fastest one, which never changes
        values = ladder.inv_freq
        if isinstance(factor, Tensor):
            values = values.to(factor.device).expand(*factor.shape, 1)
        return Frequencies(values)
    try:
        base_factor = factor ** (rotary_dim / (rotary_dim - 2))
    except OverflowError:  # only floats raise it; tensors become infinite
        base_factor = math.inf
    return Frequencies(ladder.multiply_base(base_factor))


@register("ntk")
@dataclass(frozen=True, repr=False)
class NTK(Scaling):
    """base -> base factor^(R / (R - 2)), at every context length.

    The fastest pair keeps its frequency and the slowest rotates ``factor`` times slower. A model
    trained with a raised base needs no scaling: pass that base to RoPE.
    """

    factor: float

    def __post_init__(self) -> None:
        self._check_positive("factor")

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        return _raise_base(ladder, float(self.factor))


@register("dynamic_ntk")
@dataclass(frozen=True, repr=False)
class DynamicNTK(Scaling):
    """NTK whose factor depends on the length: s = factor L_now / L - (factor - 1), 1 up to L.

    Computed as 1 + factor (L_now - L) / L, which is exactly 1 at L. ``L_now`` is each row's own
    length, so a row's result never depends on other rows of the batch. Keys cached at one length do
    not fit queries at another: see ``RoPE.retune``.

    alpha: instead of factor and original_context, an s that does not depend on the length, for
    models whose config says "dynamic" with an ``alpha`` (Hunyuan); the same as NTK(factor=alpha).
    """

    factor: float | None = None
    original_context: int | None = None
    alpha: float | None = None

    def __post_init__(self) -> None:
        if self.alpha is not None:
            self._check_positive("alpha")
            if self.factor is not None or self.original_context is not None:
                raise ValueError(
                    "DynamicNTK: alpha is a fixed factor, so factor and original_context would"
                    f" change nothing; got {quote(self)}. Leave out the two, or alpha."
                )
            return
        if self.factor is None:
            raise ValueError(
                "DynamicNTK: factor and original_context, or alpha alone, must be given; got"
                f" {quote(self)}. Pass factor and original_context for a scaling that depends on"
                " the length, or alpha for a fixed one."
            )
        self._check_positive("factor", at_least=1.0)
        self._check_original_context()

    @property
    def follows_length(self) -> bool:
        return self.alpha is None

    @property
    def short_context_limit(self) -> int | None:
        return self.original_context

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        if self.alpha is None and (
            context_length is None
            or (isinstance(context_length, int) and context_length <= self._options[1])
        ):
            return Frequencies(ladder.inv_freq)
        return _raise_base(ladder, self._compute_factor(context_length))

    def full_factor(self, context_length: int | None) -> float:
        return float(self._compute_factor(context_length))

    @property
    def _options(self) -> tuple[float, int]:
        assert self.factor is not None
        assert self.original_context is not None
        return float(self.factor), self.original_context

    def _compute_factor(self, context_length: int | Tensor | None) -> float | Tensor:
        if self.alpha is not None:
            return float(self.alpha)
        factor, trained = self._options
        if isinstance(context_length, Tensor):
            now = torch.clamp(context_length.to(torch.float64), min=trained)
            return 1.0 + factor * (now - trained) / trained
        return 1.0 + factor * (max(trained, context_length or trained) - trained) / trained
