"""What a framework is asked, and what it answers: its reading of a config in whorl's own words.

A rule does not compute frequencies. It says which options of ``RoPE`` do what the framework does
with the same keys, so that one code turns both readings into numbers, and every difference in the
numbers is a difference in the reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from whorl.configs import LayerGroup, ModelPositions, Part
from whorl.types import Layout

__all__ = [
    "Basis",
    "ConfiguredLayers",
    "FrameworkReading",
    "Remark",
    "make_refusal",
    "make_unknown",
]

#: How a rule was found: run beside the installed package by the tests, or read in its source.
Basis = Literal["executed in tests", "by reading"]


@dataclass(frozen=True)
class ConfiguredLayers:
    """Layers of a model, and the config that they were read from."""

    model: ModelPositions
    group: LayerGroup
    whole: Mapping[str, Any]

    @property
    def part(self) -> Part:
        """Where the layers stand in the config: the whole, or its text part."""
        return self.model.part or Part("", self.model.model_type, self.whole)

    @property
    def data(self) -> Mapping[str, Any]:
        """The keys that stand there."""
        return self.part.keys

    @property
    def model_type(self) -> str:
        """Of the part."""
        return self.part.model_type or ""

    @property
    def options(self) -> dict[str, Any]:
        """Whorl's own reading."""
        assert self.group.rotation is not None
        return dict(self.group.rotation.options)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The rope parameters in the current schema of transformers."""
        return self.group.parameters

    @property
    def kind(self) -> str:
        """The type of scaling that the config asks for."""
        return str(self.parameters.get("rope_type", "default"))

    @property
    def context(self) -> int:
        return self.model.context or self.model.trained_context or 1

    @property
    def nested(self) -> bool:
        """Whether the parameters stand under the name of the layer type."""
        given = self.data.get("rope_parameters")
        return isinstance(given, Mapping) and isinstance(given.get(self.group.name), Mapping)

    @property
    def current_schema(self) -> bool:
        """Written for transformers 5: ``rope_parameters`` instead of ``rope_theta`` and others."""
        return self.data.get("rope_parameters") is not None


@dataclass(frozen=True)
class Remark:
    """Something that the framework does with this config, and where that can be read."""

    text: str
    source: str


@dataclass(frozen=True)
class FrameworkReading:
    """What a framework makes of a case.

    options: of RoPE; None where it refuses the config or the rule is not known.
    at: the length that its frequencies belong to; None follows the current length.
    layout: None where it is not known.
    why: what is refused or not known, if there are no options.
    """

    options: Mapping[str, Any] | None
    at: int | None = None
    softmax_scale: float = 1.0
    layout: Layout | None = None
    remarks: tuple[Remark, ...] = ()
    outcome: Literal["read", "refuses", "unknown"] = "read"
    why: str | None = field(default=None)


def make_unknown(why: str) -> FrameworkReading:
    return FrameworkReading(None, outcome="unknown", why=why)


def make_refusal(why: str, source: str) -> FrameworkReading:
    return FrameworkReading(None, outcome="refuses", why=why, remarks=(Remark(why, source),))
