"""A folder that is there whole or not at all.

It is filled under a hidden name beside its own, everything is flushed to the disk, and a rename
puts it in place. Killed before that, a process leaves nothing under the name that was asked for;
what it leaves under the hidden one is removed by the next call for the same folder.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_free", "check_room", "new_folder", "write_file"]


def check_free(out: Path, source: Path) -> Path:
    """The absolute folder to write, if nothing is there and the source stays as it is.

    source: a file or a folder; beside a file there is room.
    """
    if os.path.lexists(out):
        what = "a symbolic link" if out.is_symlink() else "a folder" if out.is_dir() else "a file"
        raise ValueError(
            f"{str(out)!r} is {what} that exists already, and nothing is overwritten or added to;"
            " name a folder that does not exist yet, or remove this one first."
        )
    target, home = out.resolve(), source.resolve()
    if home in target.parents:
        raise ValueError(
            f"{str(out)!r} lies in the source, which must stay as it is; name a folder elsewhere."
        )
    return target


def check_room(target: Path, needed: int) -> None:
    """Refuse before gigabytes are written what would not fit."""
    there = next(folder for folder in target.parents if folder.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise OSError(
            f"{str(target)!r} needs {_size(needed)} and {str(there)!r} has {_size(free)} left; make"
            " room, or name a folder on another disk."
        )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; after the block it becomes ``target``, or goes if there was an error."""
    _sweep(target)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        part.mkdir(parents=True)
        with _held(part):
            yield part
            flush(part)
            os.rename(part, target)
    except OSError as error:
        why = error.strerror or error
        raise OSError(
            f"{str(target)!r} cannot be written: {why}; nothing was left there. Make room, or name"
            " another folder."
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    flush(target.parent)


def write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a new file and flush it to the disk."""
    with open(path, "xb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def flush(folder: Path) -> None:
    """Make names in a folder last through a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _held(part: Path) -> Iterator[None]:
    """Keep a lock on the folder while it is filled; it goes with the process, however that ends."""
    handle = _lock(part)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _sweep(target: Path) -> None:
    """Remove what killed processes left of the same folder: parts that nobody holds."""
    for part in target.parent.glob(f".{_literal(target.name)}.*.part"):
        handle = _lock(part)
        if handle is not None:
            shutil.rmtree(part, ignore_errors=True)
            os.close(handle)


def _lock(folder: Path) -> int | None:
    """A handle that holds ``folder``; None if another process does, or where there are no locks."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"
