"""Files and folders that appear whole or not at all, whatever happens while they are written.

Each is written under a hidden name beside its own, flushed to the disk, and renamed. The hidden
name is the same in every run, so the next writer replaces what a killed process left. A lock file
keeps other processes away from it meanwhile (a folder with an open file in it could not be renamed
on Windows, so the lock stands beside it):

    one process writes report.json          .report.json.part and .report.json.part.lock
    a second one does at the same time      .report.json.2.part and .report.json.2.part.lock
"""

import contextlib
import errno
import itertools
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .locks import acquire_lock, release_lock

__all__ = ["create_folder_atomically", "flush_folder", "remove_parts", "write_file_atomically"]

# How systems say that a lock file is there but cannot be locked.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


def write_file_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``: a reader sees the old file or the whole new one."""
    with _reserve_part(path, _remove_file) as part:
        with open(part, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    flush_folder(path.parent)


@contextmanager
def create_folder_atomically(target: Path) -> Iterator[Path]:
    """Yield a hidden folder to fill; it becomes ``target`` after the block, unless that fails."""
    try:
        with contextlib.suppress(OSError):  # part.mkdir below reports it
            target.parent.mkdir(parents=True, exist_ok=True)
        with _reserve_part(target, _remove_folder) as part:
            part.mkdir(parents=True)
            yield part
            flush_folder(part)
            os.rename(part, target)
    except OSError as error:
        why = error.strerror or error
        raise OSError(
            f"{str(target)!r} cannot be written: {why}; nothing was left there. Make room, or name"
            " another folder."
        ) from error
    flush_folder(target.parent)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_parts(folder: Path, names: str) -> None:
    """Delete what killed processes left of files whose names match the pattern ``names``.

    For files that the next run does not write again. The folder must be locked: nobody else may be
    writing there.
    """
    pattern = re.compile(rf"\.({names})(\.\w+)?\.part(\.lock)?")
    for path in folder.glob(".*.part*"):
        if pattern.fullmatch(path.name):
            path.unlink()


@contextmanager
def _reserve_part(path: Path, remove: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a hidden name beside ``path`` that is ours during the block and free after it."""
    part, handle = _lock_part(path)
    try:
        remove(part)
        yield part
    finally:
        try:
            remove(part)
        finally:
            if handle is not None:
                _remove_lock(part, handle)


def _lock_part(path: Path) -> tuple[Path, int | None]:
    """The first hidden name that no process holds, and the handle of its lock.

    A name that nobody else has, and None, where no lock can be had; if nothing can be written
    there at all, writing says so.
    """
    for number in itertools.count(1):
        part = path.with_name(f".{path.name}{'' if number == 1 else f'.{number}'}.part")
        try:
            handle = acquire_lock(_lock_path(part))
        except OSError as error:
            if error.errno in _NO_LOCKS:
                _lock_path(part).unlink(missing_ok=True)
            return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.part"), None
        if handle is not None:
            return part, handle
    raise AssertionError("count() does not end")


def _remove_file(part: Path) -> None:
    part.unlink(missing_ok=True)


def _remove_folder(part: Path) -> None:
    shutil.rmtree(part, ignore_errors=True)


def _remove_lock(part: Path, handle: int) -> None:
    try:  # while it is held, so that nobody takes it meanwhile
        _lock_path(part).unlink()
    except OSError:  # Windows keeps files that are open
        release_lock(handle)
        with contextlib.suppress(OSError):  # another process holds it by now
            _lock_path(part).unlink()
    else:
        release_lock(handle)


def _lock_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.lock")
