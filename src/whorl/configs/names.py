"""Models by the names that people type; every command and function finds them in the same order.

    a path        a file or folder on this machine
    a preset      "qwen3-8b", in any case: keys about positions that come with whorl
    a repository  "Qwen/Qwen3-8B", from the local cache of Hugging Face

Nothing is downloaded.
"""

import os
from pathlib import Path
from typing import Any

from whorl._support.words import quote, suggest_name

from . import hub_cache, presets
from .model import ConfigError

__all__ = ["get_model_name", "resolve_config", "resolve_model"]


def resolve_config(x: Any, who: str | None = None) -> Any:
    """What ``load`` reads for a name: a preset's dict or a folder of the cache, else ``x`` itself.

    who: begins the error about a name that nothing has.
    """
    name = _find_name(x)
    if name is None:
        return x
    preset = presets.find(name)
    if preset is not None:
        return presets.load(preset)
    found = hub_cache.find_snapshot(name)
    if found is not None:
        return found
    raise ConfigError(_explain_missing(name, who))


def resolve_model(x: str | os.PathLike[str], who: str | None = None) -> Path:
    """The path of a model with weights: ``x`` itself, or the folder of a repository in the cache.

    who: begins the error about a preset, which has no weights, or a name that nothing has.
    """
    name = _find_name(x)
    if name is None:
        return Path(x)
    found = hub_cache.find_snapshot(name)
    if found is not None:
        return found
    if presets.find(name) is not None:
        start = "" if who is None else f"{who}: "
        raise ConfigError(
            f"{start}{quote(name)} is a preset, which has no weights; pass the folder of a model."
        )
    raise ConfigError(_explain_missing(name, who))


def get_model_name(x: str | os.PathLike[str]) -> str:
    """What to call a model in file names: the last part of its path or of its repository.

    >>> get_model_name("Qwen/Qwen2.5-7B"), get_model_name("models/small.gguf")
    ('Qwen2.5-7B', 'small')
    """
    path = Path(x).resolve()
    name = hub_cache.get_repository(path) or path.name
    return name.rpartition("/")[2].removesuffix(".gguf")


def _find_name(x: Any) -> str | None:
    """``x`` as a name, if it is a text or a path that no file has."""
    if not isinstance(x, (str, os.PathLike)):
        return None
    name = os.fspath(x)
    if not isinstance(name, str) or not name or name.lstrip().startswith("{"):
        return None  # JSON text gets its own error message where it is read
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return name
    except (OSError, ValueError):  # it exists, or no file can have this name: see where it is read
        return None
    return None


def _explain_missing(name: str, who: str | None) -> str:
    start = "" if who is None else f"{who}: "
    repository = hub_cache.read_address(name)
    if repository is not None:
        return (
            f"{start}{quote(name)} is the address of a page, and nothing is downloaded. The name"
            f" {quote(repository)} is looked up in the local cache of Hugging Face."
        )
    same = presets.find_repository(name)
    near = "." if same is not None else suggest_name(name, presets.names())
    said = f"{start}there is no file {quote(name)}, and no preset of that name{near}"
    if not hub_cache.is_repository_name(name):
        return f"{said} Nothing is downloaded."
    hint = "" if same is None else f" The preset {quote(same)} has its keys about positions."
    return f"{said} {hub_cache.describe_search(name)}{hint} Nothing is downloaded."
