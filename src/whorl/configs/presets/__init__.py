"""Configs of well-known models, to try things on: the keys about positions, without weights.

The values are those that the makers of the models published. These keys of each file say so:

    _source    the published config
    _copy      the file or thread of a public repository in which it was read
    _entry     its name there, where several are
    _inferred  how the copy was recognised, where it does not name the model in full
    _recorded  the day on which it was read

A preset is read like any other config: ``whorl.read_config("llama-3.1-8b")``.
"""

import json
import re
from importlib.resources import files
from typing import Any

from whorl._support.words import quote, suggest_name
from whorl.configs.model import ConfigError

__all__ = ["NOTES", "describe", "find", "find_repository", "get_repository", "load", "names"]

#: Keys that are not those of the model.
NOTES = ("_source", "_copy", "_recorded")

_HUB = re.compile(r"https://huggingface\.co/([^/]+/[^/]+)/blob/")


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
            f"there is no preset {quote(name)}{suggest_name(name, known)} whorl inspect --list"
            f" shows all {len(known)}."
        )
    data: dict[str, Any] = json.loads((files(__package__) / f"{name}.json").read_text("utf-8"))
    return data


def find(name: str) -> str | None:
    """The preset that a name stands for, in capitals or not; None if there is none.

    >>> find("Llama-3.1-8B")
    'llama-3.1-8b'
    """
    return name.lower() if name.lower() in names() else None


def get_repository(preset: dict[str, Any]) -> str:
    """The repository of Hugging Face that a preset comes from.

    >>> get_repository(load("llama-3.1-8b"))
    'meta-llama/Llama-3.1-8B'
    """
    match = _HUB.match(preset["_source"])
    assert match is not None  # which a test checks for all of them
    return match[1]


def describe() -> list[dict[str, Any]]:
    """Name, repository, model type, claimed context and origin of every preset."""
    return [_describe(name, load(name)) for name in names()]


def _describe(name: str, data: dict[str, Any]) -> dict[str, Any]:
    text = data.get("text_config", data)
    return {
        "name": name,
        "repository": get_repository(data),
        "model_type": data["model_type"],
        "context": text["max_position_embeddings"],
        "source": data["_source"],
        "copy": data.get("_copy"),
        "entry": data.get("_entry"),
        "inferred": data.get("_inferred"),
        "recorded": data["_recorded"],
    }


def find_repository(repository: str) -> str | None:
    """The preset with the keys of a repository as it was published, if there is one."""
    for name in names():
        data = load(name)
        if "," not in data["_source"] and get_repository(data).lower() == repository.lower():
            return name
    return None
