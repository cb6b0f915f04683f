"""Work that is bounded by what it is, on any machine: calls are counted, nothing is timed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST = 2_000_000  # a second or so of Python


_CALLS = ("call", "c_call")


class TooMuchWorkError(BaseException):
    """More calls than allowed. No ``except Exception`` of the examined code holds it back."""


@contextmanager
def bounded(most: int = MOST, *, what: object = "this") -> Iterator[None]:
    """Stop the work inside at its call number ``most``, of a Python or of a C function.

    What never ends fails here instead of hanging, if it calls anything: types such as ``int`` are
    not counted, nor is what happens within one call; what that reads is seen by ``bytes_read``.
    """
    calls, before = 0, sys.getprofile()
    outer = before if callable(before) else None

    def count(frame: Any, event: Any, argument: Any) -> None:
        nonlocal calls
        if outer is not None:  # one around this one counts on
            outer(frame, event, argument)
        if event in _CALLS:
            calls += 1
            if calls == most + 1:  # once: what follows is tidying up
                raise TooMuchWorkError(_words(what, most))

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(outer)
    if calls > most:  # and somebody held it back
        raise TooMuchWorkError(_words(what, most))


def _words(what: object, most: int) -> str:
    try:
        name = str(what)[:200]
    except ValueError:  # a number with thousands of digits
        name = "this"
    return f"{name} makes more than {most:,} calls"


def bytes_read() -> int:
    """By this process, from files and from the cache of the system; 0 where that is not known."""
    counts = Path("/proc/self/io")
    return int(counts.read_text().split()[1]) if counts.exists() else 0
