"""How fast each pair turns: rates from the angles at growing positions.

Fed with (1, 0) and (0, 1), a pair answers with its 2 x 2 block

    c1  -s1        first output channel  (a'): angle atan2(s1, c1), size hypot(c1, s1)
    s2   c2        second output channel (b'): angle atan2(s2, c2), size hypot(c2, s2)

which are read apart, because mistakes make the two differ. Zeros in the input keep sin exact to the
last bit however small it is, so a slow pair's rate is known to the precision of its sine at any
position, and a fast one's improves with the position; both go into one weighted fit. Angles are
unwrapped from each position to the next, starting at 0 and 1, so a rate is known up to whole turns
per position, which whole positions cannot tell apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .pairs import Pairs
from .probe import FunctionProbe

__all__ = [
    "PairRotations",
    "compute_angles",
    "compute_difference",
    "fit_rotations",
    "measure_blocks",
    "predict_blocks",
    "wrap_angle",
]


@dataclass(frozen=True)
class PairRotations:
    """What n pairs do; the last axis of every [n, 2] is the first and second output channel.

    rate: radians per position, signed. phase: the angle at position 0.
    size: the factor on the vector at 0. growth: change of ln size per position.
    noise: the largest relative misfit of an angle; wobble: of a size.
    """

    rate: Tensor
    phase: Tensor
    size: Tensor
    growth: Tensor
    noise: float
    wobble: float


def measure_blocks(
    probe: FunctionProbe, pairs: Pairs, places: Sequence[int], dtype: str | None = None
) -> Tensor:
    """The 2 x 2 block of every pair at every place: float64 [T, n, 2, 2], rows are outputs."""
    inputs = torch.zeros(2, probe.head_dim, dtype=torch.float64)
    inputs[0, pairs.a_in] = 1
    inputs[1, pairs.b_in] = 1
    out = probe.turned(inputs, places, dtype)  # [T, 2, D]
    return torch.stack((out[..., pairs.a_out], out[..., pairs.b_out]), dim=-1).permute(0, 2, 3, 1)


def compute_angles(seen: Tensor) -> Tensor:
    """Angles of both output channels of blocks [T, n, 2, 2], within half a turn of 0: [T, n, 2]."""
    first = torch.atan2(-seen[..., 0, 1], seen[..., 0, 0])
    second = torch.atan2(seen[..., 1, 0], seen[..., 1, 1])
    return torch.stack((first, second), dim=-1)


def fit_rotations(seen: Tensor, places: Sequence[int]) -> PairRotations:
    """Rates, phases and sizes of blocks [T, n, 2, 2] at ascending places, the first of them 0."""
    angles = compute_angles(seen)
    sizes = seen.norm(dim=-1).clamp(min=1e-300)
    at = torch.tensor(places, dtype=torch.float64)
    rate, noise = _fit_frequencies(angles, at)
    growth = _fit_growth(sizes.log(), at)
    size = (sizes.log() - growth * at[:, None, None]).mean(0).exp()
    model = size * (growth * at[:, None, None]).exp()
    return PairRotations(
        rate=rate,
        phase=angles[0],
        size=size,
        growth=growth,
        noise=noise,
        wobble=float((sizes / model - 1).abs().max()),
    )


def _fit_growth(logs: Tensor, at: Tensor) -> Tensor:
    """The slope of log sizes, 0 where what it leaves over is as large as what it explains.

    Sizes that wobble about a constant have a slope too, which becomes astronomical far out.
    """
    slope = _fit_slope(logs, at)
    left = logs - slope * at[:, None, None]
    wobble = left.amax(0) - left.amin(0)
    return torch.where(slope.abs() * (at[-1] - at[0]) > 2 * wobble, slope, torch.zeros_like(slope))


def predict_blocks(found: PairRotations, places: Sequence[int]) -> Tensor:
    """The blocks [T, n, 2, 2] that the rates give, in float64."""
    at = torch.tensor(places, dtype=torch.float64)[:, None, None]
    angle = found.phase + found.rate * at
    size = found.size * (found.growth * at).exp()
    cos, sin = angle.cos() * size, angle.sin() * size
    upper = torch.stack((cos[..., 0], -sin[..., 0]), dim=-1)
    lower = torch.stack((sin[..., 1], cos[..., 1]), dim=-1)
    return torch.stack((upper, lower), dim=-2)


def compute_difference(a: Tensor, b: Tensor) -> float:
    """The largest difference; numbers that are not finite differ from all but themselves."""
    same = (a == b) | (a.isnan() & b.isnan())
    difference = (a - b).abs().nan_to_num(nan=math.inf)
    return float(torch.where(same, torch.zeros_like(difference), difference).max())


def wrap_angle(angle: Tensor) -> Tensor:
    """The same angle within half a turn of 0."""
    return angle - 2 * math.pi * torch.round(angle / (2 * math.pi))


def _fit_frequencies(angles: Tensor, at: Tensor) -> tuple[Tensor, float]:
    """The weighted mean of (angle - phase) / position, unwrapped with what is known so far."""
    phase = angles[0]
    rate = wrap_angle(angles[1] - phase) / at[1]
    total, weights = torch.zeros_like(rate), torch.zeros_like(rate)
    turned = []
    for p, angle in zip(at[1:], angles[1:], strict=True):
        whole = rate * p
        whole = whole + wrap_angle(angle - phase - whole)
        # cos and sin round relative to an angle below 1 and absolutely above; angles relatively.
        spread = (whole.abs().clamp(max=1) + phase.abs().clamp(max=1) + whole.abs() / 2) / p
        weight = 1 / (spread + 1e-300) ** 2
        known = spread > 0
        weight = torch.where(known, weight, torch.ones_like(weight))
        total, weights = total + weight * whole / p, weights + weight
        rate = total / weights
        turned.append(whole)
    ideal = rate * at[1:, None, None]
    size = torch.stack(turned).abs().clamp(min=1e-30) + phase.abs()
    misfit = (torch.stack(turned) - ideal).abs() / size
    return rate, float(misfit.max())


def _fit_slope(values: Tensor, at: Tensor) -> Tensor:
    centred = (at - at.mean())[:, None, None]
    return (values * centred).sum(0) / (centred**2).sum()
