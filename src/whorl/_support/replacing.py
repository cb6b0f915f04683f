"""Write a file so that readers see the old one or the whole new one, and nothing is left behind.

The new content goes into ``.NAME.part`` beside the file, which is then renamed. A process that is
killed meanwhile leaves that file, and the next one to write NAME takes it over: its name does not
change, and its writer holds a lock on it, so that what nobody holds is known to be left over.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from .locks import acquire_lock, release_lock

__all__ = ["replace_file"]

WINDOWS = os.name == "nt"


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``: all of it or, where an OSError is raised, nothing."""
    part = path.with_name(f".{path.name}.part")
    handle = _take_over(part)
    if handle is None:  # somebody else is writing the same file now, or the name is not ours
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            os.ftruncate(handle, 0)
            with os.fdopen(handle, "wb", closefd=False) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if not WINDOWS:  # renamed while it is locked: nobody can write into it any more
                os.replace(part, path)
        finally:
            with suppress(OSError):  # of a handle that was never locked; it is closed all the same
                release_lock(handle)
        if WINDOWS:  # which does not rename open files
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _take_over(part: Path) -> int | None:
    """A handle that holds the lock on ``part``; None if it is held, or is no plain file of ours."""
    try:
        handle = None if part.is_symlink() else acquire_lock(part)
    except OSError:  # not allowed, or no locks here
        return None
    if handle is None:
        return None
    mine, named = os.fstat(handle), os.lstat(part)
    if stat.S_ISREG(named.st_mode) and os.path.samestat(mine, named) and mine.st_nlink == 1:
        return handle
    release_lock(handle)
    return None
