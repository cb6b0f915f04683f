"""Words that several error messages share."""

import difflib
import re
import reprlib
from collections.abc import Iterable

__all__ = ["did_you_mean", "is_numeral", "shown"]

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 60
_REPR.maxlong = 40


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "; did you mean 'rope'?", or a full stop."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def shown(value: object) -> str:
    """A value as it may stand in a message, however long it is."""
    try:
        return _REPR.repr(value)
    except ValueError:  # integers of thousands of digits
        return f"a {type(value).__name__} too long to print"


def is_numeral(text: str) -> bool:
    """Whether a string is what JSON writes for a number.

    >>> is_numeral("4.0"), is_numeral("1e6"), is_numeral("nan"), is_numeral("4k")
    (True, True, False, False)
    """
    return re.fullmatch(r"-?\d{1,300}(\.\d{1,300})?([eE][+-]?\d{1,3})?", text) is not None
