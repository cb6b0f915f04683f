"""Proportional rotation: the fast pairs of the whole head rotate, the slow ones do not.

    theta_i / factor  for i < n,  0  for the others      n = floor(rotary_share R / 2)

Different from a smaller ``rotary_dim``: the exponent contains R, the full width, and channels form
pairs across the full width, so the same share gives other frequencies and other pairs.
Barbero et al. 2024, Round and Round We Go! What makes Rotary Positional Encodings useful?,
https://arxiv.org/abs/2410.06205 (there p-RoPE); transformers calls it "proportional" (Gemma 4).
"""

from dataclasses import dataclass

from torch import Tensor

from whorl._support.words import quote

from .base import Frequencies, Ladder, Scaling, register

__all__ = ["Proportional"]


@register("proportional")
@dataclass(frozen=True, repr=False)
class Proportional(Scaling):
    """Frequency 0 for all pairs past the first ``rotary_share`` of them.

    >>> import whorl
    >>> from whorl.scaling import Proportional
    >>> rope = whorl.RoPE(8, scaling=Proportional(rotary_share=0.5))
    >>> rope.frequencies().inv_freq.tolist()
    [1.0, 0.1, 0.0, 0.0]
    """

    rotary_share: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        share = self.rotary_share
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
            raise ValueError(
                "Proportional: rotary_share must be a number from 0 to 1, the share of all pairs"
                f" that rotate; got {quote(share)}."
            )
        self._check_positive("factor")

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        rotating = int(self.rotary_share * ladder.rotary_dim // 2)
        inv_freq = ladder.inv_freq / self.factor
        inv_freq[rotating:] = 0.0
        return Frequencies(inv_freq)
