"""Frequencies that depend on the length of the context, and from which length on.

The first positions are measured with one more token far away, at the end of a context of length L.
Where the result differs from that of a short context, frequencies depend on the length; bisection
finds the longest context in which they are still the same.

Some functions remember the longest context of all calls, so a short call comes before each.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .pair_rotations import PairRotations, fit_rotations, measure_blocks
from .pairs import Pairs
from .probe import FunctionProbe, NoAnswerError

__all__ = [
    "FIRST_POSITIONS",
    "SLOW_SECONDS",
    "LengthDependence",
    "find_last",
    "measure_in_context",
    "measure_length_dependence",
]

#: Positions at which frequencies are measured; no context is shorter.
FIRST_POSITIONS = tuple(range(16))
_LONGEST_CONTEXT = 2**17
#: Longest context where every position needs a token. It is not a power of two: caches of such a
#: length would be filled in the widest dtype, and calls in half precision would read them.
_LONGEST_RUN = 8200
#: A call that takes longer ends the measurement, and the report says so. Functions that build a
#: table up to the largest position need not build a huge one.
SLOW_SECONDS = 2.0


@dataclass(frozen=True)
class LengthDependence:
    """Up to which context a function answers, and from which one on its frequencies change.

    longest_context: tokens of the longest context that was answered. constant_up_to: tokens up to
    which frequencies are those of short contexts, None if they never change. longer: contexts
    beyond that, and the rotations measured there. problem: why no longer context was answered.
    too_slow: whether a call took so long that longer ones were not made.
    """

    longest_context: int
    constant_up_to: int | None = None
    longer: tuple[tuple[int, PairRotations], ...] = ()
    problem: str | None = None
    too_slow: bool = False

    @property
    def time_limit_note(self) -> str:
        """Which positions were not measured because calls are slow, or ""."""
        if not self.too_slow:
            return ""
        took = f"the call took more than {SLOW_SECONDS:g} s"
        return f"not asked past position {self.longest_context - 1:,}: {took}"


def measure_in_context(probe: FunctionProbe, pairs: Pairs, length: int) -> Tensor:
    """Blocks at the first positions in a context of ``length`` tokens, after a short call."""
    measure_blocks(probe, pairs, FIRST_POSITIONS[:8])
    return _measure_now_in_context(probe, pairs, length)


def _measure_now_in_context(probe: FunctionProbe, pairs: Pairs, length: int) -> Tensor:
    positions = (
        [*FIRST_POSITIONS, length - 1] if probe.addressing == "each" else list(range(length))
    )
    return measure_blocks(probe, pairs, positions)[: len(FIRST_POSITIONS)]


def measure_length_dependence(
    probe: FunctionProbe, pairs: Pairs, short: Tensor, misfit: float
) -> LengthDependence:
    """Measure contexts, each four times as long, until results change or no answer comes.

    short: blocks in a short context. misfit: relative error of these blocks.
    """
    allowed = max(1e-9, 100 * misfit)
    furthest = _LONGEST_CONTEXT if probe.addressing == "each" else _LONGEST_RUN
    longest, length = len(FIRST_POSITIONS), 32
    if probe.kind == "cos_sin":
        return LengthDependence(longest)  # tables are ours, of one base

    def changed(length: int, at: Callable[[FunctionProbe, Pairs, int], Tensor]) -> bool:
        return float((at(probe, pairs, length) - short).abs().max()) > allowed

    while longest < furthest:
        before = time.perf_counter()
        try:
            if changed(length, _measure_now_in_context):
                low = find_last(
                    longest, length, lambda middle: not changed(middle, measure_in_context)
                )
                return _measure_longer_contexts(probe, pairs, low, longest)
        except NoAnswerError as stop:
            longest = find_last(longest, length, lambda middle: _can_answer(probe, pairs, middle))
            return LengthDependence(longest, problem=str(stop))
        longest = length
        if time.perf_counter() - before > SLOW_SECONDS and length < furthest:
            return LengthDependence(longest, too_slow=True)
        length = 4 * length if 16 * length <= furthest else furthest
    return LengthDependence(longest)


def find_last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Largest number for which a condition holds that holds for ``low`` and not for ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _can_answer(probe: FunctionProbe, pairs: Pairs, length: int) -> bool:
    """Whether the function gives a result in a context of ``length`` tokens."""
    try:
        _measure_now_in_context(probe, pairs, length)
    except NoAnswerError:
        return False
    return True


def _measure_longer_contexts(
    probe: FunctionProbe, pairs: Pairs, threshold: int, longest: int
) -> LengthDependence:
    """Rotations at two and four times the length up to which they do not change."""
    longer = []
    for times in (2, 4):
        try:
            found = fit_rotations(
                measure_in_context(probe, pairs, times * threshold), FIRST_POSITIONS
            )
        except NoAnswerError:
            break
        longer.append((times * threshold, found))
        longest = times * threshold
    return LengthDependence(longest, threshold, tuple(longer))
