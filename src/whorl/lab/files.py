"""JSON documents of runs, and the lock on a run folder."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whorl._support.bounded_json import RESULTS, JsonError, parse_json, read_within
from whorl._support.files import write_file_atomically
from whorl._support.locks import hold_lock

__all__ = ["lock_folder", "read_json", "replace_non_finite", "write_json"]


def write_json(path: Path, document: Any) -> None:
    """Write JSON that every reader takes: what is no number (NaN, infinity) becomes null."""
    text = json.dumps(replace_non_finite(document), indent=1, allow_nan=False) + "\n"
    write_file_atomically(path, text.encode())


def replace_non_finite(value: Any) -> Any:
    """``value`` with None instead of what is no number: JSON has neither NaN nor infinity."""
    if isinstance(value, dict):
        return {key: replace_non_finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_non_finite(one) for one in value]
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
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes out of ``folder`` until the block, or the process, ends."""
    with hold_lock(folder / ".lock") as held:
        if not held:
            raise ValueError(
                f"{str(folder)!r} is in use by another process; wait for it, or name another"
                " folder."
            )
        yield
