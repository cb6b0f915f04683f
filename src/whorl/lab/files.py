"""JSON files of runs, and the lock of a folder."""

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
    """Write ``document`` as JSON, with null for NaN and infinity, which JSON does not have."""
    text = json.dumps(replace_non_finite(document), indent=1, allow_nan=False) + "\n"
    write_file_atomically(path, text.encode())


def replace_non_finite(value: Any) -> Any:
    """``value`` with None for NaN and infinity, also inside lists and dictionaries."""
    if isinstance(value, dict):
        return {key: replace_non_finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_non_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    """The document in a JSON file; ValueError with the name of the file if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return parse_json(read_within(file, RESULTS), RESULTS)
    except JsonError as error:
        raise ValueError(f"{str(path)!r} cannot be read: it {error}.") from None
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}.") from None


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder`` in a with block; ValueError if another process holds it."""
    with hold_lock(folder / ".lock") as held:
        if not held:
            raise ValueError(
                f"{str(folder)!r} is in use by another process; wait for it, or choose another"
                " folder."
            )
        yield
