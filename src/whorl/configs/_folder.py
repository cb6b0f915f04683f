"""Find the config in a folder. A few fixed places are tried, so cyclic links cannot loop."""

import os
import re
from itertools import islice
from pathlib import Path

from .model import ConfigError

__all__ = ["find_config"]

_NAMES = ("config.json", "params.json")
_MOST_ENTRIES = 10_000
_MOST_TRIES = 16
_CHECKPOINT = re.compile(r"(?:checkpoint|step|epoch)[-_]?(\d{1,9})")


def find_config(folder: Path) -> Path:
    """The config.json, params.json or only .gguf of a folder, its checkpoints or its snapshots."""
    found = (
        _find_in_folder(folder)
        or _find_in_folder(folder / "original")
        or _find_in_subfolders(folder)
    )
    if found is None:
        raise ConfigError(
            f"{folder} contains no {' or '.join(_NAMES)} and no .gguf; pass the path of a file."
        )
    return found


def _find_in_folder(folder: Path) -> Path | None:
    for name in _NAMES:
        if (folder / name).is_file():
            return folder / name
    names = [n for n in _list_entries(folder) if n.lower().endswith(".gguf")]
    # "mmproj" files are vision projectors. The first file of a split model has the metadata.
    models = [n for n in names if not n.startswith("mmproj")] or names
    parts = [n for n in models if "-of-" not in n or "-00001-of-" in n]
    if len(parts) > 1:
        raise ConfigError(
            f"{folder} holds {len(parts)} .gguf files: {', '.join(sorted(parts)[:4])}"
            f"{', ...' if len(parts) > 4 else ''}; pass one of them."
        )
    return folder / parts[0] if parts else None


def _find_in_subfolders(folder: Path) -> Path | None:
    """The config in the latest checkpoint of a training run, or in a snapshot of a download."""
    matches = [(_CHECKPOINT.fullmatch(name), name) for name in _list_entries(folder)]
    numbered = sorted((int(match[1]), name) for match, name in matches if match)
    snapshots = [Path("snapshots") / name for name in sorted(_list_entries(folder / "snapshots"))]
    latest = [Path(name) for _, name in reversed(numbered)]
    for inner in [*latest, *snapshots][:_MOST_TRIES]:
        found = _find_in_folder(folder / inner)
        if found is not None:
            return found
    return None


def _list_entries(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, _MOST_ENTRIES)]
