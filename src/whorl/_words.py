"""Words that several error messages share."""

import difflib
import reprlib
from collections.abc import Iterable

__all__ = ["did_you_mean", "shown"]

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 60
_REPR.maxlong = 40
_REPR.maxlevel = 3
_MOST = 200  # lists of lists, each of which is short


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "; did you mean 'rope'?", or a full stop."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def shown(value: object) -> str:
    """A value as it may stand in a message, however long it is.

    >>> shown("a" * 5000), shown(list(range(3000)))  # doctest: +ELLIPSIS
    ("'aaa...aaa'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    try:
        text = _REPR.repr(value)
    except ValueError:  # integers of thousands of digits
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
