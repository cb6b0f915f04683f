"""The result of ``inspect`` as data.

Inspection              one model
  GroupReport           layers that treat positions alike
    CompletePairs       pairs that complete a rotation within the trained or claimed context
    LengthReport        effects of a requested length
    ModelExtension      effects of a scaling
    FrameworkComparison how a framework reads the same config
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

    training_length: trained length before any scaling, None if the config does not say;
        ``ModelPositions.trained_context`` is the number in the config and may be extended.
    description: at the requested length, else at the claimed context; furthest: at the longer of
        the two, which gives the effective context. They differ for scalings that depend on length.
    head_dim: channels passed to the rotation; head_channels: those of the whole head, more in
        latent attention, where the rotated part is separate.
    bound: the window, if it is shorter than the claimed context.
    frameworks: how others read the config; with an extension, the extended config.
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
            "reach": None if self.furthest is None else self.furthest.effective_context,
            "description": None if found is None else found.to_dict(),
            "extension": None if extension is None else extension.to_dict(),
            "frameworks": [each.to_dict() for each in self.frameworks],
            "frameworks_as_published": [each.to_dict() for each in self.frameworks_as_published],
            "wavelengths": list(self.wavelengths),
        }


@dataclass(frozen=True)
class Inspection:
    """The result of ``inspect``; ``str`` gives a page of text, ``to_dict`` the data for JSON.

    patch: lines for config.json for the extension, in the schema of transformers 5; old_patch: in
        that of version 4. None without an extension, or if the schema cannot express it.
    dialect: the one of the two in which the config is written; None for other software.
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
        """What transformers 4 ignores if the lines cannot be written in its dialect."""
        if self.dialect != "transformers 4" or self.patch is None or self.old_patch is not None:
            return ()
        extended = [each.extension for each in self.groups if each.extension is not None]
        model_type = (self.model.part or self.model).model_type
        return (explain_loss([each.parameters or {} for each in extended], model_type),)

    @property
    def verdict(self) -> str:
        """A summary in one paragraph."""
        from .verdict import write_verdict

        return write_verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, strings, lists and dicts, for JSON."""
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
