"""Configs of well-known models, to try things on: the keys about positions, without weights.

The values are those that the makers of the models published; the key "_source" says where. A
preset is read like any other config: ``whorl.read_config(presets.load("llama-3.1-8b"))``.
"""

import json
import os
from importlib.resources import files
from typing import Any

from whorl._support.words import quote, suggest_name
from whorl.configs.model import ConfigError

__all__ = ["load", "names", "resolve"]


def names() -> list[str]:
    """Names of all presets, sorted.

    >>> "llama-3.1-8b" in names()
    True
    """
    found = (entry.name for entry in files(__package__).iterdir())
    return sorted(name.removesuffix(".json") for name in found if name.endswith(".json"))


def load(name: str) -> dict[str, Any]:
    """The preset of that name; every call returns a new dictionary."""
    known = names()
    if name not in known:
        raise ConfigError(
            f"there is no preset {quote(name)}{suggest_name(name, known)} Presets:"
            f" {', '.join(known)}."
        )
    data: dict[str, Any] = json.loads((files(__package__) / f"{name}.json").read_text("utf-8"))
    return data


def resolve(x: Any, who: str | None = None) -> Any:
    """The preset that ``x`` names, else ``x`` itself; a file of that name comes first.

    who: begins the error about a name that neither a file nor a preset has.
    """
    if not isinstance(x, (str, os.PathLike)) or str(x).lstrip().startswith("{"):
        return x  # JSON text gets its own error message where it is read
    try:
        os.stat(x)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        if isinstance(error, PermissionError):
            return x
    else:
        return x
    name, known = str(x)[:200], names()
    if str(x) in known:
        return load(name)
    start = "" if who is None else f"{who}: "
    raise ConfigError(
        f"{start}there is no file {quote(name)}, and no preset of that name"
        f"{suggest_name(name, known)} Presets: {', '.join(known)}. Nothing is downloaded."
    )
