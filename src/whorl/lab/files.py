"""JSON files of runs, folders for other programs, and the lock of a folder."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from whorl._support.bounded_json import RESULTS, JsonError, parse_json, read_within
from whorl._support.files import create_folder_atomically, write_file_atomically
from whorl._support.locks import hold_lock
from whorl.processes import ProcessGroup, check_shared_folder

__all__ = [
    "format_json",
    "lock_folder",
    "lock_together",
    "read_json",
    "replace_non_finite",
    "resolve_free_folder",
    "write_folder",
    "write_json",
]


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


@contextmanager
def lock_together(processes: ProcessGroup, folder: Path) -> Iterator[None]:
    """Create a folder, and hold its lock in the first of several processes, which all see it."""
    with ExitStack() as stack:

        def take_lock() -> None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(
                    f"the folder {str(folder)!r} cannot be created: {error.strerror or error}."
                ) from None
            stack.enter_context(lock_folder(folder))

        processes.run_on_main(take_lock)
        check_shared_folder(processes, folder)
        yield


def format_json(document: Mapping[str, Any]) -> bytes:
    """A document as the text of a JSON file for other programs."""
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def resolve_free_folder(folder: Path) -> Path:
    """The absolute path of a folder that does not exist or is empty; else ValueError."""
    target = folder.resolve()
    if target.exists() and not target.is_dir():
        raise ValueError(f"folder must not be a file; got {str(folder)!r}.")
    if target == Path.cwd():
        raise ValueError(
            f"folder must not be the current one, because an export replaces it; got"
            f" {str(folder)!r}. Choose a new folder inside it."
        )
    if target.exists() and any(target.iterdir()):
        raise ValueError(
            f"folder must be empty, because an export overwrites nothing; {str(folder)!r} is not."
            " Choose another, or remove this one first."
        )
    return target


def write_folder(target: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files to a folder beside ``target``, then rename it to ``target``."""
    with create_folder_atomically(target) as part:
        for name, data in contents.items():
            write_file_atomically(part / name, data)
        if target.exists():
            target.rmdir()  # Windows cannot rename a folder onto an existing one
