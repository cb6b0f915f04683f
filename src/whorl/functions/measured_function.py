"""What ``check`` and ``identify`` measure first: pairs, rates, how they follow the length."""

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

#: Unit roundings of what a function may compute in; the float64 one leaves room for our own sums.
PRECISIONS = {"float64": 2.0**-44, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
HALF_DTYPES = ("bfloat16", "float16")
#: A relative misfit that no rounding explains.
_UNSTEADY = 0.05
#: By how much a number of a half type is off, relative, where cos and sin of it are float32 ones.
_SAME_NUMBER = 2.0**-20


@dataclass(frozen=True)
class MeasuredFunction:
    """A function, its matrices [16, D, D] at positions 0 .. 15, and the pairs found in them.

    pairs is None where nothing turns or where there are none (``unpaired`` says why).
    """

    probe: FunctionProbe
    maps: Tensor
    pairs: Pairs | None
    unpaired: str | None
    short: Tensor | None = None  # blocks [16, n, 2, 2]
    turning: PairRotations | None = None
    lengths: LengthDependence | None = None
    unrepeated: float = 0.0  # by which the same call twice in a row differs
    by_chance: bool = False  # and that it does not from the same seed

    @property
    def precision(self) -> str:
        """The widest type that explains the noise; "unknown" where no half type is seen in it."""
        name = self._widest
        half = self.probe.form.dtype in HALF_DTYPES or self.half_tables or self.half_angles
        return name if name not in HALF_DTYPES or half else "unknown"

    @property
    def _widest(self) -> str:
        if self.turning is None:
            return "float64"
        noise = max(self.turning.noise, self.turning.wobble)
        limits = (("float64", 1e-12), ("float32", 2e-6), ("float16", 2e-3))
        return next((name for name, limit in limits if noise < limit), "bfloat16")

    @property
    def steady(self) -> bool:
        """Whether angles are positions times rates at all."""
        return self.turning is None or max(self.turning.noise, self.turning.wobble) < _UNSTEADY

    @property
    def unit(self) -> float:
        """Relative misfit of angles and sizes, as the unit rounding of the next wider type."""
        return PRECISIONS[self._widest]

    @property
    def half_tables(self) -> str | None:
        """The half type that cos and sin are numbers of although the input is wider."""
        if self.short is None or self._widest not in HALF_DTYPES:
            return None
        tables = self.short / self.short[0, 0, 0, 0]  # cos 0 = 1, whatever the attention scale
        for name in HALF_DTYPES:
            off = (tables.to(DTYPES[name]).double() - tables).abs()
            if name != self.probe.form.dtype and bool((off <= _SAME_NUMBER * tables.abs()).all()):
                return name
        return None

    @cached_property
    def half_angles(self) -> str | None:
        """The half type that all angles are numbers of although input and tables are wider."""
        if self.short is None or self.turning is None or self._widest not in HALF_DTYPES:
            return None
        if self.probe.form.dtype in HALF_DTYPES or self.half_tables is not None:
            return None
        seen = compute_angles(self.short)  # within half a turn of 0
        line = self.turning.phase + self.turning.rate * torch.arange(len(seen))[:, None, None]
        forms = torch.stack((seen, seen % (2 * math.pi), line + wrap_angle(seen - line)))
        for name in HALF_DTYPES:
            off = (forms.to(DTYPES[name]).double() - forms).abs()
            if bool((off <= _SAME_NUMBER * forms.abs()).any(0).all()):
                return name
        return None


def prepare_probe(fn: Callable[..., Any], head_dim: int, kind: Kind, where: str) -> FunctionProbe:
    """Check the arguments and find the form that ``fn`` answers in."""
    if not callable(fn):
        raise TypeError(f"{where}: needs a function; got {fn!r}.")
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
    """Measure what everything else is judged by."""
    differs = compute_difference(*(make_reference_call(probe)[probe.role] for _ in range(2)))
    by_chance = False
    if differs:
        with torch.random.fork_rng(devices=()):
            seeded = [make_reference_call(probe, seed=0)[probe.role] for _ in range(2)]
        by_chance = compute_difference(*seeded) == 0
    return replace(_measure_pairs(probe), unrepeated=differs, by_chance=by_chance)


def make_reference_call(
    probe: FunctionProbe, seed: int | None = None, start: int = 0
) -> list[Tensor]:
    """A call that is made before all others and again later; every result.

    seed: what torch's own generator begins with, for functions that draw from it. start: its first
    position.
    """
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(1, 2, 11, probe.head_dim, generator=generator).double()
    if seed is not None:
        torch.manual_seed(seed)
    return [
        out.to(torch.float64, copy=True) for out in probe.ask(x, torch.arange(start, start + 11))
    ]


def _measure_pairs(probe: FunctionProbe) -> MeasuredFunction:
    maps = measure_matrices(probe)
    try:
        pairs = find_pairs(maps)
    except NoPairsError as reason:
        return MeasuredFunction(probe, maps, None, str(reason))
    if pairs is None:
        return MeasuredFunction(probe, maps, None, None)
    short = measure_blocks(probe, pairs, FIRST_POSITIONS)
    found = fit_rotations(short, FIRST_POSITIONS)
    noise = max(found.noise, found.wobble)
    try:
        lengths = measure_length_dependence(probe, pairs, short, min(noise, 1e-6))
    except NoAnswerError as stop:
        lengths = LengthDependence(len(FIRST_POSITIONS), problem=str(stop))
    return MeasuredFunction(probe, maps, pairs, None, short, found, lengths)


def name_function(fn: Callable[..., Any]) -> str:
    """What to call it in a report."""
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return str(name).replace("<locals>.", "")
