"""The model that the rules diagnose: its config as it was written, how it reads, its checkpoint.

    DiagnosedModel      the whole model
      ConfigPart        a config with its own positions: the whole, or a part such as text_config
        RopeParameters  one dictionary of rope parameters, of all layers or of one layer type

``load_model`` makes one from what the caller has: a path, a dict, the name of a preset.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.configs import ConfigError, LayerGroup, ModelPositions, load, read_config
from whorl.configs.model import Parity
from whorl.configs.names import resolve_config
from whorl.configs.source import Document

from .checkpoint import CheckpointSummary, find_config_beside, read_checkpoint, refuse_pickle
from .parts import ConfigPart, RopeDictionary

__all__ = ["DiagnosedModel", "RotaryGroup", "load_model"]

_MOST_DEPTH = 4


@dataclass(frozen=True)
class RotaryGroup:
    """A layer group that rotates by one position per token, and its part of the config."""

    part: ConfigPart
    group: LayerGroup
    _computed: dict[int | None, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def context(self) -> int | None:
        """The context length of its part."""
        return None if self.part.reading is None else self.part.reading.context

    def get_frequencies(self, length: int | None) -> Tensor:
        """Radians per position of each pair at a context length, without sign, float64 [P].

        Computed once for each length; empty where the rotation cannot be built.
        """
        if length not in self._computed:
            assert self.group.rotation is not None
            try:
                found = self.group.rotation.frequencies(length).inv_freq.detach().abs()
            except (ValueError, OverflowError):
                found = torch.empty(0, dtype=torch.float64)
            self._computed[length] = found
        return self._computed[length]

    def get_longest_distance(self, length: int) -> int:
        """The longest distance between a query and a key that it attends to."""
        return length if self.group.window is None else min(length, self.group.window)


@dataclass(frozen=True)
class DiagnosedModel:
    """One model as the rules see it.

    document: the config as it was written; None for a checkpoint without a config.
    reading: what ``read_config`` makes of it; None where it raises.
    read_error: the message that ``read_config`` raised.
    length: the length that the model is to be used at, where the caller named one.
    checkpoint: what the weights beside the config say about positions.
    """

    document: Document | None
    reading: ModelPositions | None = None
    read_error: str | None = None
    length: int | None = None
    checkpoint: CheckpointSummary = field(default_factory=CheckpointSummary)

    @property
    def data(self) -> Mapping[str, Any]:
        """The keys of the config, empty without a config."""
        return {} if self.document is None else self.document.data

    @cached_property
    def parts(self) -> tuple[ConfigPart, ...]:
        """The whole config and every part of it; none where the keys are not transformers' keys."""
        if self.document is None or self.document.kind not in ("transformers", "mlx"):
            return ()
        return tuple(_find_parts(self.data, (), self.reading))

    @property
    def used_parameters(self) -> Iterator[RopeDictionary]:
        """The rope parameters that the classes of transformers read."""
        for part in self.parts:
            yield from part.used_parameters

    @property
    def written_parameters(self) -> Iterator[RopeDictionary]:
        """All rope parameters, also those that no class reads, for rules about keys alone."""
        for part in self.parts:
            yield from part.written_parameters

    @property
    def readings(self) -> Iterator[tuple[ConfigPart, ModelPositions]]:
        """The parts that were read, and what was read of them."""
        for part in self.parts or (ConfigPart((), {}, self.reading),):
            if part.reading is not None:
                yield part, part.reading

    def find_notes(self, id: str) -> Iterator[tuple[ConfigPart, str]]:
        """The texts of the notes with an id, each with the part that it is about."""
        for part, reading in self.readings:
            yield from ((part, note.text) for note in reading.notes if note.id == id)

    @cached_property
    def compared_readings(
        self,
    ) -> tuple[tuple[ConfigPart, ModelPositions, tuple[LayerGroup, ...]], ...]:
        """The parts, their readings, and their layer groups as transformers reads them.

        Parts that transformers refuses are left out. For most families ``read_config`` has read
        both; the others are read a second time here.
        """
        if self.reading is None or not self.parts:
            return ()
        leaves = [(where, leaf) for where, leaf in _find_leaves(self.reading, ()) if leaf.groups]
        theirs = {where: leaf.transformers_groups for where, leaf in leaves}
        if None in theirs.values():
            assert self.document is not None
            second, _ = _try_reading(self.document, "transformers")
            found = () if second is None else _find_leaves(second, ())
            theirs = {where: leaf.groups for where, leaf in found}
        parts = {part.where: part for part in self.parts}
        return tuple(
            (parts.get(where, ConfigPart(where, {}, leaf)), leaf, groups)
            for where, leaf in leaves
            if (groups := theirs.get(where))
        )

    @cached_property
    def rotary_groups(self) -> tuple[RotaryGroup, ...]:
        """The layer groups whose frequencies are known; equal rotations of a part count once."""
        found: dict[tuple[str, str, int | None], RotaryGroup] = {}
        for part, reading in self.readings:
            for group in reading.groups:
                if group.rotation is not None and group.rotation.encoding in ("rope", "mrope"):
                    key = (part.path(), repr(group.rotation), group.window)
                    found.setdefault(key, RotaryGroup(part, group))
        return tuple(found.values())

    def has_rotary_layers(self, part: ConfigPart) -> bool:
        """Whether a part has rotary layers, as far as its keys show it."""
        if self.reading is None:
            keys = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
            return not part.where or any(part.has(k) for k in keys)
        groups = () if part.reading is None else part.reading.groups
        return any(group.rotation is not None or group.refusal for group in groups)


def load_model(
    x: Any, length: int | None, checkpoint: CheckpointSummary | None = None
) -> DiagnosedModel:
    """Load and read what the caller has; ``checkpoint`` None looks for weights beside it."""
    if checkpoint is not None:
        return _read_model(x, length, checkpoint)
    if isinstance(x, str) and not x:
        raise ConfigError("doctor: the name of the model is empty; pass a path or a preset.")
    if isinstance(x, (str, Path)):
        refuse_pickle(Path(x))
    checkpoint, x = CheckpointSummary(), resolve_config(x, "doctor")
    if isinstance(x, (str, Path)):
        path = Path(x)
        if path.suffix == ".safetensors":
            checkpoint, x = read_checkpoint(path), find_config_beside(path)
        elif os.path.isdir(path):  # unlike Path.is_dir, for names of any length
            checkpoint = read_checkpoint(path)
    if x is None:
        return DiagnosedModel(None, length=length, checkpoint=checkpoint)
    return _read_model(x, length, checkpoint)


def _read_model(x: Any, length: int | None, checkpoint: CheckpointSummary) -> DiagnosedModel:
    document = load(x)
    reading, error = _try_reading(document, None)
    return DiagnosedModel(document, reading, error, length, checkpoint)


def _try_reading(
    document: Document, parity: Parity | None
) -> tuple[ModelPositions | None, str | None]:
    """What the config says, or the error that stopped the reading."""
    try:
        return read_config(document, parity=parity), None
    except ConfigError as error:
        return None, str(error)
    except Exception as error:  # a bug of whorl, which must not hide the other findings
        name = type(error).__name__
        return None, f"whorl failed to read it ({name}: {quote(str(error))}); please report that."


def _find_parts(
    data: Mapping[str, Any], where: tuple[str, ...], reading: ModelPositions | None
) -> Iterator[ConfigPart]:
    parts = {} if reading is None else reading.parts
    yield ConfigPart(where, data, _select_own_reading(reading, data))
    if len(where) < _MOST_DEPTH:
        for name, inner in data.items():
            named = isinstance(name, str) and (name.endswith("_config") or name in parts)
            if named and isinstance(inner, Mapping):
                yield from _find_parts(inner, (*where, name), parts.get(name))


def _find_leaves(
    reading: ModelPositions, where: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ModelPositions]]:
    """The path and the reading of every part that has no parts itself."""
    if not reading.parts:
        yield where, reading
    for name, part in reading.parts.items():
        yield from _find_leaves(part, (*where, name))


def _select_own_reading(
    reading: ModelPositions | None, data: Mapping[str, Any]
) -> ModelPositions | None:
    """The reading of the keys at this level, None if they were read inside a part."""
    if reading is None:
        return None
    for name, part in reading.parts.items():
        if part.groups is reading.groups:  # a model with parts reads as one of them
            return None if isinstance(data.get(name), Mapping) else part
    return reading
