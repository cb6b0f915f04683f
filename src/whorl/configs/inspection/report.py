"""The answer of ``inspect``: what a model's positions really are, as data.

Inspection          one model
  GroupReport       layers that treat positions alike
    Turns           pairs that come round within the trained and the claimed context
    AtLength        what a given length brings
    Extension       what a scaling would do
    Comparison      how a framework reads the same config
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whorl.configs import LayerGroup, ModelPositions
from whorl.configs.huggingface.write import Dialect, explain_loss
from whorl.configs.model import convert_to_json
from whorl.scaling import Description

from .extension import ModelExtension
from .frameworks import FrameworkComparison
from .lengths import LengthReport
from .pairs import CompletePairs

__all__ = ["GroupReport", "Inspection"]


@dataclass(frozen=True)
class GroupReport:
    """One group of layers; the fields of the rotation are None for layers without one.

    training_length: tokens of training texts before any scaling, None where the config leaves it
    open; ``ModelPositions.trained_context`` is the config's own number and may be stretched.
    description: at the length asked for, else at the claimed context; furthest: at the longer of
    the two, which the reach is taken from. They differ for scalings that follow the length.
    head_dim: channels that the rotation is given; head_channels: those of the whole head, more in
    latent attention, where the rotated part is separate.
    bound: the window, where it is shorter than the texts that the config claims.
    frameworks: how others read the config; with an extension, the config that asks for it.
    """

    group: LayerGroup
    encoding: str | None = None
    layout: str | None = None
    base: float | None = None
    head_dim: int | None = None
    head_channels: int | None = None
    rotated: int | None = None
    pairs: int | None = None
    unused: int | None = None
    fastest: float | None = None
    slowest: float | None = None
    attention_scale: float | None = None
    training_length: int | None = None
    trained: CompletePairs | None = None
    claimed: CompletePairs | None = None
    description: Description | None = None
    furthest: Description | None = None
    bound: int | None = None
    at_length: LengthReport | None = None
    extension: ModelExtension | None = None
    frameworks: tuple[FrameworkComparison, ...] = ()
    frameworks_as_published: tuple[FrameworkComparison, ...] = ()
    wavelengths: tuple[float | None, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        skip = {"group", "description", "furthest", "extension", "wavelengths"}
        skip |= {"frameworks", "frameworks_as_published"}
        own = {
            field.name: convert_to_json(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name not in skip
        }
        found, extension = self.description, self.extension
        return {
            **self.group.to_dict(),
            **own,
            "reach": None if self.furthest is None else self.furthest.reach,
            "description": None if found is None else found.to_dict(),
            "extension": None if extension is None else extension.to_dict(),
            "frameworks": [each.to_dict() for each in self.frameworks],
            "frameworks_as_published": [each.to_dict() for each in self.frameworks_as_published],
            "wavelengths": list(self.wavelengths),
        }


@dataclass(frozen=True)
class Inspection:
    """What ``inspect`` found; ``str`` makes a page of it, ``to_dict`` is for JSON.

    patch: what to put into config.json for the extension, in the schema of transformers 5;
    old_patch: in that of version 4. None without an extension, or where they have no words for it.
    dialect: of the two, the one that the config is written in; None for files of other software.
    """

    source: str
    model: ModelPositions
    groups: tuple[GroupReport, ...]
    length: int | None = None
    patch: Mapping[str, Any] | None = None
    old_patch: Mapping[str, Any] | None = None
    dialect: Dialect | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is lost where the lines for config.json are not in the dialect of the config."""
        if self.dialect != "transformers 4" or self.patch is None or self.old_patch is not None:
            return ()
        extended = [each.extension for each in self.groups if each.extension is not None]
        model_type = (self.model.part or self.model).model_type
        return (explain_loss([each.parameters or {} for each in extended], model_type),)

    @property
    def verdict(self) -> str:
        """One paragraph in plain words."""
        from .verdict import write_verdict

        return write_verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as numbers, strings, lists and dicts."""
        model = self.model
        document = {
            "source": self.source,
            "verdict": self.verdict,
            "kind": model.kind,
            "model_type": model.model_type,
            "parity": model.parity,
            "context": model.context,
            "num_layers": model.num_layers,
            "length": self.length,
            "groups": [group.to_dict() for group in self.groups],
            "notes": [vars(note).copy() for note in model.notes],
            "parts": sorted(model.parts),
            "patch": self.patch,
            "old_patch": self.old_patch,
            "dialect": self.dialect,
            "warnings": list(self.warnings),
        }
        found: dict[str, Any] = convert_to_json(document)
        return found

    def __str__(self) -> str:
        from .words import render_page

        return render_page(self)
