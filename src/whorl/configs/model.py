"""What a model does with positions, layer by layer: the result of ``read_config``.

    ModelPositions      one model, or a part of it such as its vision encoder
      LayerGroup        layers that treat positions alike
        Rotation        an encoding and its options; None for layers without rotation

These are frozen data that convert to JSON; ``build`` makes the encoding.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from whorl._support.words import list_quoted, quote, shorten, suggest_name
from whorl.scaling import Frequencies, Scaling

if TYPE_CHECKING:
    from whorl.encodings import Encoding
    from whorl.encodings.rotary.rotary import Rotary

__all__ = [
    "ConfigError",
    "Kind",
    "LayerGroup",
    "ModelPositions",
    "Note",
    "Parity",
    "Part",
    "QueryScale",
    "Rotation",
    "convert_to_json",
]

#: The dialect that a config is written in.
Kind = Literal["transformers", "gguf", "meta", "mistral", "mlx"]
#: "transformers" reads as it does, with the mistakes in docs/configs.md; None corrects these.
Parity = Literal["transformers"]


class ConfigError(ValueError):
    """A config that cannot be read, or has impossible values; says where and what to do."""


@dataclass(frozen=True)
class Note:
    """One thing that a model does and that is not part of its rotation."""

    id: str  # kebab-case, stable: "values-rotated"
    text: str  # one sentence


@dataclass(frozen=True)
class QueryScale:
    """A factor on queries that depends on their position p.

    "log"    1 + beta ln(1 + floor(p / length))    Ministral; Llama-4 on its layers without RoPE
    "power"  (1 + (p + 1) / length) ** beta
    """

    rule: Literal["log", "power"]
    beta: float
    length: float
    shift: int = 0  # added to p before the division


@dataclass(frozen=True)
class Rotation:
    """An encoding by its registry name, with the options of its class."""

    encoding: str  # "rope", "mrope" or "axial_rope"
    options: Mapping[str, Any]  # head_dim, base, layout, scaling ...

    def build(self, **more: Any) -> "Encoding":
        """The encoding; ``more`` adds or replaces options, such as precision="float32"."""
        from whorl.encodings import make

        return make(self.encoding, **{**self.options, **more})

    def build_without_tables(self, **more: Any) -> "Rotary":
        """The encoding without tables of cos and sin, to compute frequencies with."""
        found = self.build(table="on_the_fly", table_length=0, **more)
        return cast("Rotary", found)

    def frequencies(self, length: int | None = None) -> Frequencies:
        """Frequencies of the pairs in a context of ``length`` tokens; None for a short one."""
        return self.build_without_tables().frequencies(length)

    def to_dict(self) -> dict[str, Any]:
        return {"encoding": self.encoding, **convert_to_json(self.options)}


@dataclass(frozen=True)
class LayerGroup:
    """Layers that treat positions alike.

    name: the layer type in the config, such as "full_attention"; None if it has no types.
    layers: indices of the layers; empty if the config does not say how many there are.
    rotation: None for layers that are not rotated.
    softmax_scale: a factor on 1/sqrt(D), such as the square of YaRN's mscale in MLA.
    window: the number of tokens a query attends to at most, or the length of chunks; None for no
        limit.
    parameters: the rope parameters that were read, in the schema of transformers 5.
    refusal: why whorl has no rotation that does what these layers do; ``build`` raises it.
    """

    name: str | None
    layers: tuple[int, ...]
    rotation: Rotation | None
    query_scale: QueryScale | None = None
    softmax_scale: float = 1.0
    window: int | None = None
    notes: tuple[Note, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    refusal: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: convert_to_json(value) for name, value in vars(self).items()}


@dataclass(frozen=True)
class Part:
    """The part of a config that the groups were read from: the whole config, or its text part.

    where: the path of the part, such as "text_config"; empty for the whole config.
    model_type: that of the part, or its default if the part does not name one.
    keys: the keys and values of the part.
    """

    where: str
    model_type: str | None
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class ModelPositions:
    """What ``read_config`` found.

    context: tokens that the config claims (max_position_embeddings); None if it does not say.
    trained_context: tokens of training before any extension, if the config says both.
    parts: the same for each part of a model, by key ("text_config", "vision_config"); ``groups``
        of the model are then those of its text part.
    part: where the groups were read; not compared by ``==``.
    transformers_groups: the groups as transformers reads them, where the reading followed it to
        compare; empty where it refuses, None where it was not followed. Left out of comparisons.
    """

    kind: Kind
    model_type: str | None
    context: int | None
    trained_context: int | None
    groups: tuple[LayerGroup, ...]
    notes: tuple[Note, ...] = ()
    parts: Mapping[str, "ModelPositions"] = field(default_factory=dict)
    parity: Parity | None = None
    part: Part | None = field(default=None, compare=False, repr=False)
    transformers_groups: tuple[LayerGroup, ...] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def num_layers(self) -> int:
        return sum(len(group.layers) for group in self.groups)

    @property
    def unrotated(self) -> str:
        """For a model without groups: the end of a sentence that begins with its name."""
        if any(note.id == "no-sign" for note in self.notes):
            return (
                "may or may not have a rotary embedding: its model type is not known, and no key"
                " mentions one"
            )
        return "has no rotary embedding"

    def group(self, layer_type: str | None = None, layer: int | None = None) -> LayerGroup:
        """The group of a layer type or layer; without both, the only group that rotates."""
        found = [
            group
            for group in self.groups
            if (layer_type is None or group.name == layer_type)
            and (layer is None or layer in group.layers)
        ]
        asked = layer_type is not None or layer is not None
        if not asked:
            found = [group for group in found if group.rotation or group.refusal] or found
        if len(found) == 1 or (found and len({_identify_group(g) for g in found}) == 1):
            return found[0]
        raise ConfigError(self._explain_choice(found, layer_type, layer))

    def build(
        self, layer_type: str | None = None, layer: int | None = None, **more: Any
    ) -> "Encoding":
        """The encoding of a group of layers, see ``group``; NoPE for layers without rotation."""
        from whorl.encodings import NoPE

        group = self.group(layer_type, layer)
        if group.refusal is not None:
            raise ConfigError(group.refusal)
        return NoPE() if group.rotation is None else group.rotation.build(**more)

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, strings, lists and dicts, for JSON."""
        return {
            "kind": self.kind,
            "model_type": self.model_type,
            "context": self.context,
            "trained_context": self.trained_context,
            "num_layers": self.num_layers,
            "groups": convert_to_json(self.groups),
            "notes": convert_to_json(self.notes),
            "parts": convert_to_json(self.parts),
            "parity": self.parity,
        }

    def _explain_choice(
        self, found: list[LayerGroup], layer_type: str | None, layer: int | None
    ) -> str:
        who = shorten(self.model_type) if self.model_type else "this model"
        names = [group.name for group in self.groups if group.name is not None]
        if not self.groups:
            return f"{who} {self.unrotated}."
        if layer is not None and not self.num_layers:
            ask = f" pass layer_type=, one of {list_quoted(names)}." if names else ""
            return (
                f"the config of {who} does not say how many layers there are, so"
                f" layer={layer} cannot be found;{ask or ' leave layer out.'}"
            )
        if layer is not None and not any(layer in group.layers for group in self.groups):
            return f"{who} has layers 0 .. {self.num_layers - 1}; got layer={layer}."
        if layer_type is not None and layer_type not in names:
            hint = suggest_name(layer_type, names)
            known = list_quoted(names) or "none, all layers are alike"
            return f"{who} has no layer type {quote(layer_type)}{hint} It has: {known}."
        if layer is not None and not found:
            kind = next(group.name for group in self.groups if layer in group.layers)
            return (
                f"layer {layer} of {who} is of the type {quote(kind)}, not"
                f" {quote(layer_type)}; pass one of layer= and layer_type=."
            )
        return (
            f"the layers of {who} rotate in {len(found)} different ways; pass layer= or"
            f" layer_type=, one of {list_quoted(names) or 'the layer numbers'}."
        )


def _identify_group(group: LayerGroup) -> str:
    return repr((None if group.rotation is None else group.rotation.to_dict(), group.refusal))


def convert_to_json(value: Any) -> Any:
    """The value as JSON can hold it: dicts, lists, strings and finite numbers, else None."""
    if isinstance(value, (Scaling, Rotation, LayerGroup, ModelPositions)):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: convert_to_json(inner) for name, inner in vars(value).items()}
    if isinstance(value, Mapping):
        return {name: convert_to_json(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert_to_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no number for it
    return value
