"""What the rules look at: a config as it was written, how it reads, and the tensors beside it.

    Patient     the whole: raw keys, the reading or why there is none, stored tensors, a length
      Tower     a config with its own positions: the top, or a part such as text_config
        Block   one dictionary of rope parameters, of all layers or of one layer type

Rules must not need a config that can be read, so everything here takes any value for any key.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from whorl._support import words
from whorl.configs.huggingface import defaults
from whorl.configs.huggingface.families import FAMILIES
from whorl.configs.huggingface.schema import read_base_only, use_base_10000
from whorl.configs.model import Kind, LayerGroup, ModelPositions

from .checkpoint import Weights
from .turning import Turning, turnings

__all__ = ["Block", "Patient", "Tower", "number", "shown", "whole"]

_MOST_DEPTH = 4
#: What families call the tokens that they claim.
_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
    "seq_length",
)
_ORIGINAL = "original_max_position_embeddings"
#: The names of the rope parameters in transformers 4 and 5; the first that is not empty counts.
_DICTIONARIES = ("rope_scaling", "rope_parameters")
#: Rope parameters, which are no layer types even if an object stands there by mistake.
_NO_LABELS = (
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", _ORIGINAL),
    *("attention_factor", "short_factor", "long_factor", "mrope_section", "beta_fast", "beta_slow"),
)


def number(value: Any) -> float | None:
    """A finite number as a float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """A positive whole number that floats are exact for, None for anything else."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() and 0 < found < 2**53 else None


def shown(value: Any) -> str:
    """A value for a message: short, and numbers without needless digits."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return words.quote(value)


@dataclass(frozen=True)
class Block:
    """One dictionary of rope parameters, where it stands, and the layer type it is for."""

    tower: "Tower"
    where: tuple[str, ...]
    keys: Mapping[str, Any]
    label: str | None = None

    def path(self, *names: str) -> str:
        """A key of it as people write paths: rope_scaling.factor."""
        return ".".join((*self.where, *names))

    def has(self, name: str) -> bool:
        return self.keys.get(name) is not None

    def number(self, name: str) -> float | None:
        return number(self.keys.get(name))

    @property
    def kind(self) -> str:
        """The rope_type as transformers 5 takes it: rope_type, else type, else "default"."""
        given = self.keys.get("rope_type", self.keys.get("type", "default"))
        if not isinstance(given, str):
            return "default" if given is None else ""
        if given == "su" or (given == "yarn" and self.tower.family in ("phi3", "phi4_multimodal")):
            return "longrope"
        return "default" if given == "mrope" else given

    @property
    def share(self) -> float:
        """The part of the head that rotates, as the keys say it."""
        found = self.number("partial_rotary_factor")
        if found is None:
            found = self.tower.number("partial_rotary_factor")
        return 1.0 if found is None else found

    @property
    def original(self) -> int | None:
        """Tokens of training before the extension, as far as the config says them."""
        return whole(self.keys.get(_ORIGINAL)) or whole(self.tower.config.get(_ORIGINAL))

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """The groups of layers that were read from it."""
        reading = self.tower.reading
        if reading is None:
            return ()
        return tuple(g for g in reading.groups if self.label is None or g.name == self.label)


@dataclass(frozen=True)
class Tower:
    """A config with its own positions: the top, or a part of it."""

    where: tuple[str, ...]
    config: Mapping[str, Any]
    reading: ModelPositions | None

    def path(self, *names: str) -> str:
        return ".".join((*self.where, *names))

    @property
    def family(self) -> str | None:
        found = self.config.get("model_type")
        if not isinstance(found, str) and self.reading is not None:
            return self.reading.model_type
        return found if isinstance(found, str) else None

    @property
    def known_family(self) -> bool:
        """Whether transformers has this family, so that what its class reads is known."""
        return bool(self.class_entry)

    @property
    def coded(self) -> bool:
        """Whether the frequencies of the family stand in its code, and no rope parameters count."""
        family = FAMILIES.get(defaults.get_known_name(self.family) or "")
        return family is not None and family.schema in (use_base_10000, read_base_only)

    def number(self, name: str) -> float | None:
        return number(self.config.get(name))

    @property
    def class_entry(self) -> Mapping[str, Any]:
        """What is kept of the family's class in transformers, see whorl.configs.huggingface."""
        return defaults.get_entry(defaults.get_known_name(self.family)) or {}

    def class_default(self, name: str) -> Any:
        """The rope parameter that a config of this family has if it says nothing."""
        given = self.class_entry.get("keys", {}).get("default_rope_parameters")
        return given.get(name) if isinstance(given, Mapping) else None

    @property
    def context(self) -> int | None:
        """max_position_embeddings, or what the family calls it."""
        if self.reading is not None and self.reading.context is not None:
            return self.reading.context
        return next((n for k in _CONTEXT_KEYS if (n := whole(self.config.get(k)))), None)

    @property
    def head_dim(self) -> int | None:
        """Channels of a head as the keys say them."""
        for name in ("qk_rope_head_dim", "head_dim"):
            if (found := whole(self.config.get(name))) is not None:
                return found
        hidden, heads = (whole(self.config.get(k)) for k in ("hidden_size", "num_attention_heads"))
        return hidden // heads if hidden and heads else None

    @cached_property
    def source(self) -> str | None:
        """The key whose dictionary counts: a rope_scaling that is not empty replaces the other."""
        for name in _DICTIONARIES:
            if isinstance(self.config.get(name), Mapping) and self.config[name]:
                return name
        return None

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """One for all layers, or one for each layer type; none where the class reads none."""
        return () if self.source is None else self._blocks_of(self.source)

    @cached_property
    def every_block(self) -> tuple[Block, ...]:
        """Those of both dictionaries where both are there; the one that counts comes first."""
        return tuple(b for name in _DICTIONARIES for b in self._blocks_of(name))

    def _blocks_of(self, name: str) -> tuple[Block, ...]:
        given, where = self.config.get(name), (*self.where, name)
        if not isinstance(given, Mapping) or self.coded or all(v is None for v in given.values()):
            return ()  # also {"full_attention": null}, which says that no layer rotates
        nested = {k: v for k, v in given.items() if isinstance(v, Mapping) and k not in _NO_LABELS}
        if not nested:
            return (Block(self, where, given),)
        return tuple(Block(self, (*where, str(k)), v, str(k)) for k, v in nested.items())

    @property
    def nested(self) -> bool:
        return any(block.label is not None for block in self.blocks)


@dataclass(frozen=True)
class Patient:
    """One model as the rules see it.

    data: the keys as they were written; empty for a checkpoint without a config.
    reading, faithful: what read_config makes of them, as it should be and as transformers does;
        faithful is None where transformers refuses.
    refusal: why read_config makes nothing of them.
    length: the length that the model is to be used at, where the caller said one.
    """

    kind: Kind | None
    data: Mapping[str, Any]
    reading: ModelPositions | None = None
    faithful: ModelPositions | None = None
    refusal: str | None = None
    length: int | None = None
    weights: Weights = field(default_factory=Weights)

    @cached_property
    def towers(self) -> tuple[Tower, ...]:
        """The top and every part, for configs whose keys are those of transformers."""
        if self.kind not in ("transformers", "mlx"):
            return ()
        return tuple(_towers(self.data, (), self.reading))

    @property
    def blocks(self) -> Iterator[Block]:
        for tower in self.towers:
            yield from tower.blocks

    @property
    def every_block(self) -> Iterator[Block]:
        """Also those that the model's class does not read, for rules about keys alone."""
        for tower in self.towers:
            yield from tower.every_block

    @cached_property
    def readings(self) -> tuple[tuple[str, ModelPositions], ...]:
        """What was read of each config, with its path."""
        if self.towers:
            return tuple((t.path(), t.reading) for t in self.towers if t.reading is not None)
        return () if self.reading is None else (("", self.reading),)

    @cached_property
    def compared(self) -> tuple[tuple[tuple[str, ...], ModelPositions, ModelPositions], ...]:
        """The path of each config, its reading as it should be, and as transformers does it."""
        if self.reading is None or self.faithful is None:
            return ()
        return tuple(_pairwise(self.reading, self.faithful, ()))

    def rotates(self, tower: Tower) -> bool:
        """Whether a tower has rotary layers, as far as one can tell."""
        if self.reading is None:
            keys = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
            return not tower.where or any(tower.config.get(k) is not None for k in keys)
        groups = () if tower.reading is None else tower.reading.groups
        return any(group.rotation is not None or group.refusal for group in groups)

    @cached_property
    def turning(self) -> tuple[Turning, ...]:
        """The groups of layers whose frequencies are known."""
        return turnings(self.readings)


def _towers(
    data: Mapping[str, Any], where: tuple[str, ...], reading: ModelPositions | None
) -> Iterator[Tower]:
    parts = {} if reading is None else reading.parts
    yield Tower(where, data, _own(reading, data))
    if len(where) < _MOST_DEPTH:
        for name, inner in data.items():
            named = isinstance(name, str) and (name.endswith("_config") or name in parts)
            if named and isinstance(inner, Mapping):
                yield from _towers(inner, (*where, name), parts.get(name))


def _pairwise(
    a: ModelPositions, b: ModelPositions, where: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ModelPositions, ModelPositions]]:
    if not a.parts:
        yield where, a, b
    for name in a.parts:
        if name in b.parts:
            yield from _pairwise(a.parts[name], b.parts[name], (*where, name))


def _own(reading: ModelPositions | None, data: Mapping[str, Any]) -> ModelPositions | None:
    """The reading of the keys that stand here themselves, not in a part."""
    if reading is None:
        return None
    for name, part in reading.parts.items():
        if part.groups is reading.groups:  # a model with parts reads as one of them
            return None if isinstance(data.get(name), Mapping) else part
    return reading
