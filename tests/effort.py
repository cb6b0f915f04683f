"""Work that is bounded by what it is, on any machine: calls are counted, nothing is timed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST = 2_000_000  # a second or so of Python


class TooMuchWorkError(BaseException):
    """More calls than allowed. No ``except Exception`` of the examined code holds it back."""


@contextmanager
def bounded(most: int = MOST, *, what: object = "this") -> Iterator[None]:
    """Stop the work inside at its call number ``most``, of a Python or of a C function.

    What never ends fails here instead of hanging, but for what never ends within one C call; what
    such a call reads is seen by ``bytes_read``.
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
        yield
    finally:
        sys.setprofile(before)


def bytes_read() -> int:
    """By this process, from files and from the cache of the system; 0 where that is not known."""
    counts = Path("/proc/self/io")
    return int(counts.read_text().split()[1]) if counts.exists() else 0
