"""XPos: sizes of pairs that change with the position p, zeta_i^(p/s)."""

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from .identification import Identification
from .pair_rotations import PairRotations
from .pairs import Pairs
from .rounding import list_roundings

__all__ = ["XPosFit", "fit_xpos"]


@dataclass(frozen=True)
class XPosFit:
    """gamma and scale_base of XPos; both None if sizes change by another rule."""

    gamma: float | None
    scale_base: float | None
    role: str
    departs: tuple[str, ...]

    def apply_to(self, found: Identification) -> Identification:
        """The identification as XPos, if it is one."""
        if self.gamma is None or self.scale_base is None or found.base is None:
            return found
        options: dict[str, Any] = dict(found.config or {})
        options.pop("scaling", None)
        if self.gamma != 0.4:
            options["gamma"] = self.gamma
        if self.scale_base != 512:
            options["scale_base"] = self.scale_base
        power = "p/s" if self.role == "query" else "-p/s"
        note = f"an XPos {self.role}: the size of each pair is zeta^({power})"
        return replace(
            found,
            encoding="xpos",
            role=self.role,
            config=options,
            hf=None,
            scaling=None,
            notes=(note, *found.notes),
        )


def fit_xpos(rotations: PairRotations, pairs: Pairs, unit: float) -> XPosFit | None:
    """XPos options that explain how sizes change with the position; None if they do not change."""
    growth = rotations.growth.mean(-1)
    if float(growth.abs().max()) * 15 <= max(1e-9, 64 * unit):
        return None
    role = "query" if float(growth.sum()) < 0 else "key"
    falling = growth if role == "query" else -growth
    steps = pairs.index.double() / (pairs.width // 2)
    found = _fit_gamma(falling, steps, unit)
    if found is None:
        said = f"sizes change by up to {float(growth.abs().max()):.2g} per position"
        return XPosFit(None, None, role, (said,))
    return XPosFit(*found, role, ())


def _fit_gamma(falling: Tensor, steps: Tensor, unit: float) -> tuple[float, float] | None:
    """gamma and s with ln((2 i/R + gamma) / (1 + gamma)) / s = falling, by bisection, or None."""
    if len(falling) < 2:
        return None
    middle = len(falling) // 2
    wanted = float(falling[middle] / falling[0])

    def curve(gamma: float) -> Tensor:
        return ((steps + gamma) / (1 + gamma)).log()

    low, high = 1e-6, 1e3
    for _ in range(200):
        gamma = math.sqrt(low * high)
        values = curve(gamma)
        low, high = (gamma, high) if float(values[middle] / values[0]) < wanted else (low, gamma)
    for rounded in list_roundings(gamma, 1e-3):
        values = curve(rounded)
        base = float(values[0] / falling[0])
        for scale_base in list_roundings(base, 1e-3):
            misfit = (values / scale_base - falling).abs()
            if float(misfit.max()) <= max(1e-9, 16 * unit):  # zeta may be computed in float32
                return rounded, scale_base
    return None
