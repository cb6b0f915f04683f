"""NTK by parts: keep the fast pairs, interpolate the slow ones, blend those between.

With r_i = L / wavelength_i, the rotations of pair i within the original context:

    r_i > beta_fast      theta_i            training contains every angle often: keep
    r_i < beta_slow      theta_i / factor   training contains no full rotation: interpolate
    between              a linear blend

ramp="index": linear in the pair index i between two corners, as in the released code and
transformers; ``truncate`` rounds the corners outward to whole indices. The docstring of
``_ramps.compute_unscaled_share_by_index`` lists its special cases.
ramp="rotations": linear in r_i, as in the paper's equations, without those special cases.
ramp="backward": by index too, with beta_fast below beta_slow, which transformers accepts. The ramp
then runs the other way: fast pairs are interpolated and slow pairs are kept.
Peng et al. 2023, YaRN, section 3.2, https://arxiv.org/abs/2309.00071 (its beta is beta_fast, its
alpha beta_slow).
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ._ramps import (
    compute_unscaled_share_by_index,
    compute_unscaled_share_by_rotations,
    interpolate_frequencies,
)
from .base import Frequencies, Ladder, Scaling, register

__all__ = ["ByPartsOptions", "NTKByParts", "Ramp"]

Ramp = Literal["index", "rotations", "backward"]


@dataclass(frozen=True, kw_only=True, repr=False)
class ByPartsOptions(Scaling):
    """The options of NTKByParts and YaRN that decide which pairs keep their frequency."""

    beta_fast: float = 32.0
    beta_slow: float = 1.0
    ramp: Ramp = "index"
    truncate: bool = True

    def _check_parts(self) -> None:
        name = type(self).__name__
        self._check_positive("beta_fast")
        self._check_positive("beta_slow")
        self._check_choice("ramp", ("index", "rotations", "backward"))
        if self.beta_fast < self.beta_slow and self.ramp != "backward":
            raise ValueError(
                f"{name}: beta_fast must be at least beta_slow, because pairs that rotate more"
                f" often keep their frequency; got {self.beta_fast!r} and {self.beta_slow!r}."
                " Swap the two."
            )
        if self.beta_fast >= self.beta_slow and self.ramp == "backward":
            raise ValueError(
                f"{name}: ramp='backward' is for a beta_fast below beta_slow; got"
                f" {self.beta_fast!r} and {self.beta_slow!r}. Leave ramp out."
            )
        self._check_choice("truncate", (True, False))

    def _compute_unscaled_share(self, ladder: Ladder, original_context: int) -> Tensor:
        fast, slow = self.beta_fast, self.beta_slow
        if self.ramp == "rotations":
            return compute_unscaled_share_by_rotations(ladder, original_context, fast, slow)
        name = type(self).__name__
        if ladder.base is None:
            raise ValueError(
                f"{name}: ramp='{self.ramp}' computes its corners from the base, and frequencies"
                " given as inv_freq have none; pass ramp='rotations', which uses the wavelengths."
            )
        if ladder.base <= 1:
            raise ValueError(
                f"{name}: ramp='{self.ramp}' needs a base above 1, because it divides by ln base to"
                f" compute its corners; got {ladder.base!r}. Pass ramp='rotations', which uses the"
                " wavelengths."
            )
        return compute_unscaled_share_by_index(ladder, original_context, fast, slow, self.truncate)


@register("ntk_by_parts")
@dataclass(frozen=True, repr=False)
class NTKByParts(ByPartsOptions):
    """theta_i kept, blended, or divided by ``factor``: by its rotations in ``original_context``.

    Args:
        factor: new length over original_context.
        original_context: the length that the model was trained for.
        beta_fast, beta_slow: a pair with more rotations than beta_fast keeps its frequency; one
            with fewer than beta_slow is interpolated.
        ramp: "index" (released code), "rotations" (paper) or "backward" (what transformers
            computes if beta_fast is below beta_slow).
        truncate: round the corner indices outward; ramp="rotations" has none and ignores it.
    """

    factor: float
    original_context: int

    def __post_init__(self) -> None:
        self._check_positive("factor", at_least=1.0)
        self._check_original_context()
        self._check_parts()

    def frequencies(self, ladder: Ladder, context_length: int | Tensor | None) -> Frequencies:
        unscaled = self._compute_unscaled_share(ladder, self.original_context)
        return Frequencies(interpolate_frequencies(ladder.inv_freq, self.factor, unscaled))
