"""Files that are there whole or not at all, whatever happens while they are written."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whorl._support.bounded_json import RESULTS, JsonError, parse_json, read_within

__all__ = ["flush_folder", "locked", "read_json", "write", "write_json"]


def write(path: Path, data: bytes) -> None:
    """Write beside ``path``, flush to the disk, rename: a reader sees the old file or the new."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    flush_folder(path.parent)


def write_json(path: Path, document: Any) -> None:
    """Write JSON that every reader takes: what is no number (NaN, infinity) becomes null."""
    write(path, (json.dumps(_plain(document), indent=1, allow_nan=False) + "\n").encode())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    """The document in ``path``, or an error that names the file."""
    try:
        with open(path, "rb") as file:
            return parse_json(read_within(file, RESULTS), RESULTS)
    except JsonError as error:
        raise ValueError(f"{str(path)!r} cannot be read: it {error}.") from None
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}.") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of ``folder`` until the block, or the process, ends."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        yield
        return
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{str(folder)!r} is in use by another process; wait for it, or name another"
                " folder."
            ) from None
        yield


def flush_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
