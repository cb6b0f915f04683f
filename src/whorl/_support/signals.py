"""Signals that ask a long computation to stop at the end of its step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["watch_signals"]


@contextmanager
def watch_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that steps end; the second signal stops at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {name: signal.signal(name, handle) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
