"""What ``check`` and ``identify`` measure first: pairs, frequencies, dependence on the length.

Frequencies may depend on the length of the context. So the first positions are measured with one
more token far away, at the end of a context of length L. Where the result differs from that of a
short context, frequencies depend on the length; bisection finds the longest context in which they
are still the same. Some functions remember the longest context of all calls, so a short call comes
before each.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import torch
from torch import Tensor

from whorl._support.words import quote

from .call_forms import DTYPES, Kind
from .pairs import (
    FIRST_POSITIONS,
    NoPairsError,
    PairRotations,
    Pairs,
    compute_angles,
    compute_difference,
    find_pairs,
    fit_rotations,
    measure_blocks,
    measure_matrices,
    wrap_angle,
)
from .probe import FunctionProbe, NoAnswerError

__all__ = [
    "HALF_DTYPES",
    "PRECISIONS",
    "SLOW_SECONDS",
    "MeasuredFunction",
    "MeasuredRotation",
    "find_last",
    "make_reference_call",
    "measure_function",
    "measure_in_context",
    "name_function",
    "prepare_probe",
]

#: Unit roundings of the dtypes that a function may compute in. That of float64 is larger than its
#: own, for the rounding of our measurement.
PRECISIONS = {"float64": 2.0**-44, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
HALF_DTYPES = ("bfloat16", "float16")
#: A relative misfit that the rounding of no dtype explains.
_LARGEST_ROUNDING = 0.05
#: Relative error of an angle in half precision that is recovered from its float32 cos and sin.
_SAME_NUMBER = 2.0**-20
#: By how much the largest of many random differences may exceed the difference of two calls.
_CHANCE = 4.0
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


@dataclass(frozen=True, kw_only=True)
class MeasuredFunction:
    """A function with its matrices [16, D, D] at positions 0 .. 15.

    no_pairs_reason: why it is no rotation of pairs, None if it is one or if no channel rotates.
    """

    probe: FunctionProbe
    matrices: Tensor
    no_pairs_reason: str | None = None
    repeat_difference: float = 0.0  # between two equal calls in a row
    draws_random_numbers: bool = False  # equal calls are equal with the same seed only

    @property
    def rounding_limit(self) -> float:
        """Largest error that rounding explains."""
        return max(1e-5, 8 * float(torch.finfo(DTYPES[self.probe.form.dtype]).eps))

    @property
    def limit(self) -> float:
        """Largest error that rounding explains, or randomness if equal calls differ."""
        if self.repeat_difference <= self.rounding_limit:
            return self.rounding_limit
        return _CHANCE * self.repeat_difference

    @property
    def precision(self) -> str:
        """Widest dtype whose rounding explains the misfits; "unknown" if none does."""
        return "float64"


@dataclass(frozen=True, kw_only=True)
class MeasuredRotation(MeasuredFunction):
    """A function that rotates pairs, with their blocks [16, n, 2, 2] at positions 0 .. 15."""

    pairs: Pairs
    first_blocks: Tensor
    rotations: PairRotations
    lengths: LengthDependence

    @property
    def precision(self) -> str:
        """Widest dtype whose rounding explains the misfits; "unknown" if none does."""
        name = self._widest_dtype
        half = self.probe.form.dtype in HALF_DTYPES or self.half_tables or self.half_angles
        return name if name not in HALF_DTYPES or half else "unknown"

    @property
    def _misfit(self) -> float:
        return max(self.rotations.angle_misfit, self.rotations.size_misfit)

    @property
    def _widest_dtype(self) -> str:
        limits = (("float64", 1e-12), ("float32", 2e-6), ("float16", 2e-3))
        return next((name for name, limit in limits if self._misfit < limit), "bfloat16")

    @property
    def has_constant_frequencies(self) -> bool:
        """Whether angles are positions times frequencies, apart from rounding."""
        return self._misfit < _LARGEST_ROUNDING

    @property
    def rounding_unit(self) -> float:
        """Unit rounding of the widest dtype that explains the misfits of angles and sizes."""
        return PRECISIONS[self._widest_dtype]

    @property
    def half_tables(self) -> str | None:
        """Half-precision dtype that cos and sin are rounded to although the input is wider."""
        if self._widest_dtype not in HALF_DTYPES:
            return None
        scale = self.first_blocks[0, 0, 0, 0]  # cos 0 = 1, so this is the attention scale
        return self._find_half_dtype((self.first_blocks / scale)[None])

    @cached_property
    def half_angles(self) -> str | None:
        """Half-precision dtype that all angles are rounded to although the input is wider."""
        if self._widest_dtype not in HALF_DTYPES:
            return None
        if self.probe.form.dtype in HALF_DTYPES or self.half_tables is not None:
            return None
        angles = compute_angles(self.first_blocks)  # from -pi to pi
        positions = torch.arange(len(angles))[:, None, None]
        fitted = self.rotations.phase + self.rotations.frequency * positions
        unwrapped = fitted + wrap_angle(angles - fitted)
        return self._find_half_dtype(torch.stack((angles, angles % (2 * math.pi), unwrapped)))

    def _find_half_dtype(self, forms: Tensor) -> str | None:
        """Half-precision dtype that has each number in one of its forms [n, ...], or None."""
        for name in HALF_DTYPES:
            off = (forms.to(DTYPES[name]).double() - forms).abs()
            fits = bool((off <= _SAME_NUMBER * forms.abs()).any(0).all())
            if fits and name != self.probe.form.dtype:
                return name
        return None


def prepare_probe(fn: Callable[..., Any], head_dim: int, kind: Kind, where: str) -> FunctionProbe:
    """Check the arguments, and find the form of call that ``fn`` accepts."""
    if not callable(fn):
        raise TypeError(
            f"{where}: fn must be a function, or another object that can be called; got"
            f" {quote(fn)}."
        )
    if type(head_dim) is not int or head_dim < 2:
        raise ValueError(
            f"{where}: head_dim must be an int >= 2, the channels of one head; got"
            f" {quote(head_dim)}."
        )
    if kind not in get_args(Kind):
        raise ValueError(
            f"{where}: kind must be 'x' for fn(x, positions), 'qk' for fn(q, k, positions) or"
            f" 'cos_sin' for fn(q, k, cos, sin); got {quote(kind)}."
        )
    return FunctionProbe(fn, head_dim, kind, name_function(fn))


def measure_function(probe: FunctionProbe) -> MeasuredFunction:
    """Measure pairs and frequencies, to which all later results are compared."""
    differs = compute_difference(*(make_reference_call(probe)[probe.role] for _ in range(2)))
    draws_random_numbers = False
    if differs:
        with torch.random.fork_rng(devices=()):
            seeded = [make_reference_call(probe, seed=0)[probe.role] for _ in range(2)]
        draws_random_numbers = compute_difference(*seeded) == 0
    matrices = measure_matrices(probe)
    common: dict[str, Any] = {
        "probe": probe,
        "matrices": matrices,
        "repeat_difference": differs,
        "draws_random_numbers": draws_random_numbers,
    }
    try:
        pairs = find_pairs(matrices)
    except NoPairsError as reason:
        return MeasuredFunction(no_pairs_reason=str(reason), **common)
    if pairs is None:
        return MeasuredFunction(**common)
    blocks = measure_blocks(probe, pairs, FIRST_POSITIONS)
    found = fit_rotations(blocks, FIRST_POSITIONS)
    misfit = max(found.angle_misfit, found.size_misfit)
    try:
        lengths = _measure_length_dependence(probe, pairs, blocks, min(misfit, 1e-6))
    except NoAnswerError as stop:
        lengths = LengthDependence(len(FIRST_POSITIONS), problem=str(stop))
    return MeasuredRotation(
        pairs=pairs, first_blocks=blocks, rotations=found, lengths=lengths, **common
    )


def make_reference_call(
    probe: FunctionProbe, seed: int | None = None, start: int = 0
) -> list[Tensor]:
    """Results of a call that is made before all others and repeated later.

    seed: for torch's global generator, which the function may draw from. start: first position.
    """
    x = probe.draw_vectors(1, 2, 11, seed=6)
    if seed is not None:
        torch.manual_seed(seed)
    return probe.ask(x, torch.arange(start, start + 11))


def name_function(fn: Callable[..., Any]) -> str:
    """Name of a function for reports."""
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return str(name).replace("<locals>.", "")


def measure_in_context(
    probe: FunctionProbe, pairs: Pairs, length: int, *, after_short_call: bool = True
) -> Tensor:
    """Blocks at the first positions in a context of ``length`` tokens."""
    if after_short_call:
        measure_blocks(probe, pairs, FIRST_POSITIONS[:8])
    each = probe.addressing == "each"
    positions = [*FIRST_POSITIONS, length - 1] if each else range(length)
    return measure_blocks(probe, pairs, positions)[: len(FIRST_POSITIONS)]


def _measure_length_dependence(
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

    def is_same(length: int, after_short_call: bool = True) -> bool:
        got = measure_in_context(probe, pairs, length, after_short_call=after_short_call)
        return not float((got - short).abs().max()) > allowed

    def is_answered(length: int) -> bool:
        try:
            measure_in_context(probe, pairs, length, after_short_call=False)
        except NoAnswerError:
            return False
        return True

    while longest < furthest:
        before = time.perf_counter()
        try:
            if not is_same(length, after_short_call=False):
                threshold = find_last(longest, length, is_same)
                return _measure_longer_contexts(probe, pairs, threshold, longest)
        except NoAnswerError as stop:
            return LengthDependence(find_last(longest, length, is_answered), problem=str(stop))
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


def _measure_longer_contexts(
    probe: FunctionProbe, pairs: Pairs, threshold: int, longest: int
) -> LengthDependence:
    """Rotations at two and four times the length up to which they do not change."""
    longer = []
    for length in (2 * threshold, 4 * threshold):
        try:
            blocks = measure_in_context(probe, pairs, length)
        except NoAnswerError:
            break
        longer.append((length, fit_rotations(blocks, FIRST_POSITIONS)))
        longest = length
    return LengthDependence(longest, threshold, tuple(longer))
