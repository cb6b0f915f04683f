"""Files that are there whole or not at all, whatever happens while they are written."""

import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whorl._support.bounded_json import RESULTS, JsonError, parse_json, read_within
from whorl._support.locks import hold_lock

__all__ = ["flush_folder", "locked", "plain", "read_json", "remove_parts", "write", "write_json"]


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


def remove_parts(folder: Path, name: str) -> None:
    """Delete what ``write`` left when its process was killed, of files that the pattern names.

    The folder must be locked: nobody else may be writing there.
    """
    pattern = re.compile(rf"\.({name})\.\d+\.part")
    for part in folder.glob(".*.part"):
        if pattern.fullmatch(part.name):
            part.unlink()


def write_json(path: Path, document: Any) -> None:
    """Write JSON that every reader takes: what is no number (NaN, infinity) becomes null."""
    write(path, (json.dumps(plain(document), indent=1, allow_nan=False) + "\n").encode())


def plain(value: Any) -> Any:
    """``value`` with None instead of what is no number: JSON has neither NaN nor infinity."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
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
    with hold_lock(folder / ".lock") as held:
        if not held:
            raise ValueError(
                f"{str(folder)!r} is in use by another process; wait for it, or name another"
                " folder."
            )
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
