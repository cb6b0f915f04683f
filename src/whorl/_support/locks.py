"""Locks between processes: a lock file that one process holds until it lets go or ends.

The system keeps the lock, not the file: what a killed process held is free at once, and a lock file
that was left behind means nothing. Locks are ``flock`` where there is ``fcntl``, and a locked byte
(``msvcrt.locking``) on Windows, where this has been tried with a substitute for ``msvcrt`` only.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["acquire_lock", "hold_lock", "release_lock"]

# How systems say that somebody else holds it.
_BUSY = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}


def acquire_lock(path: Path) -> int | None:
    """A handle that holds the lock file ``path``, made if absent; None if it is held already.

    Raises:
        OSError: the file cannot be made, or its file system has no locks.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(handle)
        except OSError as error:
            os.close(handle)
            if error.errno in _BUSY:
                return None
            raise
        if _is_named(path, handle):
            return handle
        os.close(handle)  # its holder removed the file just before: take the next one


def release_lock(handle: int) -> None:
    """Let go of what ``acquire_lock`` gave; the file stays."""
    try:
        _release(handle)
    finally:
        os.close(handle)


@contextmanager
def hold_lock(path: Path) -> Iterator[bool]:
    """Hold the lock file ``path`` during the block; False if another process does."""
    handle = acquire_lock(path)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            release_lock(handle)


def _is_named(path: Path, handle: int) -> bool:
    """Whether ``path`` still is the open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except OSError:
        return False


def _lock(handle: int) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        return
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _release(handle: int) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:
        import msvcrt

        os.lseek(handle, 0, os.SEEK_SET)  # it unlocks where the file stands
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]
        return
    fcntl.flock(handle, fcntl.LOCK_UN)
