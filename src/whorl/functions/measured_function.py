"""What ``check`` and ``identify`` measure first: pairs, frequencies, dependence on the length."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .length_dependence import FIRST_POSITIONS, LengthDependence, measure_length_dependence
from .pair_rotations import (
    PairRotations,
    compute_angles,
    compute_difference,
    fit_rotations,
    measure_blocks,
    wrap_angle,
)
from .pairs import NoPairsError, Pairs, find_pairs, measure_matrices
from .probe import DTYPES, KINDS, FunctionProbe, Kind, NoAnswerError

__all__ = [
    "HALF_DTYPES",
    "PRECISIONS",
    "MeasuredFunction",
    "make_reference_call",
    "measure_function",
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


@dataclass(frozen=True)
class MeasuredFunction:
    """A function with its matrices [16, D, D] at positions 0 .. 15, and the pairs found in them.

    pairs is None if no channel rotates, or if there are no pairs; no_pairs_reason says which.
    """

    probe: FunctionProbe
    matrices: Tensor
    pairs: Pairs | None
    no_pairs_reason: str | None
    first_blocks: Tensor | None = None  # blocks [16, n, 2, 2]
    rotations: PairRotations | None = None
    lengths: LengthDependence | None = None
    repeat_difference: float = 0.0  # between two equal calls in a row
    draws_random_numbers: bool = False  # equal calls are equal with the same seed only

    @property
    def precision(self) -> str:
        """Widest dtype whose rounding explains the misfits; "unknown" if none does."""
        name = self._widest_dtype
        half = self.probe.form.dtype in HALF_DTYPES or self.half_tables or self.half_angles
        return name if name not in HALF_DTYPES or half else "unknown"

    @property
    def _widest_dtype(self) -> str:
        if self.rotations is None:
            return "float64"
        misfit = max(self.rotations.angle_misfit, self.rotations.size_misfit)
        limits = (("float64", 1e-12), ("float32", 2e-6), ("float16", 2e-3))
        return next((name for name, limit in limits if misfit < limit), "bfloat16")

    @property
    def has_constant_frequencies(self) -> bool:
        """Whether angles are positions times frequencies, apart from rounding."""
        return (
            self.rotations is None
            or max(self.rotations.angle_misfit, self.rotations.size_misfit) < _LARGEST_ROUNDING
        )

    @property
    def rounding_unit(self) -> float:
        """Unit rounding of the widest dtype that explains the misfits of angles and sizes."""
        return PRECISIONS[self._widest_dtype]

    @property
    def half_tables(self) -> str | None:
        """Half-precision dtype that cos and sin are rounded to although the input is wider."""
        if self.first_blocks is None or self._widest_dtype not in HALF_DTYPES:
            return None
        scale = self.first_blocks[0, 0, 0, 0]  # cos 0 = 1, so this is the attention scale
        tables = self.first_blocks / scale
        for name in HALF_DTYPES:
            off = (tables.to(DTYPES[name]).double() - tables).abs()
            if name != self.probe.form.dtype and bool((off <= _SAME_NUMBER * tables.abs()).all()):
                return name
        return None

    @cached_property
    def half_angles(self) -> str | None:
        """Half-precision dtype that all angles are rounded to although the input is wider."""
        if self.first_blocks is None or self._widest_dtype not in HALF_DTYPES:
            return None
        if self.probe.form.dtype in HALF_DTYPES or self.half_tables is not None:
            return None
        assert self.rotations is not None
        angles = compute_angles(self.first_blocks)  # from -pi to pi
        positions = torch.arange(len(angles))[:, None, None]
        fitted = self.rotations.phase + self.rotations.frequency * positions
        unwrapped = fitted + wrap_angle(angles - fitted)
        forms = torch.stack((angles, angles % (2 * math.pi), unwrapped))
        for name in HALF_DTYPES:
            off = (forms.to(DTYPES[name]).double() - forms).abs()
            if bool((off <= _SAME_NUMBER * forms.abs()).any(0).all()):
                return name
        return None


def prepare_probe(fn: Callable[..., Any], head_dim: int, kind: Kind, where: str) -> FunctionProbe:
    """Check the arguments, and find the form of call that ``fn`` accepts."""
    if not callable(fn):
        raise TypeError(
            f"{where}: fn must be a function, or another object that can be called; got {fn!r}."
        )
    if type(head_dim) is not int or head_dim < 2:
        raise ValueError(
            f"{where}: head_dim must be an int >= 2, the channels of one head; got {head_dim!r}."
        )
    if kind not in KINDS:
        raise ValueError(
            f"{where}: kind must be 'x' for fn(x, positions), 'qk' for fn(q, k, positions) or"
            f" 'cos_sin' for fn(q, k, cos, sin); got {kind!r}."
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
    return replace(
        _measure_pairs(probe), repeat_difference=differs, draws_random_numbers=draws_random_numbers
    )


def make_reference_call(
    probe: FunctionProbe, seed: int | None = None, start: int = 0
) -> list[Tensor]:
    """Results in float64 of a call that is made before all others and repeated later.

    seed: for torch's global generator, which the function may draw from. start: first position.
    """
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(1, 2, 11, probe.head_dim, generator=generator).double()
    if seed is not None:
        torch.manual_seed(seed)
    return [
        out.to(torch.float64, copy=True) for out in probe.ask(x, torch.arange(start, start + 11))
    ]


def _measure_pairs(probe: FunctionProbe) -> MeasuredFunction:
    """Pairs, their rotations, and how those depend on the length of the context."""
    matrices = measure_matrices(probe)
    try:
        pairs = find_pairs(matrices)
    except NoPairsError as reason:
        return MeasuredFunction(probe, matrices, None, str(reason))
    if pairs is None:
        return MeasuredFunction(probe, matrices, None, None)
    blocks = measure_blocks(probe, pairs, FIRST_POSITIONS)
    found = fit_rotations(blocks, FIRST_POSITIONS)
    misfit = max(found.angle_misfit, found.size_misfit)
    try:
        lengths = measure_length_dependence(probe, pairs, blocks, min(misfit, 1e-6))
    except NoAnswerError as stop:
        lengths = LengthDependence(len(FIRST_POSITIONS), problem=str(stop))
    return MeasuredFunction(probe, matrices, pairs, None, blocks, found, lengths)


def name_function(fn: Callable[..., Any]) -> str:
    """Name of a function for reports."""
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return str(name).replace("<locals>.", "")
