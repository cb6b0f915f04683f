"""Far positions in every dtype, compared with what the frequencies of the first ones predict."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .call_forms import DTYPES
from .evidence import Evidence
from .identification import Identification
from .measured_function import HALF_DTYPES, MeasuredRotation, find_last
from .pairs import PairRotations, compute_difference, measure_blocks, predict_blocks
from .probe import NoAnswerError

__all__ = ["find_first_departure", "measure_far_positions"]

#: Positions that bfloat16 (from 257) and float16 (from 2049) cannot represent, and others.
_NEAR = (*range(1100), *range(2044, 2054), *range(4090, 4097))
#: Positions where tables end and 16-bit integers overflow, as far as the function answers quickly.
_FAR = (
    *(6_000, 8_190, 8_191, 8_192, 8_193, 12_000, 16_383, 16_384, 16_385, 25_000, 32_767, 32_768),
    *(32_769, 50_000, 65_535, 65_536, 65_537, 100_000, 100_001, 131_070, 131_071),
)
#: Largest error, as a part of the size of results, with which a result can still be judged: two
#: results differ by twice their size at most.
_MOST_ALLOWED = 0.5


def measure_far_positions(e: Evidence, function: MeasuredRotation) -> None:
    """Compare results in every dtype with what the frequencies predict at far positions.

    Each scan goes further than all calls before it, so a table that was stored in a wider dtype is
    too short and must be built again. The first scan is repeated at the end: a difference shows
    what the other calls changed.
    """
    probe, expected = function.probe, _choose_expected_rotations(function, e.found)
    pairs, lengths, far = function.pairs, function.lengths, e.far
    far.from_rule = expected.from_rule
    positions, further = _choose_positions(function)
    first, before, latest = list[int](), None, 0
    for dtype in (e.dtype, *(d for d in ("float32", *HALF_DTYPES) if d != e.dtype)):
        name = "far" if dtype == e.dtype else dtype
        if probe.form.library == "numpy" and dtype == "bfloat16":
            e.skip(name, "NumPy has no bfloat16")
            continue
        further = 0 if not further else further + 8
        scanned = [*positions, *([further] if further else [])]
        latest = latest if before is not None else probe.latest_length
        try:
            got = measure_blocks(probe, pairs, scanned, dtype)
        except NoAnswerError as problem:
            e.skip(name, f"it {problem}")
            continue
        _compare_with_expected(e, expected, positions, got[: len(positions)], dtype)
        if dtype == e.dtype:
            first, before = scanned, got
    if before is not None:
        try:
            start = time.perf_counter()
            with probe.repeat_lengths(latest):
                far.later_change = compute_difference(measure_blocks(probe, pairs, first), before)
            far.seconds_per_token = (time.perf_counter() - start) / len(first)
            _find_first_wrong(e, expected, positions)
        except NoAnswerError:
            far.later_change = math.inf  # it answered these calls before
    why = far.not_judged_note or lengths.time_limit_note
    if lengths.problem is not None:
        why = f"past position {lengths.longest_context - 1:,} it {lengths.problem}"
    if why and not e.fails("far"):
        e.skip("far", why)


@dataclass(frozen=True)
class _ExpectedRotations:
    """Rotations that far positions are compared with, and how precisely they are known.

    known: relative error of the frequencies. allowed: relative error that angles may have.
    from_rule: whether the frequencies are those of the rule that was found, not measured ones.
    """

    function: MeasuredRotation
    rotations: PairRotations
    known: float
    allowed: float
    from_rule: bool = False

    def compute_limits(self, positions: list[int], dtype: str, unit: float) -> Tensor:
        """Error allowed at each position if angles have a relative error ``unit``, which grows."""
        rounding = max(float(torch.finfo(DTYPES[dtype]).eps), unit)
        growing = torch.tensor(positions).double() * float(self.rotations.frequency.abs().max())
        return 8 * rounding * float(self.rotations.size.max()) + 4 * unit * growing


def _choose_expected_rotations(
    function: MeasuredRotation, found: Identification
) -> _ExpectedRotations:
    """Measured rotations, or those of the rule that was found where measured ones are too rough.

    Roughness is allowed only if it is the rounding of the dtype: not if the function rounds angles
    to half precision, and not if no dtype explains it.
    """
    known = max(2.0**-23, function.rounding_unit)
    is_rounding = function.half_angles is None and function.precision != "unknown"
    excused = known if is_rounding else 2.0**-23
    measured = _ExpectedRotations(function, function.rotations, known, excused)
    ruled = excused < known and found.encoding == "rope" and found.base is not None
    if not ruled or found.config is None:
        return measured
    rope: Any = found.build(table="on_the_fly")
    inv_freq = found.sign * rope.frequencies().inv_freq[function.pairs.index].abs()
    off = (function.rotations.frequency.mean(-1) / inv_freq - 1).abs() > 1e-5
    if function.precision == "unknown" and 2 * int(off.sum()) > len(off):
        return measured  # the rule was fitted to rough frequencies, so it is no better than they
    rotations = replace(
        function.rotations,
        frequency=inv_freq[:, None].expand(-1, 2),
        size=torch.full_like(function.rotations.size, found.attention_scale),
        growth=torch.zeros_like(function.rotations.growth),
    )
    return _ExpectedRotations(function, rotations, 2.0**-23, excused, from_rule=True)


class Departure(NamedTuple):
    """First position whose angles differ from the expected ones, and the largest error.

    call_tokens: tokens of the call in which it differs, if it does not in a short call, else 0.
    """

    position: int
    error: float
    call_tokens: int


def find_first_departure(function: MeasuredRotation, found: Identification) -> Departure | None:
    """Where results stop being those of the expected rotations, or None if nowhere."""
    expected, e = _choose_expected_rotations(function, found), Evidence(function, found)
    positions, _ = _choose_positions(function)
    measure_blocks(function.probe, function.pairs, positions[:8])  # some remember the longest
    got = measure_blocks(function.probe, function.pairs, positions)
    _compare_with_expected(e, expected, positions, got, e.dtype)
    _find_first_wrong(e, expected, positions)
    wrong = e.far.first_wrong.get(e.dtype)
    return None if wrong is None else Departure(wrong, e.error("far"), e.far.wrong_call_tokens)


def _compare_with_expected(
    e: Evidence, expected: _ExpectedRotations, positions: list[int], got: Tensor, dtype: str
) -> None:
    """Store errors, limits and the first wrong position of a dtype."""
    far, want = e.far, predict_blocks(expected.rotations, positions)
    errors = _compute_errors(got, want)
    allowed = expected.compute_limits(positions, dtype, expected.allowed)
    unsure = expected.compute_limits(positions, dtype, expected.known)
    judged = int((unsure <= _MOST_ALLOWED * float(expected.rotations.size.max())).sum())
    if judged < len(positions):
        name = expected.function.half_tables or expected.function.precision
        hides = "noise" if name == "unknown" else name
        far.not_judged_note = (
            f"not judged from position {positions[judged]:,} on: {hides} hides the frequencies"
        )
        errors, allowed = errors[:judged], allowed[:judged]
    wrong = (errors > allowed).nonzero().flatten()
    worst = int((errors / allowed).argmax())
    if len(wrong):
        first, worst = int(wrong[0]), int(wrong[errors[wrong].argmax()])
        far.first_wrong[dtype] = positions[first]
        far.excess[dtype] = float(errors[first] / allowed[first])
        vectors = (got[wrong] - want[wrong]).norm(dim=-2)  # of results of unit vectors
        far.largest_errors[dtype] = float(vectors.max().nan_to_num(nan=math.inf))
        after = first + 1 < len(errors) and positions[first + 1] == positions[first] + 1
        if after and errors[first + 1] <= allowed[first + 1]:
            far.right_at_next.add(dtype)
    name = "far" if dtype == e.dtype else dtype
    e.add(name, float(errors[worst]), float(allowed[worst]))


def _compute_errors(got: Tensor, want: Tensor) -> Tensor:
    """Largest error at each position; inf for numbers that are not finite."""
    return (got - want).abs().amax((1, 2, 3)).nan_to_num(nan=math.inf)


def _find_first_wrong(e: Evidence, expected: _ExpectedRotations, positions: list[int]) -> None:
    """Find the exact first wrong position by bisection, and the position whose angles it gets."""
    probe, pairs = expected.function.probe, expected.function.pairs
    wrong = e.far.first_wrong.get(e.dtype)
    if wrong is None or probe.addressing != "each":
        return

    def has_angles_of(at: int, other: int) -> bool:
        got = measure_blocks(probe, pairs, [0, at])[1:]
        errors = _compute_errors(got, predict_blocks(expected.rotations, [other]))
        return not bool(
            errors > expected.compute_limits([max(at, other)], e.dtype, expected.allowed)
        )

    if has_angles_of(wrong, wrong):
        e.far.wrong_call_tokens = len(positions)
        return
    low = max((p for p in positions if p < wrong), default=-1)
    high = 1 + find_last(low, wrong, lambda at: has_angles_of(at, at))
    e.far.first_wrong[e.dtype] = high
    others = (high - 1, 0, 1, high - 256, high - 65_536, high + 1)
    e.far.actual_position = next((p for p in others if has_angles_of(high, p)), None)


def _choose_positions(function: MeasuredRotation) -> tuple[list[int], int]:
    """Positions to measure, and one further than all calls so far, or 0 if there is none."""
    lengths = function.lengths
    if lengths.constant_up_to is not None:
        return [p for p in (*_NEAR, *_FAR) if p < min(lengths.constant_up_to, 2**17)], 0
    if lengths.problem is not None:
        return [p for p in (*_NEAR, *_FAR) if p < lengths.longest_context], 0
    answered = lengths.longest_context if function.probe.addressing == "each" else 0
    return [*_NEAR, *(p for p in _FAR if p < answered)], max(answered, _NEAR[-1]) + 8
