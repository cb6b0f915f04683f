"""Numbers that were written as text: ``"4.0"``, ``" 4.0 "``, ``"500,000"``, ``"4k"``."""

import math
import re
from dataclasses import dataclass

__all__ = ["TextNumber", "is_json_number", "parse_number"]

_PLAIN = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,3})?", re.ASCII)
_GROUPED = re.compile(r"([+-]?)(\d{1,3})((?:,\d{3})+|(?:_\d{3})+)(\.\d{1,300})?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"([+-]?\d{1,300}),(\d{1,300})", re.ASCII)
_MULTIPLE = re.compile(r"([+-]?\d{1,300}(?:\.\d{1,300})?)\s?([kKmM])", re.ASCII)
_MULTIPLES = {"k": (1000, 1024), "m": (1000**2, 1024**2)}


@dataclass(frozen=True)
class TextNumber:
    """The number that a text stands for.

    certain: whether it can stand for no other number.
    reason: where it is not certain, how the text was read.
    """

    value: int | float
    certain: bool = True
    reason: str = ""


def parse_number(text: str, *, whole: bool = False, large: bool = False) -> TextNumber | None:
    """The finite number that ``text`` stands for, None if it stands for none.

    whole: the number must be whole, so that "4.0" is 4, "4,096" has no fraction, and k is 1024.
    large: the number is never below 1000, so that "500,000" has no fraction.

    >>> parse_number(" 4.0 ").value, parse_number("500,000", large=True).value
    (4.0, 500000)
    >>> parse_number("4k", whole=True)
    TextNumber(value=4096, certain=False, reason='k = 1024')
    """
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return _build_number(text, whole)
    if match := _GROUPED.fullmatch(text):
        sign, first, groups, fraction = match.groups()
        joined = sign + first + re.sub("[,_]", "", groups) + (fraction or "")
        one_comma = groups[0] == "," and len(groups) == 4 and not fraction
        unsure = one_comma and not whole and not large
        return _build_number(joined, whole, "the comma separates thousands" if unsure else "")
    if match := _DECIMAL_COMMA.fullmatch(text):
        return _build_number(f"{match[1]}.{match[2]}", whole, "the comma is a decimal point")
    if match := _MULTIPLE.fullmatch(text):
        unit = _MULTIPLES[match[2].lower()][whole]
        number = float(match[1]) * unit
        value = int(number) if number.is_integer() else number
        return TextNumber(value, False, f"{match[2]} = {unit}") if math.isfinite(number) else None
    return None


def is_json_number(text: str) -> bool:
    """Whether ``text`` is a number as JSON writes it, so that it needs no change but its quotes.

    >>> is_json_number("1e6"), is_json_number("1_000"), is_json_number(" 4")
    (True, False, False)
    """
    return re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", text, re.ASCII) is not None


def _build_number(text: str, whole: bool, reason: str = "") -> TextNumber | None:
    digits = text.lstrip("+-").isdecimal()
    number: int | float = int(text) if digits else float(text)
    try:
        if not math.isfinite(number):
            return None
    except OverflowError:  # a whole number that no float holds
        return None
    if whole and float(number).is_integer():
        number = int(number)
    return TextNumber(number, not reason, reason)
