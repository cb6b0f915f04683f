"""A folder that is there whole or not at all.

It is filled under a hidden name beside its own, everything is flushed to the disk, and a rename
puts it in place. Killed before that, a process leaves nothing under the name that was asked for;
what it leaves under the hidden one is removed by the next call for the same folder. A lock file
beside the hidden folder (a folder with an open file in it could not be renamed on Windows) tells
what is left behind from what another process is filling.
"""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from whorl._support.locks import acquire_lock, release_lock

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
        with contextlib.suppress(OSError):  # part.mkdir below reports it
            target.parent.mkdir(parents=True, exist_ok=True)
        with _held(part):
            part.mkdir(parents=True)
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
        _remove_lock(part, handle)


def _sweep(target: Path) -> None:
    """Remove what killed processes left of the same folder: parts that nobody holds."""
    pattern = f".{_literal(target.name)}.*.part"
    left = {*target.parent.glob(pattern)}
    left |= {path.with_suffix("") for path in target.parent.glob(f"{pattern}.lock")}
    for part in left:
        handle = _lock(part)
        if handle is not None:
            shutil.rmtree(part, ignore_errors=True)
            _remove_lock(part, handle)


def _lock(part: Path) -> int | None:
    """A handle that holds ``part``; None if another process does, or where there are no locks."""
    try:
        return acquire_lock(_lock_path(part))
    except OSError:
        with contextlib.suppress(OSError):
            _lock_path(part).unlink()
        return None


def _remove_lock(part: Path, handle: int | None) -> None:
    if handle is None:
        return
    try:  # while it is held, so that nobody takes it meanwhile
        _lock_path(part).unlink()
    except OSError:  # Windows keeps files that are open
        release_lock(handle)
        _lock_path(part).unlink(missing_ok=True)
    else:
        release_lock(handle)


def _lock_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.lock")


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"
