"""The frequency of each pair, fitted to its angles at growing positions.

Given the vectors (1, 0) and (0, 1), a pair returns its 2 x 2 block

    c1  -s1        first output channel  (a'): angle atan2(s1, c1), size hypot(c1, s1)
    s2   c2        second output channel (b'): angle atan2(s2, c2), size hypot(c2, s2)

The two channels are measured separately, because some mistakes make them differ. The zero in each
input vector keeps sin exact to the last bit, however small it is. So the frequency of a slow pair
is as precise as its sine at any position, and that of a fast pair becomes more precise with the
position: one weighted fit uses both. Angles are unwrapped from each position to the next, starting
at 0 and 1. Frequencies that differ by a multiple of 2 pi give the same results at all whole
positions; the smallest of them is taken.
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
    """Frequencies, phases and sizes of n pairs, each [n, 2]: first and second output channel.

    frequency: radians per position, signed. phase: the angle at position 0.
    size: the factor on the vector at position 0. growth: change of ln size per position.
    angle_misfit, size_misfit: the largest relative difference between a measured angle or size
    and what these numbers predict.
    """

    frequency: Tensor
    phase: Tensor
    size: Tensor
    growth: Tensor
    angle_misfit: float
    size_misfit: float


def measure_blocks(
    probe: FunctionProbe, pairs: Pairs, positions: Sequence[int], dtype: str | None = None
) -> Tensor:
    """The 2 x 2 block of every pair at every position: float64 [T, n, 2, 2], rows are outputs."""
    inputs = torch.zeros(2, probe.head_dim, dtype=torch.float64)
    inputs[0, pairs.a_in] = 1
    inputs[1, pairs.b_in] = 1
    out = probe.rotate_vectors(inputs, positions, dtype)  # [T, 2, D]
    return torch.stack((out[..., pairs.a_out], out[..., pairs.b_out]), dim=-1).permute(0, 2, 3, 1)


def compute_angles(blocks: Tensor) -> Tensor:
    """Angles of both output channels of blocks [T, n, 2, 2], from -pi to pi: [T, n, 2]."""
    first = torch.atan2(-blocks[..., 0, 1], blocks[..., 0, 0])
    second = torch.atan2(blocks[..., 1, 0], blocks[..., 1, 1])
    return torch.stack((first, second), dim=-1)


def fit_rotations(blocks: Tensor, positions: Sequence[int]) -> PairRotations:
    """Rotations that fit blocks [T, n, 2, 2] at ascending positions, the first of which is 0."""
    angles = compute_angles(blocks)
    sizes = blocks.norm(dim=-1).clamp(min=1e-300)
    at = torch.tensor(positions, dtype=torch.float64)
    frequency, misfit = _fit_frequencies(angles, at)
    growth = _fit_growth(sizes.log(), at)
    size = (sizes.log() - growth * at[:, None, None]).mean(0).exp()
    model = size * (growth * at[:, None, None]).exp()
    return PairRotations(
        frequency=frequency,
        phase=angles[0],
        size=size,
        growth=growth,
        angle_misfit=misfit,
        size_misfit=float((sizes / model - 1).abs().max()),
    )


def _fit_growth(logs: Tensor, at: Tensor) -> Tensor:
    """Slope of the logarithms of sizes, or 0 where the rest is as large as what it explains.

    Sizes that vary around a constant have a slope too; it would predict huge sizes far away.
    """
    slope = _fit_slope(logs, at)
    left = logs - slope * at[:, None, None]
    variation = left.amax(0) - left.amin(0)
    return torch.where(
        slope.abs() * (at[-1] - at[0]) > 2 * variation, slope, torch.zeros_like(slope)
    )


def predict_blocks(rotations: PairRotations, positions: Sequence[int]) -> Tensor:
    """Blocks [T, n, 2, 2] of these rotations at some positions, in float64."""
    at = torch.tensor(positions, dtype=torch.float64)[:, None, None]
    angle = rotations.phase + rotations.frequency * at
    size = rotations.size * (rotations.growth * at).exp()
    cos, sin = angle.cos() * size, angle.sin() * size
    upper = torch.stack((cos[..., 0], -sin[..., 0]), dim=-1)
    lower = torch.stack((sin[..., 1], cos[..., 1]), dim=-1)
    return torch.stack((upper, lower), dim=-2)


def compute_difference(a: Tensor, b: Tensor) -> float:
    """Largest difference between two tensors; inf where only one of two numbers is not finite."""
    same = (a == b) | (a.isnan() & b.isnan())
    difference = (a - b).abs().nan_to_num(nan=math.inf)
    return float(torch.where(same, torch.zeros_like(difference), difference).max())


def wrap_angle(angle: Tensor) -> Tensor:
    """The same angle, from -pi to pi."""
    return angle - 2 * math.pi * torch.round(angle / (2 * math.pi))


def _fit_frequencies(angles: Tensor, at: Tensor) -> tuple[Tensor, float]:
    """Frequencies [n, 2] and the largest relative misfit of an angle.

    Weighted means of (angle - phase) / position; each angle is unwrapped by the mean so far.
    """
    phase = angles[0]
    frequency = wrap_angle(angles[1] - phase) / at[1]
    total, weights = torch.zeros_like(frequency), torch.zeros_like(frequency)
    unwrapped = []
    for p, angle in zip(at[1:], angles[1:], strict=True):
        whole = frequency * p
        whole = whole + wrap_angle(angle - phase - whole)
        # Rounding of cos and sin is relative to an angle below 1 and absolute above it.
        spread = (whole.abs().clamp(max=1) + phase.abs().clamp(max=1) + whole.abs() / 2) / p
        weight = 1 / (spread + 1e-300) ** 2
        known = spread > 0
        weight = torch.where(known, weight, torch.ones_like(weight))
        total, weights = total + weight * whole / p, weights + weight
        frequency = total / weights
        unwrapped.append(whole)
    ideal = frequency * at[1:, None, None]
    size = torch.stack(unwrapped).abs().clamp(min=1e-30) + phase.abs()
    misfit = (torch.stack(unwrapped) - ideal).abs() / size
    return frequency, float(misfit.max())


def _fit_slope(values: Tensor, at: Tensor) -> Tensor:
    centred = (at - at.mean())[:, None, None]
    return (values * centred).sum(0) / (centred**2).sum()
