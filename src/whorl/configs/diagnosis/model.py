"""From what the caller has to a patient: load the config, read it, look for stored frequencies."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from whorl._support.words import quote
from whorl.configs import ConfigError, ModelPositions, load, presets, read_config
from whorl.configs.model import Kind, Parity
from whorl.configs.source import Document

from .checkpoint import Weights, config_beside, open_weights, refuse_pickle
from .parts import Block, Tower
from .rotary_groups import Turning, turnings

__all__ = ["Patient", "admit"]

_MOST_DEPTH = 4


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


def admit(
    x: Any, length: int | None, weights: Weights | None = None
) -> tuple[Patient, Path | None]:
    """The patient, and the file that its config came from; ``weights``: where they are known."""
    if weights is not None:
        return _read(x, length, weights)
    if isinstance(x, str) and not x:
        raise ConfigError("doctor: the name of the model is empty; pass a path or a preset.")
    if isinstance(x, (str, Path)):
        refuse_pickle(Path(x))
    weights, x = Weights(), presets.resolve(x, "doctor")
    if isinstance(x, (str, Path)):
        path = Path(x)
        if path.suffix == ".safetensors":
            weights, x = open_weights(path), config_beside(path)
        elif os.path.isdir(path):  # unlike Path.is_dir, for names of any length
            weights = open_weights(path)
    if x is None:
        return Patient(None, {}, length=length, weights=weights), None
    return _read(x, length, weights)


def _read(x: Any, length: int | None, weights: Weights) -> tuple[Patient, Path | None]:
    document = load(x)
    reading, refusal = _reading(document, None)
    faithful, _ = _reading(document, "transformers")
    patient = Patient(
        document.kind,
        document.data,
        reading,
        faithful,
        refusal,
        length,
        weights,
    )
    return patient, document.path


def _reading(document: Document, parity: Parity | None) -> tuple[ModelPositions | None, str | None]:
    """What the config says, or why that cannot be read."""
    try:
        return read_config(document, parity=parity), None
    except ConfigError as error:
        return None, str(error)
    except Exception as error:  # a mistake of whorl, which must not cost the other findings
        name = type(error).__name__
        return None, f"whorl failed to read it ({name}: {quote(str(error))}); please report that."


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
