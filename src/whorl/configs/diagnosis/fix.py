"""Write a corrected config beside the original: only what has one possible meaning is changed.

Edits keep the order of the keys. A file is written whole or not at all.
"""

import copy
import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from whorl._support.files import write_file_atomically

from .engine import Edit, Finding

__all__ = ["apply", "difference", "edits_of", "fixed_path", "write"]


def edits_of(findings: Iterable[Finding]) -> tuple[Edit, ...]:
    """What can be done about the findings; the first edit of a key counts."""
    chosen: dict[tuple[str, ...], Edit] = {}
    for finding in findings:
        for edit in finding.edits:
            chosen.setdefault(edit.path, edit)
    return tuple(chosen.values())


def apply(data: Mapping[str, Any], edits: Iterable[Edit]) -> dict[str, Any]:
    """The config after the edits; the one given stays as it is.

    An edit whose place an earlier one took away, or whose new name is taken, is left out.
    """
    fixed = copy.deepcopy(dict(data))
    for edit in edits:
        *outer, name = edit.path
        place: Any = fixed
        for key in outer:
            place = place.get(key) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            continue
        if edit.do == "set":
            place[name] = copy.deepcopy(edit.value)
        elif edit.do == "remove":
            place.pop(name, None)
        elif place.get(edit.value) is None and name in place:
            place.pop(edit.value, None)  # a null, in place of which the renamed key comes
            renamed = {edit.value if key == name else key: v for key, v in place.items()}
            place.clear()
            place.update(renamed)
    return fixed


def dumps(data: Mapping[str, Any]) -> str:
    """JSON as transformers writes it."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def difference(before: Mapping[str, Any], after: Mapping[str, Any], names: tuple[str, str]) -> str:
    """A unified diff of the two as JSON."""
    old, new = (dumps(one).splitlines(keepends=True) for one in (before, after))
    return "".join(difflib.unified_diff(old, new, *names))


def fixed_path(config: Path) -> Path:
    """Where the corrected config goes: config.fixed.json beside config.json."""
    return config.with_name(f"{config.stem}.fixed{config.suffix}")


def write(path: Path, data: Mapping[str, Any], *, force: bool = False) -> None:
    """Write a config beside its place and rename it there."""
    if path.exists() and not force:
        raise ValueError(f"doctor: {str(path)!r} is there already; --force overwrites it.")
    write_file_atomically(path, dumps(data).encode("utf-8"))
