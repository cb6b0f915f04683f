"""Shared parts of the analysis functions: result records, checks of arguments, memory limits."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from whorl._support import memory
from whorl._support.words import quote
from whorl.encodings import Encoding, RoPE

__all__ = [
    "Record",
    "check_int",
    "check_ints",
    "check_memory",
    "convert_to_plain",
    "convert_to_rows",
    "find_rope",
    "format_bytes",
    "make_generator",
    "sample_normal",
    "sample_positions",
]

# Free memory, if the system does not report it.
_ASSUMED_FREE = 4 * 2**30


@dataclass(frozen=True)
class Record:
    """The result of an analysis function, for charts and for JSON."""

    #: Keys of fields in JSON, for those that have another name there.
    json_names: ClassVar[Mapping[str, str]] = {}

    def to_dict(self) -> dict[str, Any]:
        """All fields as numbers, strings, lists and dicts; None for numbers that are not finite."""
        names = {f.name: self.json_names.get(f.name, f.name) for f in dataclasses.fields(self)}
        return {key: convert_to_plain(getattr(self, name)) for name, key in names.items()}


def convert_to_plain(value: Any) -> Any:
    """Values that JSON can hold: tuples as lists, records as dicts, None for infinity and NaN.

    >>> convert_to_plain((1.5, float("inf"), {"a": (1,)}))
    [1.5, None, {'a': [1]}]
    """
    if isinstance(value, (tuple, list)):
        return [convert_to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): convert_to_plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.to_dict() if hasattr(value, "to_dict") else value


def check_int(
    value: object, name: str, where: str, at_least: int = 1, at_most: int | None = None
) -> int:
    """``value`` if it is an int in the range, else ValueError."""
    if type(value) is not int or value < at_least or (at_most is not None and value > at_most):
        upto = "" if at_most is None else f" and at most {at_most:,}"
        raise ValueError(f"{where}: {name} must be an int >= {at_least}{upto}; got {quote(value)}.")
    return value


def check_ints(
    values: object, name: str, where: str, at_least: int = 1, at_most: int | None = None
) -> tuple[int, ...]:
    """``values`` as a tuple if it is a non-empty list of ints in the range, else ValueError."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
        raise ValueError(f"{where}: {name} must be a list of ints; got {quote(values)}.")
    return tuple(check_int(n, f"each of {name}", where, at_least, at_most) for n in values)


def make_generator(seed: object, where: str) -> torch.Generator:
    """A random generator with this seed."""
    if type(seed) is not int or not -(2**63) <= seed < 2**64:
        raise ValueError(f"{where}: seed must be an int of 64 bits; got {quote(seed)}.")
    return torch.Generator().manual_seed(seed)


def sample_normal(source: torch.Generator, *shape: int) -> Tensor:
    """Random numbers of a normal distribution, float64."""
    return torch.randn(*shape, generator=source, dtype=torch.float64)


def check_memory(needed: int, asked: int | str, where: str) -> None:
    """Raise ValueError if ``needed`` bytes are more than half of the free memory.

    asked: the length that needs them, or words for something else.
    """
    free = memory.read_available() or _ASSUMED_FREE
    if 2 * needed > free:
        words = isinstance(asked, str)
        what = asked if words else f"length {asked:,}"
        raise ValueError(
            f"{where}: {what} needs {format_bytes(needed)} of memory, but may use at most half of"
            f" the {format_bytes(free)} that are free; choose a {'smaller' if words else 'shorter'}"
            " one."
        )


def format_bytes(count: float) -> str:
    """A number of bytes with a unit.

    >>> format_bytes(8 * 2**30), format_bytes(3_000_000)
    ('8.59 GB', '3 MB')
    """
    for unit, step in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= step:
            return f"{count / step:,.3g} {unit}" if count < 1e15 else f"{count / step:,.0f} {unit}"
    return f"{count / 1e3:.3g} kB"


def sample_positions(length: int, count: int) -> tuple[int, ...]:
    """Positions 0 .. length - 1, or about ``count`` of them with growing gaps, both ends included.

    >>> sample_positions(5, 8), sample_positions(1000, 6)
    ((0, 1, 2, 3, 4), (0, 1, 6, 32, 178, 999))
    """
    if length <= count:
        return tuple(range(length))
    last, steps = length - 1, count - 2
    found = [round(last ** (n / steps)) for n in range(steps + 1)]
    return (0, *dict.fromkeys(found))


def find_rope(encoding: object, where: str) -> RoPE:
    """The first RoPE of an encoding or composition."""
    if not isinstance(encoding, Encoding):
        raise TypeError(f"{where}: rope must be a whorl.RoPE; got {quote(encoding)}.")
    found = [part for part in encoding.parts if isinstance(part, RoPE)]
    if not found:
        raise ValueError(
            f"{where}: rope must be a whorl.RoPE, or a composition with one; got {quote(encoding)}."
        )
    return found[0]


def convert_to_rows(values: Tensor) -> tuple[tuple[float, ...], ...]:
    """A tensor [M, N] as tuples of numbers."""
    return tuple(map(tuple, values.tolist()))
