"""Work that is bounded by what it is, on any machine: calls are counted, nothing is timed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MOST = 2_000_000  # a second or so of Python


class TooMuchWorkError(BaseException):
    """More calls than allowed. No ``except Exception`` of the examined code holds it back."""


@contextmanager
def bounded(most: int = MOST, *, what: object = "this") -> Iterator[Callable[[], int]]:
    """Stop the work inside at its call number ``most``, of a Python or of a C function.

    It yields how many were made so far. What never ends fails here instead of hanging.
    """
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        if event.endswith("call"):
            calls += 1
            if calls > most:
                sys.setprofile(None)
                raise TooMuchWorkError(f"{str(what)[:200]} makes more than {most:,} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(before)
