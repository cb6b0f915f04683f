"""Correct a config and write it beside the original; only what has one possible meaning changes.

Edits keep the order of the keys. A file is written completely or not at all.
"""

import copy
import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from whorl._support.files import write_file_atomically

from .engine import Edit, Finding

__all__ = ["apply_edits", "collect_edits", "format_diff", "get_fixed_path", "write_config"]


def collect_edits(findings: Iterable[Finding]) -> tuple[Edit, ...]:
    """The edits of all findings; of several edits of one key the first is used."""
    chosen: dict[tuple[str, ...], Edit] = {}
    for finding in findings:
        for edit in finding.edits:
            chosen.setdefault(edit.path, edit)
    return tuple(chosen.values())


def apply_edits(data: Mapping[str, Any], edits: Iterable[Edit]) -> dict[str, Any]:
    """A copy of the config with the edits applied.

    An edit is skipped if an earlier one removed the object that holds its key, or if the new name
    of a key is in use.
    """
    fixed = copy.deepcopy(dict(data))
    for edit in edits:
        *outer, name = edit.path
        holder: Any = fixed
        for key in outer:
            holder = holder.get(key) if isinstance(holder, dict) else None
        if not isinstance(holder, dict):
            continue
        if edit.do == "set":
            holder[name] = copy.deepcopy(edit.value)
        elif edit.do == "remove":
            holder.pop(name, None)
        elif holder.get(edit.value) is None and name in holder:
            holder.pop(edit.value, None)  # the null that the renamed key replaces
            renamed = {edit.value if key == name else key: v for key, v in holder.items()}
            holder.clear()
            holder.update(renamed)
    return fixed


def format_config(data: Mapping[str, Any]) -> str:
    """A config as JSON, formatted as transformers does."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def format_diff(before: Mapping[str, Any], after: Mapping[str, Any], names: tuple[str, str]) -> str:
    """A unified diff of two configs as JSON."""
    old, new = (format_config(one).splitlines(keepends=True) for one in (before, after))
    return "".join(difflib.unified_diff(old, new, *names))


def get_fixed_path(config: Path) -> Path:
    """The path of the corrected config: config.fixed.json beside config.json."""
    return config.with_name(f"{config.stem}.fixed{config.suffix}")


def write_config(path: Path, data: Mapping[str, Any], *, force: bool = False) -> None:
    """Write a config; an existing file is replaced only with ``force``."""
    if path.exists() and not force:
        raise ValueError(
            f"doctor: {str(path)!r} exists already; overwrite it with force=True (--force)."
        )
    write_file_atomically(path, format_config(data).encode("utf-8"))
