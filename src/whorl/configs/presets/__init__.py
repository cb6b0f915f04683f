"""Configs of well-known models, to try things on: the keys that say where tokens stand, no weights.

Values as the makers of the models published them; the key "_source" of each says where. They are
read like any other config: ``whorl.read_config(presets.load("llama-3.1-8b"))``.
"""

import json
from importlib.resources import files
from typing import Any

from whorl._words import did_you_mean
from whorl.configs.model import ConfigError

__all__ = ["load", "names"]


def names() -> list[str]:
    """Every preset, sorted.

    >>> "llama-3.1-8b" in names()
    True
    """
    found = (entry.name for entry in files(__package__).iterdir())
    return sorted(name.removesuffix(".json") for name in found if name.endswith(".json"))


def load(name: str) -> dict[str, Any]:
    """The config of that name, a new dictionary at each call."""
    known = names()
    if name not in known:
        raise ConfigError(
            f"presets: there is none called {name!r}{did_you_mean(name, known)} There are:"
            f" {', '.join(known)}."
        )
    data: dict[str, Any] = json.loads((files(__package__) / f"{name}.json").read_text("utf-8"))
    return data
