"""What a request is about, and what was given on the command line.

A source is one of {"preset": name}, {"text": a pasted config} and {"given": true}, the config of
the command line. No request can name a file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from whorl.configs import ConfigError, LayerGroup, ModelPositions, presets, read_config
from whorl.configs.source import load, parse

from ._checks import RequestError, plainly

__all__ = ["MOST_CHANNELS", "State", "Subject", "given_subject"]

#: A chart of more pairs shows nothing, and a claim of more is no model.
MOST_CHANNELS = 4096


@dataclass(frozen=True, eq=False)  # hashed as the object that it is
class Subject:
    """A config: its name, what ``inspect`` and ``diagnose`` take, its keys and the reading.

    problem: why it cannot be read; then there is no model.
    """

    name: str
    x: Any
    data: Mapping[str, Any]
    model: ModelPositions | None = None
    problem: str | None = None

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        return () if self.model is None else self.model.groups

    def group(self, index: int | None) -> tuple[int, LayerGroup]:
        """The layers asked for; without asking, the first that turn and see the whole text."""
        if self.model is None:
            raise ConfigError(self.problem or "explore: this config cannot be read.")
        turning = [n for n, group in enumerate(self.groups) if group.rotation is not None]
        if not turning:
            who = (self.model.model_type or "this model")[:80]
            why = next((group.refusal for group in self.groups if group.refusal), None)
            raise ConfigError(
                f"{who} turns its queries and keys in a way of its own. {why}"
                if why
                else f"{who} {self.model.unrotated}, so there is nothing to draw."
            )
        if index is None:
            wide = [n for n in turning if self.groups[n].window is None]
            index = (wide or turning)[0]
        if index not in turning:
            raise ConfigError(
                f"explore: group must be one of {', '.join(map(str, turning))}, the layers that"
                f" rotate; got {index}."
            )
        return index, self.groups[index]


@dataclass(frozen=True)
class State:
    """What the command line gave: a config, the name of a preset to start with, lab results."""

    given: Subject | None = None
    preset: str | None = None
    comparison: Mapping[str, Any] | None = None

    def subject(self, source: Any) -> Subject:
        """What a request's source stands for."""
        if not isinstance(source, dict) or len(source) != 1:
            raise RequestError("explore: source must be one of preset, text and given.")
        ((kind, value),) = source.items()
        if kind == "preset" and isinstance(value, str):
            return _preset(value[:200])
        if kind == "text" and isinstance(value, str):
            return _text(value)
        if kind == "given" and value is True:
            if self.given is None:
                raise RequestError("explore: no config was given on the command line.")
            return self.given
        raise RequestError("explore: source must be one of preset, text and given.")


def given_subject(path: Path) -> Subject:
    """The config of the command line; one that no JSON is in raises."""
    document = load(path)
    return _subject(path.name or str(path), path, document.data)


@lru_cache(maxsize=32)
def _preset(name: str) -> Subject:
    data = presets.load(name)
    return _subject(name, data, data)


@lru_cache(maxsize=8)
def _text(text: str) -> Subject:
    if not text.strip():
        raise ConfigError("explore: there is no config yet; paste one, or pick a preset.")
    data = parse(text, "the text")
    if not data:
        raise ConfigError("explore: the config is empty; it needs at least a model_type.")
    return _subject("pasted config", data, data)


def _subject(name: str, x: Any, data: Mapping[str, Any]) -> Subject:
    try:
        model = read_config(x)
    except ConfigError as error:
        return Subject(name, x, data, problem=plainly(error))
    for group in model.groups:
        options = {} if group.rotation is None else group.rotation.options
        width = options.get("head_dim", 0)
        if isinstance(width, int) and width > MOST_CHANNELS:
            words = f"Heads may have up to {MOST_CHANNELS:,} channels; this has {width:,}."
            return Subject(name, {}, data, problem=words)
    return Subject(name, x, data, model)
