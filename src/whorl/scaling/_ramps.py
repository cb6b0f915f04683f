"""Ramps between unscaled and interpolated frequencies, for NTKByParts, YaRN and Llama3.

    theta'_i = theta_i / s (1 - u_i) + theta_i u_i

u_i is the unscaled share of pair i: 1 for pairs that rotate at least ``fast`` times within the
original context L, 0 for pairs that rotate at most ``slow`` times, and between 0 and 1 for the
others. r_i = L / wavelength_i is the number of rotations.
"""

import math

import torch
from torch import Tensor

from .base import Ladder, divide_frequencies

__all__ = [
    "compute_unscaled_share_by_index",
    "compute_unscaled_share_by_rotations",
    "interpolate_frequencies",
]


def interpolate_frequencies(inv_freq: Tensor, factor: float | Tensor, unscaled: Tensor) -> Tensor:
    """theta / s where the share ``unscaled`` is 0, theta where it is 1, a blend between them.

    The result is [P], or [B, P] for a factor per batch row.
    """
    interpolated = divide_frequencies(inv_freq, factor)
    inv_freq, unscaled = inv_freq.to(interpolated.device), unscaled.to(interpolated.device)
    # 1 - unscaled, not the ramp itself: transformers rounds it this way, which shows in float32.
    return interpolated * (1 - unscaled) + inv_freq * unscaled


def compute_unscaled_share_by_rotations(
    ladder: Ladder, original_context: int, fast: float, slow: float
) -> Tensor:
    """The share clip((r_i - slow) / (fast - slow), 0, 1) of each pair; a step if fast = slow."""
    rotations = original_context / ladder.wavelengths
    if fast == slow:
        return (rotations >= fast).to(rotations.dtype)
    return torch.clamp((rotations - slow) / (fast - slow), 0, 1)


def compute_unscaled_share_by_index(
    ladder: Ladder, original_context: int, fast: float, slow: float, truncate: bool
) -> Tensor:
    """The share 1 - clip((i - low) / (high - low), 0, 1) of each pair i.

    low and high are the indices at which r is ``fast`` and ``slow``. This repeats the released code
    with its special cases: low is at least 0, high is at most R - 1 (not R/2 - 1, so it may lie
    past the last pair), and if the two are equal, high is raised by 0.001. The two limits cross if
    every pair is slower than ``slow``, or far faster than ``fast``. The ramp then runs backwards:
    all pairs keep their frequency in the first case, and all are interpolated in the second.
    """
    assert ladder.base is not None
    low = _find_pair_index(ladder.rotary_dim, ladder.base, fast, original_context)
    high = _find_pair_index(ladder.rotary_dim, ladder.base, slow, original_context)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, ladder.rotary_dim - 1)
    if low == high:
        high += 0.001
    dtype, device = ladder.inv_freq.dtype, ladder.inv_freq.device
    index = torch.arange(ladder.rotary_dim // 2, dtype=dtype, device=device)
    return 1 - torch.clamp((index - low) / (high - low), 0, 1)


def _find_pair_index(
    rotary_dim: int, base: float, rotations: float, original_context: int
) -> float:
    """The fractional index i of a pair that rotates ``rotations`` times within the context.

    It solves base^(-2 i / R) = 2 pi rotations / L, with the operations in the order of
    transformers, because ``truncate`` would turn a rounding difference into a whole index. Where
    its quotient is 0 or infinite, transformers fails; logarithms are subtracted instead.
    """
    longest = original_context / (rotations * 2 * math.pi)
    if 0 < longest < math.inf:
        return rotary_dim * math.log(longest) / (2 * math.log(base))
    log = math.log(original_context) - math.log(rotations) - math.log(2 * math.pi)
    return rotary_dim * log / (2 * math.log(base))
