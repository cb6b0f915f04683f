"""Far positions in every dtype: where the angles leave the line that the first ones began."""

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

#: Where positions in bfloat16 (from 257) and float16 (from 2049) go wrong, and beyond; a long call.
_NEAR = (*range(1100), *range(2044, 2054), *range(4090, 4097))
#: Where tables end and 16-bit integers wrap; asked as far as the function answers quickly.
_FAR = (
    *(6_000, 8_190, 8_191, 8_192, 8_193, 12_000, 16_383, 16_384, 16_385, 25_000, 32_767, 32_768),
    *(32_769, 50_000, 65_535, 65_536, 65_537, 100_000, 100_001, 131_070, 131_071),
)
#: Results are at most twice their size apart: where more than this part of it is allowed, any
#: result would do, so nothing can be judged.
_MOST_ALLOWED = 0.5


@dataclass
class FarPositions:
    """Results by name, and what the diagnoses need to know of them."""

    results: PropertyResults = field(default_factory=PropertyResults)
    first_wrong: dict[str, int] = field(default_factory=dict)  # dtype -> position
    right_again: set[str] = field(default_factory=set)  # dtypes in which the next position is right
    excess: dict[str, float] = field(default_factory=dict)  # dtype -> error there over allowed
    worst: dict[str, float] = field(default_factory=dict)  # dtype -> largest, of unit vectors
    ruled: bool = False  # errors are those from a rule, not from frequencies that were measured
    tokens: int = 0  # of the call in which a position is wrong that is right in a short one
    instead: int | None = None  # the position whose angles the first wrong one gets
    left_behind: float = 0.0  # by which calls in half precision change later ones
    seconds: float = 0.0  # that a token of a long call takes
    hidden: str = ""  # from where on nothing can be said

    @property
    def counted_in_halves(self) -> dict[str, int]:
        """Dtypes that go wrong where a half type first skips a number and are right at the next."""
        gaps = (257, 2049)
        return {d: p for d, p in self.first_wrong.items() if p in gaps and d in self.right_again}


def measure_far_positions(
    seen: MeasuredFunction, pairs: Pairs, found: Identification
) -> FarPositions:
    """Every dtype against the rates, at positions where narrow ones lose count.

    Each scan goes further than all calls before it, so that a table kept from a wider type is too
    short and is made again; the first scan once more at the end shows what the others left behind.
    """
    probe, line = seen.probe, _choose_expected_rotations(seen, pairs, found)
    assert seen.lengths is not None
    far = FarPositions(ruled=line.ruled)
    places, further = _choose_positions(probe, seen.lengths)
    own, first, before, latest = probe.form.dtype, list[int](), None, 0
    for dtype in (own, *(d for d in ("float32", *HALF_DTYPES) if d != own)):
        name = "far" if dtype == own else dtype
        if probe.form.library == "numpy" and dtype == "bfloat16":
            far.results.skip(name, "NumPy has no bfloat16")
            continue
        further = 0 if not further else further + 8
        asked = [*places, *([further] if further else [])]
        latest = latest if before is not None else probe.latest_length
        try:
            got = measure_blocks(probe, pairs, asked, dtype)
        except NoAnswerError as problem:
            far.results.skip(name, f"it {problem}")
            continue
        _compare_with_expected(far, line, places, got[: len(places)], dtype)
        if dtype == own:
            first, before = asked, got
    if before is not None:
        try:
            start = time.perf_counter()
            with probe.repeat_lengths(latest):
                far.left_behind = compute_difference(measure_blocks(probe, pairs, first), before)
            far.seconds = (time.perf_counter() - start) / len(first)
            _find_first_wrong(far, line, pairs, places)
        except NoAnswerError:
            far.left_behind = math.inf  # it answered these calls before
    if seen.lengths.problem is not None and not far.results.fails("far"):
        reach = seen.lengths.reach
        far.results.skip("far", f"past position {reach - 1:,} it {seen.lengths.problem}")
    elif (why := far.hidden or seen.lengths.unasked) and not far.results.fails("far"):
        far.results.skip("far", why)
    return far


@dataclass(frozen=True)
class _ExpectedRotations:
    """What angles at far positions are judged by, and how well that is known.

    known: the relative error of rates. allowed: the one that a result may have because of it.
    ruled: that the rates are those of a rule, and none that were measured.
    """

    seen: MeasuredFunction
    turning: PairRotations
    known: float
    allowed: float
    ruled: bool = False
    known_blocks: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def blocks_at(self, places: list[int]) -> Tensor:
        """What the rates give at these places; made once for all dtypes."""
        key = tuple(places)
        if key not in self.known_blocks:
            self.known_blocks[key] = predict_blocks(self.turning, places)
        return self.known_blocks[key]


def _choose_expected_rotations(
    seen: MeasuredFunction, pairs: Pairs, found: Identification
) -> _ExpectedRotations:
    """The measured rates, or those of the rule that was found, where noise is the function's own.

    Angles that it rounds to a half type, or noise that no type explains, are not allowed.
    """
    assert seen.turning is not None
    known = max(2.0**-23, seen.unit)
    excused = known if seen.half_angles is None and seen.precision != "unknown" else 2.0**-23
    ruled = excused < known and found.encoding == "rope" and found.base is not None
    if not ruled or found.config is None:
        return _ExpectedRotations(seen, seen.turning, known, excused)
    rope: Any = found.build(table="on_the_fly")
    rates = found.sign * rope.frequencies().inv_freq[pairs.index].abs()
    off = (seen.turning.rate.mean(-1) / rates - 1).abs() > 1e-5
    if seen.precision == "unknown" and 2 * int(off.sum()) > len(off):
        return _ExpectedRotations(
            seen, seen.turning, known, excused
        )  # as rough as what it was fitted to
    turned = replace(
        seen.turning,
        rate=rates[:, None].expand(-1, 2),
        size=torch.full_like(seen.turning.size, found.attention_scale),
        growth=torch.zeros_like(seen.turning.growth),
    )
    return _ExpectedRotations(seen, turned, 2.0**-23, excused, ruled=True)


def find_first_departure(
    seen: MeasuredFunction, pairs: Pairs, found: Identification
) -> tuple[int, float] | None:
    """The first position whose angles the rates do not give, and the largest error."""
    assert seen.lengths is not None
    line = _choose_expected_rotations(seen, pairs, found)
    far, (places, _) = FarPositions(), _choose_positions(seen.probe, seen.lengths)
    measure_blocks(seen.probe, pairs, places[:8])  # for those that keep the longest length
    _compare_with_expected(
        far, line, places, measure_blocks(seen.probe, pairs, places), seen.probe.form.dtype
    )
    _find_first_wrong(far, line, pairs, places)
    wrong = far.first_wrong.get(seen.probe.form.dtype)
    return None if wrong is None else (wrong, far.results.error("far"))


def _compare_with_expected(
    far: FarPositions, line: _ExpectedRotations, places: list[int], got: Tensor, dtype: str
) -> None:
    want = line.blocks_at(places)
    errors = _compute_errors(got, want)
    allowed = _compute_limits(line, places, dtype)
    unsure = _compute_limits(line, places, dtype, line.known)
    judged = int((unsure <= _MOST_ALLOWED * float(line.turning.size.max())).sum())
    if judged < len(places):
        name = line.seen.half_tables or line.seen.precision
        hides = "noise" if name == "unknown" else name
        far.hidden = f"not judged from position {places[judged]:,} on: {hides} hides the rates"
        errors, allowed = errors[:judged], allowed[:judged]
    wrong = (errors > allowed).nonzero().flatten()
    worst = int((errors / allowed).argmax())
    if len(wrong):
        first, worst = int(wrong[0]), int(wrong[errors[wrong].argmax()])
        far.first_wrong[dtype] = places[first]
        far.excess[dtype] = float(errors[first] / allowed[first])
        far.worst[dtype] = _compute_largest_error(got[wrong], want[wrong])
        after = first + 1 < len(errors) and places[first + 1] == places[first] + 1
        if after and errors[first + 1] <= allowed[first + 1]:
            far.right_again.add(dtype)
    name = "far" if dtype == line.seen.probe.form.dtype else dtype
    far.results.add(name, float(errors[worst]), float(allowed[worst]))


def _compute_errors(got: Tensor, want: Tensor) -> Tensor:
    """The largest error of each position; inf where a number is none."""
    return (got - want).abs().amax((1, 2, 3)).nan_to_num(nan=math.inf)


def _compute_largest_error(got: Tensor, want: Tensor) -> float:
    """By how much the result of a unit vector differs, at most; blocks [T, n, 2, 2]."""
    return float((got - want).norm(dim=-2).max().nan_to_num(nan=math.inf))


def _compute_limits(
    line: _ExpectedRotations, places: list[int], dtype: str, known: float | None = None
) -> Tensor:
    """Four roundings of the result; angles in float32, and rates known as well as they can be."""
    known = line.allowed if known is None else known
    unit = max(float(torch.finfo(DTYPES[dtype]).eps), known)
    growing = torch.tensor(places).double() * float(line.turning.rate.abs().max())
    return 8 * unit * float(line.turning.size.max()) + 4 * known * growing


def _find_first_wrong(
    far: FarPositions, line: _ExpectedRotations, pairs: Pairs, places: list[int]
) -> None:
    """The first wrong position of its own dtype, to the token, and which one it is taken for."""
    probe = line.seen.probe
    own = probe.form.dtype
    wrong = far.first_wrong.get(own)
    if wrong is None or probe.addressing != "each":
        return

    def differs(at: int, angles_of: int) -> bool:
        got = measure_blocks(probe, pairs, [0, at])[1:]
        return bool(
            _compute_errors(got, predict_blocks(line.turning, [angles_of]))
            > _compute_limits(line, [max(at, angles_of)], own)
        )

    if not differs(wrong, wrong):
        far.tokens = len(places)
        return
    low, high = max((p for p in places if p < wrong), default=0), wrong
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(middle, middle) else (middle, high)
    far.first_wrong[own] = high
    others = (high - 1, 0, 1, high - 256, high - 65_536, high + 1)
    far.instead = next((p for p in others if not differs(high, p)), None)


def _choose_positions(probe: FunctionProbe, lengths: LengthDependence) -> tuple[list[int], int]:
    """Where to look, and a place further than all calls so far; 0 where none can be had."""
    if lengths.short_up_to is not None:
        return [p for p in (*_NEAR, *_FAR) if p < min(lengths.short_up_to, 2**17)], 0
    if lengths.problem is not None:
        return [p for p in (*_NEAR, *_FAR) if p < lengths.reach], 0
    asked = lengths.reach if probe.addressing == "each" else 0
    return [*_NEAR, *(p for p in _FAR if p < asked)], max(asked, _NEAR[-1]) + 8
