"""Far positions in every dtype, compared with what the frequencies of the first ones predict."""

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .identification import Identification
from .length_dependence import LengthDependence
from .measured_function import HALF_DTYPES, MeasuredFunction
from .pair_rotations import PairRotations, compute_difference, measure_blocks, predict_blocks
from .pairs import Pairs
from .probe import DTYPES, FunctionProbe, NoAnswerError
from .results import PropertyResults

__all__ = ["FarPositions", "find_first_departure", "measure_far_positions"]

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


@dataclass
class FarPositions:
    """Results at far positions, and what the rules about mistakes need to know of them."""

    results: PropertyResults = field(default_factory=PropertyResults)
    first_wrong: dict[str, int] = field(default_factory=dict)  # dtype -> position
    right_at_next: set[str] = field(default_factory=set)  # dtypes right at the next position
    excess: dict[str, float] = field(default_factory=dict)  # dtype -> error there / allowed error
    largest_errors: dict[str, float] = field(default_factory=dict)  # dtype -> of unit vectors
    from_rule: bool = False  # whether errors are differences from a rule, not from measurements
    #: Tokens of a call in which a position is wrong that is right in a short call, else 0.
    wrong_call_tokens: int = 0
    actual_position: int | None = None  # whose angles the first wrong position gets
    later_change: float = 0.0  # of a result, after calls in half precision
    seconds_per_token: float = 0.0  # in a long call
    not_judged_note: str = ""  # from which position on results cannot be judged

    @property
    def rounded_positions(self) -> dict[str, int]:
        """Dtypes whose first wrong position is one that half precision rounds, unlike the next."""
        gaps = (257, 2049)
        return {d: p for d, p in self.first_wrong.items() if p in gaps and d in self.right_at_next}


def measure_far_positions(
    function: MeasuredFunction, pairs: Pairs, found: Identification
) -> FarPositions:
    """Compare results in every dtype with what the frequencies predict at far positions.

    Each scan goes further than all calls before it, so a table that was stored in a wider dtype is
    too short and must be built again. The first scan is repeated at the end: a difference shows
    what the other calls changed.
    """
    probe, expected = function.probe, _choose_expected_rotations(function, pairs, found)
    assert function.lengths is not None
    far = FarPositions(from_rule=expected.from_rule)
    positions, further = _choose_positions(probe, function.lengths)
    own, first, before, latest = probe.form.dtype, list[int](), None, 0
    for dtype in (own, *(d for d in ("float32", *HALF_DTYPES) if d != own)):
        name = "far" if dtype == own else dtype
        if probe.form.library == "numpy" and dtype == "bfloat16":
            far.results.skip(name, "NumPy has no bfloat16")
            continue
        further = 0 if not further else further + 8
        scanned = [*positions, *([further] if further else [])]
        latest = latest if before is not None else probe.latest_length
        try:
            got = measure_blocks(probe, pairs, scanned, dtype)
        except NoAnswerError as problem:
            far.results.skip(name, f"it {problem}")
            continue
        _compare_with_expected(far, expected, positions, got[: len(positions)], dtype)
        if dtype == own:
            first, before = scanned, got
    if before is not None:
        try:
            start = time.perf_counter()
            with probe.repeat_lengths(latest):
                far.later_change = compute_difference(measure_blocks(probe, pairs, first), before)
            far.seconds_per_token = (time.perf_counter() - start) / len(first)
            _find_first_wrong(far, expected, pairs, positions)
        except NoAnswerError:
            far.later_change = math.inf  # it answered these calls before
    if function.lengths.problem is not None and not far.results.fails("far"):
        longest = function.lengths.longest_context
        far.results.skip("far", f"past position {longest - 1:,} it {function.lengths.problem}")
        return far
    why = far.not_judged_note or function.lengths.time_limit_note
    if why and not far.results.fails("far"):
        far.results.skip("far", why)
    return far


@dataclass(frozen=True)
class _ExpectedRotations:
    """Rotations that far positions are compared with, and how precisely they are known.

    known: relative error of the frequencies. allowed: relative error that angles may have.
    from_rule: whether the frequencies are those of the rule that was found, not measured ones.
    """

    function: MeasuredFunction
    rotations: PairRotations
    known: float
    allowed: float
    from_rule: bool = False
    _blocks: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def get_blocks(self, positions: list[int]) -> Tensor:
        """Expected blocks at some positions; computed once for all dtypes."""
        key = tuple(positions)
        if key not in self._blocks:
            self._blocks[key] = predict_blocks(self.rotations, positions)
        return self._blocks[key]


def _choose_expected_rotations(
    function: MeasuredFunction, pairs: Pairs, found: Identification
) -> _ExpectedRotations:
    """Measured rotations, or those of the rule that was found where measured ones are too rough.

    Roughness is allowed only if it is the rounding of the dtype: not if the function rounds angles
    to half precision, and not if no dtype explains it.
    """
    assert function.rotations is not None
    known = max(2.0**-23, function.rounding_unit)
    excused = (
        known if function.half_angles is None and function.precision != "unknown" else 2.0**-23
    )
    ruled = excused < known and found.encoding == "rope" and found.base is not None
    if not ruled or found.config is None:
        return _ExpectedRotations(function, function.rotations, known, excused)
    rope: Any = found.build(table="on_the_fly")
    inv_freq = found.sign * rope.frequencies().inv_freq[pairs.index].abs()
    off = (function.rotations.frequency.mean(-1) / inv_freq - 1).abs() > 1e-5
    if function.precision == "unknown" and 2 * int(off.sum()) > len(off):
        # The rule was fitted to rough frequencies, so it is no better than they are.
        return _ExpectedRotations(function, function.rotations, known, excused)
    rotations = replace(
        function.rotations,
        frequency=inv_freq[:, None].expand(-1, 2),
        size=torch.full_like(function.rotations.size, found.attention_scale),
        growth=torch.zeros_like(function.rotations.growth),
    )
    return _ExpectedRotations(function, rotations, 2.0**-23, excused, from_rule=True)


def find_first_departure(
    function: MeasuredFunction, pairs: Pairs, found: Identification
) -> tuple[int, float] | None:
    """First position whose angles differ from the expected ones, and the largest error, or None."""
    assert function.lengths is not None
    expected = _choose_expected_rotations(function, pairs, found)
    far, (positions, _) = FarPositions(), _choose_positions(function.probe, function.lengths)
    measure_blocks(function.probe, pairs, positions[:8])  # some remember the longest context
    got = measure_blocks(function.probe, pairs, positions)
    _compare_with_expected(far, expected, positions, got, function.probe.form.dtype)
    _find_first_wrong(far, expected, pairs, positions)
    wrong = far.first_wrong.get(function.probe.form.dtype)
    return None if wrong is None else (wrong, far.results.error("far"))


def _compare_with_expected(
    far: FarPositions, expected: _ExpectedRotations, positions: list[int], got: Tensor, dtype: str
) -> None:
    """Store errors, limits and the first wrong position of a dtype in ``far``."""
    want = expected.get_blocks(positions)
    errors = _compute_errors(got, want)
    allowed = _compute_limits(expected, positions, dtype)
    unsure = _compute_limits(expected, positions, dtype, expected.known)
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
        far.largest_errors[dtype] = _compute_largest_error(got[wrong], want[wrong])
        after = first + 1 < len(errors) and positions[first + 1] == positions[first] + 1
        if after and errors[first + 1] <= allowed[first + 1]:
            far.right_at_next.add(dtype)
    name = "far" if dtype == expected.function.probe.form.dtype else dtype
    far.results.add(name, float(errors[worst]), float(allowed[worst]))


def _compute_errors(got: Tensor, want: Tensor) -> Tensor:
    """Largest error at each position; inf for numbers that are not finite."""
    return (got - want).abs().amax((1, 2, 3)).nan_to_num(nan=math.inf)


def _compute_largest_error(got: Tensor, want: Tensor) -> float:
    """Largest error of the result of a unit vector, from blocks [T, n, 2, 2]."""
    return float((got - want).norm(dim=-2).max().nan_to_num(nan=math.inf))


def _compute_limits(
    expected: _ExpectedRotations, positions: list[int], dtype: str, known: float | None = None
) -> Tensor:
    """Error allowed at each position: rounding of the result, and of the angle, which grows."""
    known = expected.allowed if known is None else known
    unit = max(float(torch.finfo(DTYPES[dtype]).eps), known)
    growing = torch.tensor(positions).double() * float(expected.rotations.frequency.abs().max())
    return 8 * unit * float(expected.rotations.size.max()) + 4 * known * growing


def _find_first_wrong(
    far: FarPositions, expected: _ExpectedRotations, pairs: Pairs, positions: list[int]
) -> None:
    """Find the exact first wrong position by bisection, and the position whose angles it gets."""
    probe = expected.function.probe
    own = probe.form.dtype
    wrong = far.first_wrong.get(own)
    if wrong is None or probe.addressing != "each":
        return

    def differs(at: int, angles_of: int) -> bool:
        got = measure_blocks(probe, pairs, [0, at])[1:]
        return bool(
            _compute_errors(got, predict_blocks(expected.rotations, [angles_of]))
            > _compute_limits(expected, [max(at, angles_of)], own)
        )

    if not differs(wrong, wrong):
        far.wrong_call_tokens = len(positions)
        return
    low, high = max((p for p in positions if p < wrong), default=0), wrong
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(middle, middle) else (middle, high)
    far.first_wrong[own] = high
    others = (high - 1, 0, 1, high - 256, high - 65_536, high + 1)
    far.actual_position = next((p for p in others if not differs(high, p)), None)


def _choose_positions(probe: FunctionProbe, lengths: LengthDependence) -> tuple[list[int], int]:
    """Positions to measure, and one further than all calls so far, or 0 if there is none."""
    if lengths.constant_up_to is not None:
        return [p for p in (*_NEAR, *_FAR) if p < min(lengths.constant_up_to, 2**17)], 0
    if lengths.problem is not None:
        return [p for p in (*_NEAR, *_FAR) if p < lengths.longest_context], 0
    answered = lengths.longest_context if probe.addressing == "each" else 0
    return [*_NEAR, *(p for p in _FAR if p < answered)], max(answered, _NEAR[-1]) + 8
