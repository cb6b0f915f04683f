"""Ramps from "kept" to "interpolated": what by-parts scalings, YaRN and Llama-3's share.

    theta'_i = theta_i / s (1 - k_i) + theta_i k_i      k_i, the kept share, falls from 1 to 0

over the pairs, from those that turn at least ``fast`` times within the original context L to those
that turn at most ``slow`` times; r_i = L / wavelength_i counts the turns.
"""

import math

import torch
from torch import Tensor

from .base import Ladder, slowed

__all__ = ["blended", "kept_by_index", "kept_by_rotations"]


def blended(inv_freq: Tensor, factor: float | Tensor, kept: Tensor) -> Tensor:
    """theta / s where kept is 0, theta where it is 1; [P], or [B, P] for a factor per row."""
    interpolated = slowed(inv_freq, factor)
    inv_freq, kept = inv_freq.to(interpolated.device), kept.to(interpolated.device)
    # 1 - kept, not the ramp itself: transformers rounds it so, and in float32 that shows.
    return interpolated * (1 - kept) + inv_freq * kept


def kept_by_rotations(ladder: Ladder, original_context: int, fast: float, slow: float) -> Tensor:
    """clip((r_i - slow) / (fast - slow), 0, 1); a hard switch where fast = slow."""
    rotations = original_context / ladder.wavelengths
    if fast == slow:
        return (rotations >= fast).to(rotations.dtype)
    return torch.clamp((rotations - slow) / (fast - slow), 0, 1)


def kept_by_index(
    ladder: Ladder, original_context: int, fast: float, slow: float, truncate: bool
) -> Tensor:
    """1 - clip((i - low) / (high - low), 0, 1), low and high where r is ``fast`` and ``slow``.

    By the steps of the released code, its corners included: low is at least 0, high at most R - 1
    (not R/2 - 1, so it may lie past the last pair), and equal ones are put 0.001 apart. Where the
    two limits cross, because every pair is slower than ``slow``, or faster than ``fast`` by far,
    the ramp runs backwards: all are kept in the first case and all interpolated in the second.
    """
    assert ladder.base is not None
    low = _index(ladder.rotary_dim, ladder.base, fast, original_context)
    high = _index(ladder.rotary_dim, ladder.base, slow, original_context)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, ladder.rotary_dim - 1)
    if low == high:
        high += 0.001
    dtype, device = ladder.inv_freq.dtype, ladder.inv_freq.device
    index = torch.arange(ladder.rotary_dim // 2, dtype=dtype, device=device)
    return 1 - torch.clamp((index - low) / (high - low), 0, 1)


def _index(rotary_dim: int, base: float, rotations: float, original_context: int) -> float:
    """The i, a fraction, that turns ``rotations`` times: base^(-2 i / R) = 2 pi rotations / L.

    In the order of transformers' operations: ``truncate`` would magnify another rounding. Only
    where its quotient is 0 or infinite, and it stops, are logarithms subtracted instead.
    """
    longest = original_context / (rotations * 2 * math.pi)
    if 0 < longest < math.inf:
        return rotary_dim * math.log(longest) / (2 * math.log(base))
    log = math.log(original_context) - math.log(rotations) - math.log(2 * math.pi)
    return rotary_dim * log / (2 * math.log(base))
