"""Scalings that keep the frequencies of fast pairs and divide those of slow ones.

These are NTK by parts, YaRN and Llama 3. With the frequency f_i that the base gives to pair i and
the factor s, the unscaled share (frequency_i / f_i - 1/s) / (1 - 1/s) falls from 1 to 0 along a
line: in the pair index (``NTKByParts``, corners low and high), or in f_i, that is in the number of
rotations within the original context L (``Llama3``).

Many options give the same frequencies: L and both limits may be multiplied by the same number, and
truncated corners hide fractions. So round options are tried first: L a power of two with the usual
limits, then corners at whole indices, then the line itself.
"""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from whorl.scaling import Ladder, Llama3, NTKByParts

from .rounding import are_close, compute_frequencies, list_roundings

__all__ = ["USUAL_BASES", "fit_by_parts", "list_ramp_options"]

USUAL_BASES = (10_000.0, 500_000.0, 1_000_000.0, 5_000_000.0, 10_000_000.0, 150_000.0)
_USUAL_FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0, 64.0, 1.5, 3.0, 5.0, 6.0, 10.0, 12.0, 20.0)
_USUAL_CONTEXTS = tuple(
    sorted((m * 2**n for n in range(6, 22) for m in (1, 3)), key=lambda c: c % 3 == 0)
)


def fit_by_parts(
    inv_freq: Tensor, tolerance: Tensor, scale: float
) -> tuple[float, NTKByParts | Llama3] | None:
    """Base and scaling by parts that give the frequencies [P], or None."""
    for base in _list_bases(inv_freq, tolerance):
        ratio = inv_freq / compute_frequencies(base, len(inv_freq))
        if float(ratio.max()) > 1 + float(tolerance.max()) or float(ratio.min()) <= 0:
            continue
        for search in (
            _fit_usual_limits,
            _fit_whole_corners,
            _fit_line_in_index,
            _fit_line_in_rotations,
        ):
            for factor in _list_factors(ratio, tolerance, scale):
                for found in search(base, factor, ratio, tolerance):
                    got = found.frequencies(Ladder.of(2 * len(inv_freq), base), None).inv_freq
                    if are_close(got, inv_freq, tolerance):
                        return base, found
    return None


def list_ramp_options(scaling: NTKByParts | Llama3) -> dict[str, Any]:
    """Where the line of a scaling by parts begins and ends, as options of ``YaRN``."""
    if isinstance(scaling, Llama3):
        fast, slow = scaling.high_freq_factor, scaling.low_freq_factor
        return {"beta_fast": fast, "beta_slow": slow, "ramp": "rotations", "truncate": True}
    return {n: getattr(scaling, n) for n in ("beta_fast", "beta_slow", "ramp", "truncate")}


def _list_bases(inv_freq: Tensor, tolerance: Tensor) -> Iterator[float]:
    """Bases that the unscaled pairs at the start give, those of the divided ones, usual ones."""
    first = _fit_bases_of_run(inv_freq, tolerance, falling=True)
    last = _fit_bases_of_run(inv_freq.flip(0), tolerance.flip(0), falling=False)
    yield from dict.fromkeys((*first, *last, *USUAL_BASES))


def _fit_bases_of_run(values: Tensor, tolerance: Tensor, falling: bool) -> Iterator[float]:
    """Bases that fit the longest run of equal ratios at the start of ``values``."""
    pairs = len(values)
    steps = (values[:-1] / values[1:]).log() * (1 if falling else -1) * pairs  # ln base each
    if not bool((steps > 0).any()) or float(steps[0]) <= 0:
        return
    if falling and abs(float(values[0]) - 1) > float(tolerance[0]):
        return
    allowed = pairs * (tolerance[:-1] + tolerance[1:])
    fits = (steps - steps[0]).abs() <= allowed[0] + allowed
    run = 1 + int(fits[1:].long().cumprod(0).sum())
    # The two ends of the run give the base most precisely.
    ends = abs(float((values[0] / values[run]).log())) * pairs / run
    slack = float(tolerance[0] + tolerance[run]) * pairs / run
    if ends < 700:
        yield from _list_few_roundings(math.exp(ends), slack, 3)
    if run > 1 and float(steps[0]) < 700:  # a run may include one pair of the ramp
        yield from _list_few_roundings(math.exp(float(steps[0])), float(allowed[0]), 2)


def _list_few_roundings(value: float, relative: float, count: int) -> list[float]:
    """Those of the first roundings of a value that are greater than 1."""
    return [x for x in islice(list_roundings(value, relative), count) if x > 1]


def _list_factors(ratio: Tensor, tolerance: Tensor, scale: float) -> Iterator[float]:
    """Factors that may divide the slowest pairs; unknown if the ramp ends behind the last pair."""
    last = 1 / float(ratio[-1])
    if last <= 1:
        return
    settled = len(ratio) > 1 and abs(float(ratio[-2] / ratio[-1]) - 1) <= 4 * float(tolerance[-1])
    yield from _list_few_roundings(last, 2 * float(tolerance[-1]), 2)
    if settled:
        return
    if scale > 1 and (scale - 1) * 10 < 20:
        yield float(f"{math.exp((scale - 1) * 10):.4g}")
    yield from (factor for factor in _USUAL_FACTORS if factor > last)
    yield 2 * last


def _compute_unscaled_share(ratio: Tensor, factor: float) -> Tensor:
    return (ratio - 1 / factor) / (1 - 1 / factor)


def _fit_usual_limits(
    base: float, factor: float, ratio: Tensor, tolerance: Tensor
) -> Iterator[NTKByParts | Llama3]:
    """Scalings with the usual limits: 32 and 1 rotations along the index, 4 and 1 in Llama 3."""
    pairs = len(ratio)
    contexts = torch.tensor(_USUAL_CONTEXTS, dtype=torch.float64)
    rotations = contexts[:, None] * compute_frequencies(base, pairs) / (2 * math.pi)
    unscaled = ((rotations - 1) / 3).clamp(0, 1)
    if (context := _find_context(unscaled, factor, ratio, tolerance)) is not None:
        yield Llama3(factor, context)
    low, high = (pairs * (contexts / (2 * math.pi * t)).log() / math.log(base) for t in (32, 1))
    for truncate in (True, False):
        ends = (low.floor(), high.ceil()) if truncate else (low, high)
        unscaled = _compute_ramp(ends[0].clamp(min=0), ends[1].clamp(max=2 * pairs - 1), pairs)
        if (context := _find_context(unscaled, factor, ratio, tolerance)) is not None:
            yield NTKByParts(factor, context, truncate=truncate)


def _find_context(unscaled: Tensor, factor: float, ratio: Tensor, tolerance: Tensor) -> int | None:
    """The first usual context whose unscaled shares [C, P] give the ratio, or None."""
    fits = _find_fits(unscaled, factor, ratio, tolerance)
    return int(_USUAL_CONTEXTS[fits[0]]) if fits else None


def _find_fits(unscaled: Tensor, factor: float, ratio: Tensor, tolerance: Tensor) -> list[int]:
    """Indices of the rows of unscaled shares [C, P] that give the ratio [P]."""
    got = 1 / factor + (1 - 1 / factor) * unscaled
    fits: list[int] = ((got - ratio).abs() <= tolerance * ratio).all(1).nonzero().flatten().tolist()
    return fits


def _compute_ramp(low: Tensor, high: Tensor, pairs: int) -> Tensor:
    """Unscaled share of each pair, 1 - clip((i - low) / (high - low), 0, 1): [..., P]."""
    span = torch.where(high == low, 0.001, high - low)
    index = torch.arange(pairs, dtype=torch.float64)
    return 1 - ((index - low.unsqueeze(-1)) / span.unsqueeze(-1)).clamp(0, 1)


def _fit_whole_corners(
    base: float, factor: float, ratio: Tensor, tolerance: Tensor
) -> Iterator[NTKByParts | Llama3]:
    """Scalings with corners at whole indices: all combinations are tried."""
    pairs = len(ratio)
    low, high = torch.meshgrid(
        torch.arange(pairs).double(), torch.arange(2 * pairs).double(), indexing="ij"
    )
    low, high = (c[high > low] for c in (low, high))
    for n in _find_fits(_compute_ramp(low, high, pairs), factor, ratio, tolerance)[:8]:
        yield from _list_truncated_scalings(base, factor, (float(low[n]), float(high[n])), pairs)


def _list_truncated_scalings(
    base: float, factor: float, corners: tuple[float, float], pairs: int
) -> Iterator[NTKByParts | Llama3]:
    """Scalings whose corners, rounded outward, are these whole numbers."""
    low, high = corners
    middles = (low + 0.5, high - 0.5) if high - low > 1 else ((low + high) / 2,) * 2
    at_low, at_high = (2 * math.pi * base ** (end / pairs) for end in middles)  # L / limit there
    if not 1 <= at_high < 2**60:
        return
    context = 2 ** max(0, round(math.log2(at_high)))
    slack = 0.4 * (base ** (1 / pairs) - 1)
    slow, fast = context / at_high, context / at_low
    for digits in (slack, 0.0):
        limits = [next(list_roundings(limit, digits)) for limit in (slow, fast)]
        if limits[0] <= limits[1]:
            yield NTKByParts(factor, context, beta_fast=limits[1], beta_slow=limits[0])


def _fit_line_in_index(
    base: float, factor: float, ratio: Tensor, tolerance: Tensor
) -> Iterator[NTKByParts | Llama3]:
    unscaled, pairs = _compute_unscaled_share(ratio, factor), len(ratio)
    inside = _find_blended_pairs(unscaled, factor, tolerance)
    if len(inside) == 0:
        return
    first, share = float(inside[0]), float(unscaled[inside[0]])
    span = 1.0  # with a single blended pair, both neighbours are at an end of the line
    if len(inside) > 1:
        fall = share - float(unscaled[inside[-1]])
        if fall <= 0:
            return
        span = float(inside[-1] - inside[0]) / fall
    low = first - (1 - share) * span
    if low < -1e-3:
        return
    at_low, at_high = (2 * math.pi * base ** (end / pairs) for end in (max(low, 0.0), low + span))
    for context, multiple in _list_contexts(at_high, tolerance):
        for slack in _list_tolerances(tolerance):
            slow, fast = (
                next(list_roundings(x, slack)) for x in (multiple, at_high / at_low * multiple)
            )
            yield NTKByParts(factor, context, beta_fast=fast, beta_slow=slow, truncate=False)


def _fit_line_in_rotations(
    base: float, factor: float, ratio: Tensor, tolerance: Tensor
) -> Iterator[NTKByParts | Llama3]:
    """Llama 3: share = A f + B, so fast - slow = -slow / B and L = 2 pi A (fast - slow)."""
    unscaled = _compute_unscaled_share(ratio, factor)
    inside = _find_blended_pairs(unscaled, factor, tolerance)
    if len(inside) < 2:
        return
    steps = base ** -(inside.double() / len(ratio))
    slope = float((unscaled[inside[0]] - unscaled[inside[-1]]) / (steps[0] - steps[-1]))
    level = float(unscaled[inside[0]]) - slope * float(steps[0])
    if slope <= 0 or level >= 0:
        return
    limit = 1 - 1 / level  # fast, where slow is 1
    for context, multiple in _list_contexts(2 * math.pi * slope * (limit - 1), tolerance):
        for slack in _list_tolerances(tolerance):
            slow, fast = (next(list_roundings(x, slack)) for x in (multiple, limit * multiple))
            yield Llama3(factor, context, slow, fast)


def _list_contexts(exact: float, tolerance: Tensor) -> Iterator[tuple[int, float]]:
    """Whole contexts, and by what to multiply limits that belong to the context ``exact``."""
    if not 1 <= exact < 2**60:
        return
    if abs(round(exact) - exact) <= 100 * float(tolerance.max()) * exact:
        yield round(exact), 1.0
    power = 2 ** max(0, round(math.log2(exact)))
    yield power, power / exact


def _list_tolerances(tolerance: Tensor) -> tuple[float, ...]:
    """Relative errors up to which limits are rounded; the last is 0."""
    return 100 * float(tolerance.max()), float(tolerance.max()), 0.0


def _find_blended_pairs(unscaled: Tensor, factor: float, tolerance: Tensor) -> Tensor:
    """Indices of pairs between unscaled and fully divided."""
    edge = 4 * float(tolerance.max()) * factor
    return ((unscaled > edge) & (unscaled < 1 - edge)).nonzero().flatten()
