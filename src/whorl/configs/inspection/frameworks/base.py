"""The input and result of the rules of a framework: layers of a config, and how it reads them.

A rule does not compute frequencies. It gives the options of ``RoPE`` that do what the framework
does with the same keys. The same code computes the numbers for both, so every difference in the
numbers is a difference in reading.
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

#: How a rule was found: tests compare it with the installed package, or its source was read.
Basis = Literal["executed in tests", "by reading"]


@dataclass(frozen=True)
class ConfiguredLayers:
    """Layers of a model, and the config that they were read from."""

    model: ModelPositions
    group: LayerGroup
    whole: Mapping[str, Any]

    @property
    def part(self) -> Part:
        """The part of the config that the layers were read from: the whole, or its text part."""
        return self.model.part or Part("", self.model.model_type, self.whole)

    @property
    def data(self) -> Mapping[str, Any]:
        """The keys of that part."""
        return self.part.keys

    @property
    def model_type(self) -> str:
        """The model type of that part."""
        return self.part.model_type or ""

    @property
    def options(self) -> dict[str, Any]:
        """The options of RoPE as whorl reads them."""
        assert self.group.rotation is not None
        return dict(self.group.rotation.options)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The rope parameters in the schema of transformers 5."""
        return self.group.parameters

    @property
    def kind(self) -> str:
        """The rope_type in the config."""
        return str(self.parameters.get("rope_type", "default"))

    @property
    def context(self) -> int:
        return self.model.context or self.model.trained_context or 1

    @property
    def nested(self) -> bool:
        """Whether the rope parameters are nested under the layer type."""
        given = self.data.get("rope_parameters")
        return isinstance(given, Mapping) and isinstance(given.get(self.group.name), Mapping)

    @property
    def current_schema(self) -> bool:
        """Whether the config is for transformers 5: with ``rope_parameters``."""
        return self.data.get("rope_parameters") is not None


@dataclass(frozen=True)
class Remark:
    """Something that the framework does with this config, and the source for it."""

    text: str
    source: str


@dataclass(frozen=True)
class FrameworkReading:
    """How a framework reads some layers.

    options: of RoPE; None if it refuses the config or its rule is not known.
    at: the length that its frequencies belong to; None for the current length.
    layout: None if it is not known.
    why: what is refused or not known, if ``options`` is None.
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
