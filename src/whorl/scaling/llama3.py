"""Llama-3's scaling: NTK by parts with a ramp in rotations and its own corners.

With r_i = L / wavelength_i, the rotations of pair i within the original context:

    r_i > high_freq_factor      theta_i
    r_i < low_freq_factor       theta_i / factor
    between                     (1 - t) theta_i / factor + t theta_i

where t = (r_i - low_freq_factor) / (high_freq_factor - low_freq_factor).

From the code released with Llama 3.1; the models: Grattafiori et al. 2024, The Llama 3 Herd of
Models, https://arxiv.org/abs/2407.21783. It is the paper ramp of ``NTKByParts`` with beta_fast = 4
and beta_slow = 1. As in transformers, low = high makes a step. Different: a pair exactly on the
step keeps its frequency, where transformers gives NaN.
"""

from dataclasses import dataclass

from torch import Tensor

from ._ramps import compute_unscaled_share_by_rotations, interpolate_frequencies
from .base import Frequencies, Ladder, Scaling, register

__all__ = ["Llama3"]


@register("llama3")
@dataclass(frozen=True, repr=False)
class Llama3(Scaling):
    """Wavelengths below L / high_freq_factor kept, above L / low_freq_factor divided.

    >>> import whorl
    >>> from whorl.scaling import Llama3
    >>> rope = whorl.RoPE(128, base=500_000.0, scaling=Llama3(factor=8.0, original_context=8192))
    """

    factor: float
    original_context: int
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        self._check_positive("factor", at_least=1.0)
        self._check_original_context()
        self._check_positive("low_freq_factor")
        self._check_positive("high_freq_factor")
        if self.high_freq_factor < self.low_freq_factor:
            raise ValueError(
                "Llama3: high_freq_factor must be at least low_freq_factor, because fast pairs keep"
                f" their frequency; got {self.high_freq_factor!r} and {self.low_freq_factor!r}."
                " Swap the two."
            )

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        fast, slow = self.high_freq_factor, self.low_freq_factor
        unscaled = compute_unscaled_share_by_rotations(ladder, self.original_context, fast, slow)
        return Frequencies(interpolate_frequencies(ladder.inv_freq, self.factor, unscaled))
