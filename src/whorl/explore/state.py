"""The config of a request, and the arguments of the command line.

A request names its config as one of {"preset": name}, {"text": a pasted config} and
{"given": true}, the config of the command line. No request can name a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from whorl.configs import ConfigError, LayerGroup, ModelPositions, presets, read_config
from whorl.configs.source import load, parse

from ._checks import RequestError, format_error

__all__ = ["CHANNEL_LIMIT", "ExploredConfig", "ExplorerState", "load_given_config"]

#: Largest head width: a chart of more pairs would be unreadable, and no model has more.
CHANNEL_LIMIT = 4096


@dataclass(frozen=True, eq=False)  # hashed by identity
class ExploredConfig:
    """A config: its name, the argument of ``inspect``, its keys, and the model read from it.

    problem: why it cannot be read; then there is no model.
    """

    name: str
    source: Any
    data: Mapping[str, Any]
    model: ModelPositions | None = None
    problem: str | None = None

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        return () if self.model is None else self.model.groups

    @property
    def keys(self) -> Mapping[str, Any]:
        """The keys of the part that the model was read from."""
        part = None if self.model is None else self.model.part
        return self.data if part is None else part.keys

    def select_group(self, index: int | None) -> tuple[int, LayerGroup]:
        """The layer group with this index, by default the first that rotates without a window."""
        if self.model is None:
            raise ConfigError(self.problem or "explore: this config cannot be read.")
        rotating = [n for n, group in enumerate(self.groups) if group.rotation is not None]
        if not rotating:
            who = (self.model.model_type or "this model")[:80]
            why = next((group.refusal for group in self.groups if group.refusal), None)
            raise ConfigError(
                f"{who} rotates its queries and keys in its own way. {why}"
                if why
                else f"{who} {self.model.unrotated}, so there is nothing to draw."
            )
        if index is None:
            wide = [n for n in rotating if self.groups[n].window is None]
            index = (wide or rotating)[0]
        if index not in rotating:
            raise ConfigError(
                f"explore: group must be one of {', '.join(map(str, rotating))}, the layers that"
                f" rotate; got {index}."
            )
        return index, self.groups[index]


@dataclass(frozen=True)
class ExplorerState:
    """The arguments of the command line: a config, a preset to start with, lab results."""

    given: ExploredConfig | None = None
    preset: str | None = None
    comparison: Mapping[str, Any] | None = None

    def find_config(self, source: Any) -> ExploredConfig:
        """The config that a request names."""
        if not isinstance(source, dict) or len(source) != 1:
            raise RequestError("explore: source must be one of preset, text and given.")
        ((kind, value),) = source.items()
        if kind == "preset" and isinstance(value, str):
            return _load_preset(value[:200])
        if kind == "text" and isinstance(value, str):
            return _parse_text(value)
        if kind == "given" and value is True:
            if self.given is None:
                raise RequestError("explore: no config was given on the command line.")
            return self.given
        raise RequestError("explore: source must be one of preset, text and given.")


def load_given_config(name: str) -> ExploredConfig:
    """The config of the command line, a path or a name; raises if it cannot be parsed."""
    document = load(name)
    shown = Path(name).name if Path(name).exists() else name
    return _read_config(shown or name, document.path or name, document.data)


@lru_cache(maxsize=32)
def _load_preset(name: str) -> ExploredConfig:
    data = presets.load(name)
    return _read_config(name, data, data)


@lru_cache(maxsize=8)
def _parse_text(text: str) -> ExploredConfig:
    if not text.strip():
        raise ConfigError("explore: there is no config yet; paste one, or pick a preset.")
    data = parse(text, "the text")
    if not data:
        raise ConfigError("explore: the config is empty; it needs at least a model_type.")
    return _read_config("pasted config", data, data)


def _read_config(name: str, source: Any, data: Mapping[str, Any]) -> ExploredConfig:
    try:
        model = read_config(source)
    except ConfigError as error:
        return ExploredConfig(name, source, data, problem=format_error(error))
    for group in model.groups:
        options = {} if group.rotation is None else group.rotation.options
        width = options.get("head_dim", 0)
        if isinstance(width, int) and width > CHANNEL_LIMIT:
            words = f"Heads may have up to {CHANNEL_LIMIT:,} channels; this has {width:,}."
            return ExploredConfig(name, {}, data, problem=words)
    return ExploredConfig(name, source, data, model)
