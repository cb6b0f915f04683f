"""Words that several error messages share."""

import difflib
import reprlib
from collections.abc import Iterable
from itertools import islice
from typing import Any

__all__ = ["escape_controls", "list_quoted", "quote", "shorten", "suggest_name"]


class _Repr(reprlib.Repr):
    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Entries in their own order, which the standard library sorts."""
        if not x or level <= 0:
            return "{...}" if x else "{}"
        parts = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}"
            for key, value in islice(x.items(), self.maxdict)
        ]
        return f"{{{', '.join([*parts, '...'] if len(x) > self.maxdict else parts)}}}"


_REPR = _Repr()
_REPR.maxstring = 60
_REPR.maxother = 160  # encodings and scalings
_REPR.maxlong = 40
_REPR.maxlevel = 3
_MOST = 200  # lists of lists, each of which is short


def suggest_name(name: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "; did you mean 'rope'?", or a full stop."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


def escape_controls(text: str) -> str:
    """Text with control characters, which a terminal would obey, written as escapes.

    >>> print(escape_controls("a\x1b]0;title\x07"), escape_controls("caf\xe9"))
    a\\x1b]0;title\\x07 caf\xe9
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def shorten(text: str, most: int = 120) -> str:
    """Text as it may stand in a message, its middle left out if it has too many characters."""
    text = escape_controls(text if len(text) <= most else f"{text[:most]} {text[-most:]}")
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def list_quoted(values: Iterable[object], most: int = 12) -> str:
    """Values with commas between them, each cut short, and how many more there are.

    >>> list_quoted(["a", "b"]), list_quoted(range(3000), most=2)
    ("'a', 'b'", '0, 1 and 2998 more')
    """
    every = list(values)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(map(quote, every[:most])) + more


def quote(value: object) -> str:
    """A value as it may stand in a message, however long it is.

    >>> quote("a" * 5000), quote(list(range(3000)))  # doctest: +ELLIPSIS
    ("'aaa...aaa'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    if hasattr(value, "untyped_storage"):  # a tensor, whose numbers may be gone
        return f"a tensor of {value.dtype} {list(value.shape)}"  # type: ignore[attr-defined]
    try:
        text = _REPR.repr(value)
    except ValueError:  # integers of thousands of digits
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
