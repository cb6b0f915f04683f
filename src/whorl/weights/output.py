"""The folder that a conversion writes: where it may be, whether it fits, and its files."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

__all__ = ["check_free", "check_room", "write_file"]


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


def write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a new file and flush it to the disk."""
    with open(path, "xb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"
