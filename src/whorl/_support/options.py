"""Options of dataclasses, checked by their types: what must hold, and what came."""

import dataclasses
import math
import sys
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from .words import quote

__all__ = [
    "FactorFromOne",
    "NonNegativeInt",
    "NonNegativeNumber",
    "Number",
    "PositiveInt",
    "PositiveNumber",
    "PositiveSize",
    "Size",
    "check_choice",
    "check_number",
    "check_options",
]


class Bounds(NamedTuple):
    """The range of an int or of a finite number; ``strict`` excludes ``least`` itself."""

    least: float
    strict: bool = False
    most: float = math.inf


_ALLOCATED = 1 << 32

PositiveInt = Annotated[int, Bounds(1)]
NonNegativeInt = Annotated[int, Bounds(0)]
#: Sizes of what memory is allocated for.
PositiveSize = Annotated[int, Bounds(1, most=_ALLOCATED)]
Size = Annotated[int, Bounds(0, most=_ALLOCATED)]
Number = Annotated[float, Bounds(-sys.float_info.max)]
PositiveNumber = Annotated[float, Bounds(0, strict=True)]
NonNegativeNumber = Annotated[float, Bounds(0)]
FactorFromOne = Annotated[float, Bounds(1)]


def check_options(options: Any, where: str) -> None:
    """Refuse options of a dataclass that are not what their types say.

    Checked are words (``Literal``), True and False, and the numbers above; each may be optional.
    Options of other types, and of several, are left to the dataclass.
    """
    hints = get_type_hints(type(options), include_extras=True)
    for field in dataclasses.fields(options):
        option, value, kind = field.name, getattr(options, field.name), hints[field.name]
        none: tuple[None, ...] = ()
        if get_origin(kind) in (Union, UnionType):
            kinds = [each for each in get_args(kind) if each is not NoneType]
            if value is None or len(kinds) > 1:
                continue
            none, kind = (None,), kinds[0]
        if get_origin(kind) is Literal:
            check_choice(value, (*get_args(kind), *none), option, where)
        elif kind is bool:
            check_choice(value, (True, False), option, where)
        elif get_origin(kind) is Annotated:
            check_number(value, kind, option, where)


def check_choice(value: object, choices: Sequence[object], option: str, where: str) -> None:
    """Refuse a value that is not among ``choices``."""
    if not any(isinstance(value, type(choice)) and value == choice for choice in choices):
        words = " or ".join(map(repr, choices))
        raise ValueError(f"{where}: {option} must be {words}; got {quote(value)}.")


def check_number(value: Any, kind: Any, option: str, where: str) -> None:
    """Refuse what is not a number of ``kind``, one of the types above."""
    number, (least, strict, most) = get_args(kind)
    if number is int:
        right, words = type(value) is int, "an int"
    else:
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
        right, words = right and value <= sys.float_info.max, "a finite number"
    if not right or not (value > least if strict else value >= least):
        if least >= 0:
            words = f"{words} above {least}" if strict else f"{words} >= {least}"
        raise ValueError(f"{where}: {option} must be {words}; got {quote(value)}.")
    if value > most:
        raise ValueError(
            f"{where}: {option} must be at most 2^32, because memory is allocated for as many; got"
            f" {quote(value)}."
        )
