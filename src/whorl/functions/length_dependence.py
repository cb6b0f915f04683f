"""Frequencies that follow the length of the context: whether they do, from where on, by which rule.

The same first positions are asked for with one more token far away, at the end of a context of
length L. Where the answer differs from that of a short context, the function follows the length;
bisection finds the last length that does not.

Some functions keep the longest context that they have seen, so a short call comes before each.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from whorl.scaling import DynamicLinear, DynamicNTK, DynamicYaRN, Ladder, LongRoPE, Scaling
from whorl.scaling.yarn import mscale

from .by_parts import fit_by_parts
from .frequency_rules import compute_frequencies, fit_base
from .pair_rotations import PairRotations, fit_rotations, measure_blocks
from .pairs import Pairs
from .probe import FunctionProbe, NoAnswerError
from .rounding import are_close, list_roundings

__all__ = [
    "FIRST_POSITIONS",
    "SLOW_SECONDS",
    "LengthDependence",
    "find_last",
    "fit_dynamic_scaling",
    "measure_in_context",
    "measure_length_dependence",
]

#: Positions at which rates are measured; no context is shorter.
FIRST_POSITIONS = tuple(range(16))
_LONGEST_CONTEXT = 2**17
#: Where a context is a run of tokens. No power of two: it would fill a cache of that many in the
#: widest type, which half types then read.
_LONGEST_RUN = 8200
#: Seconds. A function that builds a table up to the position need not build a huge one; where that
#: ends the measurement, the report says so.
SLOW_SECONDS = 2.0


@dataclass(frozen=True)
class LengthDependence:
    """reach: the longest context that was answered. short_up_to: the last length like short ones,

    None where the length changes nothing. past: what was measured at longer lengths. slow: that
    a call took so long that longer ones were not asked for.
    """

    reach: int
    short_up_to: int | None = None
    past: tuple[tuple[int, PairRotations], ...] = ()
    problem: str | None = None
    slow: bool = False

    @property
    def unasked(self) -> str:
        """Which positions were not asked for, "" where all were."""
        if not self.slow:
            return ""
        took = f"the call took more than {SLOW_SECONDS:g} s"
        return f"not asked past position {self.reach - 1:,}: {took}"


def measure_in_context(probe: FunctionProbe, pairs: Pairs, length: int) -> Tensor:
    """Blocks at ``PLACES`` within a context of ``length`` tokens, after a short one."""
    measure_blocks(probe, pairs, FIRST_POSITIONS[:8])
    return _measure_now_in_context(probe, pairs, length)


def _measure_now_in_context(probe: FunctionProbe, pairs: Pairs, length: int) -> Tensor:
    places = [*FIRST_POSITIONS, length - 1] if probe.addressing == "each" else list(range(length))
    return measure_blocks(probe, pairs, places)[: len(FIRST_POSITIONS)]


def measure_length_dependence(
    probe: FunctionProbe, pairs: Pairs, short: Tensor, noise: float
) -> LengthDependence:
    """Lengthen the context, four times each, until something changes or no answer comes."""
    allowed = max(1e-9, 100 * noise)
    furthest = _LONGEST_CONTEXT if probe.addressing == "each" else _LONGEST_RUN
    reach, length = len(FIRST_POSITIONS), 32
    if probe.kind == "cos_sin":
        return LengthDependence(reach)  # the tables are ours

    def changed(length: int, at: Callable[[FunctionProbe, Pairs, int], Tensor]) -> bool:
        return float((at(probe, pairs, length) - short).abs().max()) > allowed

    while reach < furthest:
        before = time.perf_counter()
        try:
            if changed(length, _measure_now_in_context):
                low = find_last(
                    reach, length, lambda middle: not changed(middle, measure_in_context)
                )
                return _measure_longer_contexts(probe, pairs, low, reach)
        except NoAnswerError as stop:
            reach = find_last(reach, length, lambda middle: _can_answer(probe, pairs, middle))
            return LengthDependence(reach, problem=str(stop))
        reach = length
        if time.perf_counter() - before > SLOW_SECONDS and length < furthest:
            return LengthDependence(reach, slow=True)
        length = 4 * length if 16 * length <= furthest else furthest
    return LengthDependence(reach)


def find_last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The largest number for which it holds, as it does for ``low`` and not for ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _can_answer(probe: FunctionProbe, pairs: Pairs, length: int) -> bool:
    try:
        _measure_now_in_context(probe, pairs, length)
    except NoAnswerError:
        return False
    return True


def _measure_longer_contexts(
    probe: FunctionProbe, pairs: Pairs, threshold: int, reach: int
) -> LengthDependence:
    past = []
    for times in (2, 4):
        try:
            found = fit_rotations(
                measure_in_context(probe, pairs, times * threshold), FIRST_POSITIONS
            )
        except NoAnswerError:
            break
        past.append((times * threshold, found))
        reach = times * threshold
    return LengthDependence(reach, threshold, tuple(past))


def fit_dynamic_scaling(
    base: float,
    short: Tensor,
    scale: float,
    seen: LengthDependence,
    pairs: Pairs,
    tolerance: Tensor,
) -> Scaling | None:
    """The scaling that takes the short rates [P] to those measured at longer lengths."""
    if len(seen.past) < 2 or seen.short_up_to is None:
        return None
    lengths = [length for length, _ in seen.past]
    rates = [pairs.on_ladder(t.rate.mean(-1)).abs() for _, t in seen.past]
    scales = [float(t.size.mean()) for _, t in seen.past]
    found = (
        _fit_dynamic_ntk(base, short, lengths, rates, tolerance)
        or _fit_dynamic_linear(short, lengths, rates, tolerance)
        or _fit_dynamic_yarn(base, short, lengths, rates, tolerance)
    )
    if found is not None:
        return found
    if bool(((rates[0] / rates[1] - 1).abs() <= tolerance).all()) and bool((rates[0] > 0).all()):
        return _fit_longrope(base, short, rates[1], (scale, scales[1]), seen.short_up_to, tolerance)
    return None


def _fit_dynamic_ntk(
    base: float, short: Tensor, lengths: list[int], rates: list[Tensor], tolerance: Tensor
) -> Scaling | None:
    """stretch = 1 + factor (L_now - L) / L, a line in L_now: two lengths give factor and L."""
    pairs = len(short)
    bases = [fit_base(r, tolerance) for r in rates]
    if pairs < 2 or bases[0] is None or bases[1] is None:
        return None
    one, two = ((b / base) ** ((pairs - 1) / pairs) for b in (bases[0], bases[1]))
    slope = (two - one) / (lengths[1] - lengths[0])
    factor = 1 - (one - slope * lengths[0])
    if slope <= 0 or factor <= 0:
        return None
    context = round(factor / slope)
    for rounded in list_roundings(slope * context, 100 * float(tolerance.max())):
        if rounded >= 1:
            return DynamicNTK(rounded, context)
    return None


def _fit_dynamic_linear(
    short: Tensor, lengths: list[int], rates: list[Tensor], tolerance: Tensor
) -> Scaling | None:
    ratio = short / rates[0]
    if not bool(((ratio / ratio[0] - 1).abs() <= 2 * tolerance).all()):
        return None
    context = round(lengths[0] / float(ratio[0]))
    wanted = lengths[1] / context
    fits = abs(float((short / rates[1])[0]) / wanted - 1) <= 1e-5
    return DynamicLinear(context) if fits else None


def _fit_dynamic_yarn(
    base: float, short: Tensor, lengths: list[int], rates: list[Tensor], tolerance: Tensor
) -> Scaling | None:
    """By parts at the first length, with a factor that follows the length to the second."""
    found = fit_by_parts(rates[0], tolerance, mscale(2.0, 1.0))
    if found is None or found[0] != base:
        return None
    parts = found[1].to_dict()
    context = round(lengths[0] / parts["factor"])
    if parts["name"] == "llama3":
        parts |= {"beta_fast": parts["high_freq_factor"], "beta_slow": parts["low_freq_factor"]}
        parts |= {"ramp": "rotations", "truncate": True}
    times = context / parts["original_context"]
    scaling = DynamicYaRN(
        context,
        beta_fast=next(list_roundings(parts["beta_fast"] * times, 1e-9)),
        beta_slow=next(list_roundings(parts["beta_slow"] * times, 1e-9)),
        ramp=parts["ramp"],
        truncate=parts["truncate"],
    )
    steps = Ladder.of(2 * len(short), base)
    for length, seen in zip(lengths, rates, strict=True):
        if not are_close(scaling.frequencies(steps, length).inv_freq, seen, tolerance):
            return None
    return scaling


def _fit_longrope(
    base: float,
    short: Tensor,
    long: Tensor,
    scales: tuple[float, float],
    context: int,
    tolerance: Tensor,
) -> Scaling:
    lists = {
        name: tuple(
            next(list_roundings(float(v), t))
            for v, t in zip(
                compute_frequencies(base, len(short)) / rates, tolerance.tolist(), strict=True
            )
        )
        for name, rates in (("short_factors", short), ("long_factors", long))
    }
    before, after = (next(list_roundings(scale, 1e-7)) for scale in scales)
    options: dict[str, Any] = {**lists, "original_context": context}
    if abs(before - after) > 1e-6:
        return LongRoPE(**options, attention_factor=before, long_attention_factor=after)
    factor = math.exp((scales[0] ** 2 - 1) * math.log(context))
    rounded = next(list_roundings(factor, 1e-4))
    if before > 1 and float(f"{rounded:.4g}") == rounded:
        return LongRoPE(**options, factor=rounded)
    return LongRoPE(**options, attention_factor=before)
