"""What ``check`` and ``identify`` measure first: pairs, rates, how they follow the length."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .lengths import PLACES, Lengths, watch_lengths
from .measure import Turning, blocks, turning
from .probe import KINDS, Kind, NoAnswerError, Probe
from .structure import NoPairsError, Pairs, find_pairs, matrices

__all__ = ["Study", "name_of", "prepare", "study"]

#: Unit roundings of what a function may compute in; the float64 one leaves room for our own sums.
PRECISIONS = {"float64": 2.0**-44, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
#: A relative misfit that no rounding explains.
_UNSTEADY = 0.05


@dataclass(frozen=True)
class Study:
    """A function, its matrices [16, D, D] at positions 0 .. 15, and the pairs found in them.

    pairs is None where nothing turns or where there are none (``unpaired`` says why).
    """

    probe: Probe
    maps: Tensor
    pairs: Pairs | None
    unpaired: str | None
    short: Tensor | None = None  # blocks [16, n, 2, 2]
    turning: Turning | None = None
    lengths: Lengths | None = None

    @property
    def precision(self) -> str:
        """The widest type that explains the noise."""
        if self.turning is None:
            return "float64"
        noise = max(self.turning.noise, self.turning.wobble)
        for name, limit in (("float64", 1e-12), ("float32", 2e-6), ("float16", 2e-3)):
            if noise < limit:
                return name
        return "bfloat16"

    @property
    def steady(self) -> bool:
        """Whether angles are positions times rates at all."""
        return self.turning is None or max(self.turning.noise, self.turning.wobble) < _UNSTEADY

    @property
    def unit(self) -> float:
        return PRECISIONS[self.precision]


def prepare(fn: Callable[..., Any], head_dim: int, kind: Kind, where: str) -> Probe:
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
    return Probe(fn, head_dim, kind, name_of(fn))


def study(probe: Probe) -> Study:
    """Measure what everything else is judged by."""
    maps = matrices(probe)
    try:
        pairs = find_pairs(maps)
    except NoPairsError as reason:
        return Study(probe, maps, None, str(reason))
    if pairs is None:
        return Study(probe, maps, None, None)
    short = blocks(probe, pairs, PLACES)
    found = turning(short, PLACES)
    noise = max(found.noise, found.wobble)
    try:
        lengths = watch_lengths(probe, pairs, short, min(noise, 1e-6))
    except NoAnswerError as stop:
        lengths = Lengths(len(PLACES), problem=str(stop))
    return Study(probe, maps, pairs, None, short, found, lengths)


def name_of(fn: Callable[..., Any]) -> str:
    """What to call it in a report."""
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return str(name).replace("<locals>.", "")
