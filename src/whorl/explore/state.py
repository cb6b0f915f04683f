"""The config of a request, and the arguments of the command line.

A request names its config as one of {"preset": name}, {"text": a pasted config}, {"given": true}
and {"other": true}, the configs of the command line. No request can name a file.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from whorl.configs import ConfigError, LayerGroup, ModelPositions, presets, read_config
from whorl.configs.names import resolve_config
from whorl.configs.source import load, parse

from ._checks import RequestError, format_error

__all__ = [
    "CHANNEL_LIMIT",
    "ExploredConfig",
    "ExplorerState",
    "load_given_config",
    "load_models",
    "load_state",
]

#: Largest head width: a chart of more pairs would be unreadable, and no model has more.
CHANNEL_LIMIT = 4096
_SOURCES = "explore: source must be one of preset, text, given and other."


@dataclass(frozen=True, eq=False)  # hashed by identity
class ExploredConfig:
    """A config: its name, the argument of ``inspect``, its keys, and the model read from it.

    preset: its name as a preset, if it is one. problem: why it cannot be read; then there is no
    model.
    """

    name: str
    source: Any
    data: Mapping[str, Any]
    model: ModelPositions | None = None
    problem: str | None = None
    preset: str | None = None

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
    """The arguments of the command line: a config or a preset, another one, and lab results.

    A preset is named where it is one, and else the config is given.
    """

    given: ExploredConfig | None = None
    preset: str | None = None
    other: ExploredConfig | None = None
    other_preset: str | None = None
    comparison: Mapping[str, Any] | None = None

    def find_config(self, source: Any) -> ExploredConfig:
        """The config that a request names."""
        if not isinstance(source, dict) or len(source) != 1:
            raise RequestError(_SOURCES)
        ((kind, value),) = source.items()
        if kind == "preset" and isinstance(value, str):
            return _load_preset(value[:200])
        if kind == "text" and isinstance(value, str):
            return _parse_text(value)
        if kind in ("given", "other") and value is True:
            found = self.given if kind == "given" else self.other
            if found is None:
                which = "no" if kind == "given" else "no other"
                raise RequestError(f"explore: {which} config was given on the command line.")
            return found
        raise RequestError(_SOURCES)


def load_state(
    config: str | None, other: str | None = None, comparison: Mapping[str, Any] | None = None
) -> ExplorerState:
    """What the server needs of the command line: no models, or one or two by path or name."""
    models = load_models([name for name in (config, other) if name is not None])
    kinds = ("given", "other"), ("preset", "other_preset")
    found: dict[str, Any] = {}
    for model, given, preset in zip(models, *kinds, strict=False):
        found |= {given: model} if model.preset is None else {preset: model.preset}
    return ExplorerState(comparison=comparison, **found)


def load_models(names: Sequence[str]) -> list[ExploredConfig]:
    """Models by path or name; raises if one cannot be parsed.

    Those with the same name, such as config.json, are named as they were typed.
    """
    found = [
        _load_preset(presets.find(name) or name)
        if isinstance(resolve_config(name, "explore"), dict)
        else load_given_config(name)
        for name in names
    ]
    if len({model.name for model in found}) < len(found):
        return [
            dataclasses.replace(model, name=name) for model, name in zip(found, names, strict=True)
        ]
    return found


def load_given_config(name: str) -> ExploredConfig:
    """The config of the command line, a path or a name; raises if it cannot be parsed."""
    document = load(name)
    shown = Path(name).name if Path(name).exists() else name
    return _read_config(shown or name, document.path or name, document.data)


@lru_cache(maxsize=32)
def _load_preset(name: str) -> ExploredConfig:
    data = presets.load(name)
    return dataclasses.replace(_read_config(name, data, data), preset=name)


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
