"""NTK by parts: keep the fast pairs, interpolate the slow ones, blend those between.

With r_i = L / wavelength_i, the turns of pair i within the original context:

    r_i > beta_fast      theta_i            every angle was seen often: keep
    r_i < beta_slow      theta_i / factor   not one full turn was seen: interpolate
    between              a linear blend

ramp="index": linear in the pair index i between the two corners, which ``truncate`` rounds outward
to whole indices, as in the released code and transformers (``_ramps.kept_by_index`` lists its
corner cases). ramp="rotations": linear in r_i, as in the paper's equations, free of those cases.
ramp="backward": by index too, with beta_fast below beta_slow, which transformers lets pass: the
ramp is turned round, so that fast pairs are interpolated and slow ones kept.
Peng et al. 2023, YaRN, section 3.2, https://arxiv.org/abs/2309.00071 (its beta is beta_fast, its
alpha beta_slow).
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ._ramps import blended, kept_by_index, kept_by_rotations
from .base import Frequencies, Ladder, Scaling, register

__all__ = ["NTKByParts", "Parts", "Ramp"]

Ramp = Literal["index", "rotations", "backward"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Parts(Scaling):
    """The options that say which pairs are kept; NTKByParts and YaRN share them."""

    beta_fast: float = 32.0
    beta_slow: float = 1.0
    ramp: Ramp = "index"
    truncate: bool = True

    def _check_parts(self) -> None:
        name = type(self).__name__
        self._positive("beta_fast")
        self._positive("beta_slow")
        self._one_of("ramp", ("index", "rotations", "backward"))
        if self.beta_fast < self.beta_slow and self.ramp != "backward":
            raise ValueError(
                f"{name}: beta_fast must be at least beta_slow, because pairs that turn more often"
                f" are the kept ones; got {self.beta_fast!r} and {self.beta_slow!r}. Swap them?"
            )
        if self.beta_fast >= self.beta_slow and self.ramp == "backward":
            raise ValueError(
                f"{name}: ramp='backward' is for a beta_fast below beta_slow; got"
                f" {self.beta_fast!r} and {self.beta_slow!r}. Leave ramp out."
            )
        self._one_of("truncate", (True, False))

    def _kept(self, ladder: Ladder, original_context: int) -> Tensor:
        fast, slow = self.beta_fast, self.beta_slow
        if self.ramp == "rotations":
            return kept_by_rotations(ladder, original_context, fast, slow)
        name = type(self).__name__
        if ladder.base is None:
            raise ValueError(
                f"{name}: ramp='{self.ramp}' finds its corners from the base, which frequencies of"
                " your own do not have; pass ramp='rotations', which reads their wavelengths."
            )
        if ladder.base <= 1:
            raise ValueError(
                f"{name}: ramp='{self.ramp}' needs a base above 1, because its corners are found by"
                f" dividing by ln base; got {ladder.base!r}. Pass ramp='rotations', which reads"
                " the wavelengths."
            )
        return kept_by_index(ladder, original_context, fast, slow, self.truncate)


@register("ntk_by_parts")
@dataclass(frozen=True, repr=False)
class NTKByParts(Parts):
    """theta_i kept, divided by ``factor``, or blended, by the turns within ``original_context``.

    Args:
        factor: new length over original_context.
        original_context: the length that the model was trained for.
        beta_fast, beta_slow: turns above which a pair is kept, below which it is interpolated.
        ramp: "index" (released code), "rotations" (paper) or "backward" (what transformers makes
            of betas in the wrong order).
        truncate: round the corner indices outward; of ramp="index" only, the other has none.
    """

    factor: float
    original_context: int

    def __post_init__(self) -> None:
        self._positive("factor", at_least=1.0)
        self._context_of_training()
        self._check_parts()

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        kept = self._kept(ladder, self.original_context)
        return Frequencies(blended(ladder.inv_freq, self.factor, kept))

    def full_factor(self, context_length: int | None) -> float:
        return self.factor
