"""What functions that find numbers share: plain records, checks, and a limit set by memory."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whorl._support import memory
from whorl.encodings import Encoding, RoPE

__all__ = ["Record", "fits", "generator", "places", "plain", "rope_of", "rows", "size", "whole"]

# Where the system does not say what is free.
_ASSUMED = 4 * 2**30


@dataclass(frozen=True)
class Record:
    """Numbers that a function found, for charts and for JSON."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as numbers, strings, lists and dicts; None for what is not finite."""
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}


def plain(value: Any) -> Any:
    """Tuples as lists, records as dicts, numbers that JSON does not have as None.

    >>> plain((1.5, float("inf"), {"a": (1,)}))
    [1.5, None, {'a': [1]}]
    """
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.to_dict() if hasattr(value, "to_dict") else value


def whole(
    value: object, name: str, where: str, at_least: int = 1, at_most: int | None = None
) -> int:
    """``value`` if it is an int in the range, else an error that says so."""
    if type(value) is not int or value < at_least or (at_most is not None and value > at_most):
        upto = "" if at_most is None else f" and at most {at_most:,}"
        raise ValueError(f"{where}: {name} must be an int >= {at_least}{upto}; got {value!r}.")
    return value


def generator(seed: object, where: str) -> torch.Generator:
    """A source of random numbers."""
    if type(seed) is not int or not -(2**63) <= seed < 2**64:
        raise ValueError(f"{where}: seed must be an int of 64 bits; got {seed!r}.")
    return torch.Generator().manual_seed(seed)


def fits(needed: int, asked: int | str, where: str) -> None:
    """Refuse a length whose numbers would take more than half of the memory that is free.

    asked: the length, or words for something else that is too large.
    """
    free = memory.read_available() or _ASSUMED
    if 2 * needed > free:
        words = isinstance(asked, str)
        what = asked if words else f"length {asked:,}"
        raise ValueError(
            f"{where}: {what} needs {size(needed)} of memory, and {size(free)} are"
            f" free, of which half may be used; ask for a {'smaller' if words else 'shorter'} one."
        )


def size(count: float) -> str:
    """Bytes as people read them.

    >>> size(8 * 2**30), size(3_000_000)
    ('8.59 GB', '3 MB')
    """
    for unit, step in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= step:
            return f"{count / step:,.3g} {unit}" if count < 1e15 else f"{count / step:,.0f} {unit}"
    return f"{count / 1e3:.3g} kB"


def places(length: int, count: int) -> tuple[int, ...]:
    """0 .. length - 1, or about ``count`` of them, ever further apart, with both ends.

    >>> places(5, 8), places(1000, 6)
    ((0, 1, 2, 3, 4), (0, 1, 6, 32, 178, 999))
    """
    if length <= count:
        return tuple(range(length))
    last, steps = length - 1, count - 2
    found = [round(last ** (n / steps)) for n in range(steps + 1)]
    return (0, *dict.fromkeys(found))


def rope_of(encoding: object, where: str) -> RoPE:
    """The RoPE in an encoding."""
    if not isinstance(encoding, Encoding):
        raise TypeError(f"{where}: rope must be a whorl.RoPE; got {encoding!r}.")
    found = [part for part in encoding.parts if isinstance(part, RoPE)]
    if not found:
        raise ValueError(f"{where}: rope must be a whorl.RoPE, or hold one; got {encoding!r}.")
    return found[0]


def rows(values: Tensor) -> tuple[tuple[float, ...], ...]:
    """[M, N] as tuples of numbers."""
    return tuple(map(tuple, values.tolist()))
