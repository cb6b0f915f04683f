"""Extend a model by a scaling, and write the lines of config.json for it.

An extension replaces the scaling of a config and starts from the trained length. If both scalings
are YaRN, the new one keeps the options of the old one, except attention_factor, which belongs to
the old factor. ``configs.rope_parameters`` says which scalings transformers can express.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whorl import scaling as scalings
from whorl._support.words import quote, shorten, suggest_name
from whorl.configs import ConfigError, LayerGroup, ModelPositions, rope_parameters
from whorl.configs.huggingface import defaults
from whorl.configs.huggingface.sizes import NAMES
from whorl.configs.huggingface.write import DIALECTS, Dialect, write_dialect_lines
from whorl.scaling import Description, Proportional, Scaling, YaRN
from whorl.scaling.yarn import compute_mscale

from .patches import explain_refused_type, list_needed_keys

__all__ = [
    "NOT_BY_FACTOR",
    "ModelExtension",
    "build_scaling",
    "collect_parameters",
    "describe_scaling",
    "extend",
    "has_one_dictionary",
    "name_model",
    "replace_scaling",
    "select_extended_groups",
    "write_lines_by_dialect",
]

#: Scalings that need more than one factor, with the reason.
NOT_BY_FACTOR = {
    "longrope": "LongRoPE needs a factor for every pair, found by a search over a trained model",
    "proportional": "it does not rotate slow pairs, and a model must be trained that way",
}
_CARRIED_OVER = (
    "partial_rotary_factor",
    "mrope_section",
    "mrope_interleaved",
    "llama_4_scaling_beta",
)
_ORIGINAL = "original_max_position_embeddings"


@dataclass(frozen=True)
class ModelExtension:
    """A scaling that replaces the one of a group of layers.

    before, after: what the old and the new scaling do to each pair at ``length`` tokens.
    parameters: rope_parameters of the group for transformers 5; None if it has no such type.
    why: the reason if ``parameters`` is None.
    softmax_scale: the new factor on 1/sqrt(D), for models that have one.
    start: the length that the factor multiplies: the trained length, or that of the published
        recipe of the family.
    """

    scaling: Scaling
    length: int
    before: Description
    after: Description
    softmax_scale: float = 1.0
    parameters: Mapping[str, Any] | None = field(default=None)
    why: str | None = None
    start: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "scaling": self.scaling.to_dict(),
            "length": self.length,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "softmax_scale": self.softmax_scale,
            "rope_parameters": None if self.parameters is None else dict(self.parameters),
            "why": self.why,
            "start": self.start,
        }


def build_scaling(name: str, factor: float, trained: int) -> Scaling:
    """The scaling of this name for ``factor`` times the trained length."""
    known = [each for each in scalings.names() if each not in NOT_BY_FACTOR]
    if name in NOT_BY_FACTOR:
        raise ConfigError(
            f"{quote(name)} cannot be chosen by a factor: {NOT_BY_FACTOR[name]}. Extend by"
            f" one of {', '.join(known)}."
        )
    if name not in scalings.names():
        raise ConfigError(
            f"unknown extension {quote(name)}{suggest_name(name, known)} Known: {', '.join(known)}."
        )
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 0 < factor < 1e9:
        raise ConfigError(
            "factor must be a number above 0, the new length over the trained one; got"
            f" {quote(factor)}."
        )
    options: dict[str, Any] = {"name": name}
    if name not in ("dynamic_linear", "dynamic_yarn"):
        options["factor"] = float(factor)
    if name not in ("linear", "ntk"):
        options["original_context"] = trained
    try:
        return scalings.from_dict(options)
    except TypeError as error:  # a registered scaling with other options
        raise ConfigError(f"{quote(name)} cannot be built from a factor alone: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{error}") from None


def extend(
    model: ModelPositions,
    group: LayerGroup,
    name: str,
    factor: float,
    trained: int | None,
    published: int | None = None,
) -> ModelExtension:
    """Extend ``group`` by the scaling of this name; see ``replace_scaling``."""
    assert group.rotation is not None
    old = group.rotation.options.get("scaling")

    def make(tokens: int) -> Scaling:
        found = build_scaling(name, factor, tokens)
        if isinstance(found, YaRN) and isinstance(old, YaRN):
            return replace(
                old, factor=float(factor), original_context=tokens, attention_factor=None
            )
        return found

    return replace_scaling(model, group, name, factor, trained, make, published)


def replace_scaling(
    model: ModelPositions,
    group: LayerGroup,
    name: str,
    factor: float,
    trained: int | None,
    make: Callable[[int], Scaling],
    published: int | None = None,
) -> ModelExtension:
    """Extend ``group`` by the scaling that ``make`` returns for the trained length.

    trained: the length that the extension starts from. published: the trained length of the config
    as published, if that is another.
    """
    assert group.rotation is not None
    who, old = name_model(model), group.rotation.options.get("scaling")
    if group.rotation.encoding == "axial_rope":
        raise ConfigError(f"the axial rotation of {who} cannot be scaled.")
    if isinstance(old, Proportional):
        raise ConfigError(
            f"{who} does not rotate its slow pairs (proportional), and {quote(name)} cannot be"
            " combined with that."
        )
    if trained is None:
        raise ConfigError(
            f"the config of {who} does not say the trained length, from which an extension"
            " starts; pass trained=N."
        )
    scaling = make(trained)
    length = max(1, round(trained * factor))
    try:
        before, after = (
            group.rotation.build_without_tables(),
            group.rotation.build_without_tables(scaling=scaling),
        )
        return ModelExtension(
            scaling,
            length,
            describe_scaling(before, length, published or trained, group.window),
            describe_scaling(after, length, trained, group.window),
            _compute_softmax_scale(group, scaling),
            *_build_parameters(model, group, scaling),
            start=trained,
        )
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(f"{quote(name)} does not fit {who}: {error}") from None


def name_model(model: ModelPositions) -> str:
    """The name of a model in messages: the model type in its config, shortened."""
    name, part = model.model_type, model.part
    if part is not None and not part.where and isinstance(part.keys.get("model_type"), str):
        name = part.keys["model_type"]
    return shorten(name or "this model", 80)


def describe_scaling(
    rope: Any, length: int | None, trained: int | None, window: int | None = None
) -> Description:
    """What the scaling of ``rope`` does at ``length`` tokens.

    window: the sliding window of the layers, in which pairs rotate less often in training.
    """
    own = getattr(rope.config.scaling, "original_context", None)
    found: Description = rope.describe(length, original_context=trained if own is None else None)
    whole = found.original_context
    if whole is None or window is None or window >= whole:
        return found
    pairs = [
        replace(pair, rotations=None if pair.rotations is None else pair.rotations * window / whole)
        for pair in found.pairs
    ]
    return replace(found, pairs=tuple(pairs))


def has_one_dictionary(groups: Sequence[LayerGroup], data: Mapping[str, Any]) -> bool:
    """Whether one dictionary of rope parameters is for all these layers."""
    given = data.get("rope_parameters")
    if isinstance(given, dict) and any(isinstance(value, dict) for value in given.values()):
        return False
    return all(dict(group.parameters) == dict(groups[0].parameters) for group in groups)


def select_extended_groups(groups: list[LayerGroup], data: Mapping[str, Any]) -> list[LayerGroup]:
    """The groups to extend: those without a window, or all if they share rope parameters."""
    if has_one_dictionary(groups, data):
        return groups
    return [group for group in groups if group.window is None] or groups


def write_lines_by_dialect(
    model: ModelPositions, data: Mapping[str, Any], found: Mapping[int, ModelExtension]
) -> dict[Dialect, dict[str, Any] | None]:
    """Lines for config.json in each dialect; None for a dialect that cannot express them.

    found: extensions by the id() of their group.
    """
    replaced = {key: dict(each.parameters or {}) for key, each in found.items()}
    if not found or any(extension.parameters is None for extension in found.values()):
        return dict.fromkeys(DIALECTS)
    extension, new = next(iter(found.values())), next(iter(replaced.values()))
    model_type = model.model_type if model.part is None else model.part.model_type
    entry = defaults.get_entry(model_type) or {}
    also = dict.fromkeys(_list_context_keys(entry, data), _get_context(extension))
    heads = [g.rotation.options["head_dim"] for g in model.groups if g.rotation and id(g) in found]
    also |= list_needed_keys(model_type, data, new["rope_type"], heads[0])
    parameters = collect_parameters(model, data, replaced)
    if data.get(_ORIGINAL) is not None and _ORIGINAL in parameters:  # comes before the key inside
        also[_ORIGINAL] = new[_ORIGINAL]
    lines = {each: write_dialect_lines(data, model_type, parameters, each) for each in DIALECTS}
    return {each: None if found is None else also | found for each, found in lines.items()}


def collect_parameters(
    model: ModelPositions, data: Mapping[str, Any], replaced: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """Rope parameters of all layers, in one dictionary if possible, else one for each layer type.

    replaced: new parameters of some groups, by the id() of the group.
    """
    rotating = [group for group in model.groups if group.rotation is not None]
    if has_one_dictionary(rotating, data):
        return dict(next(iter(replaced.values()), rotating[0].parameters))
    model_type = model.model_type if model.part is None else model.part.model_type
    entry = defaults.get_entry(model_type) or {}
    given = data.get("rope_parameters") or entry.get("keys", {}).get("default_rope_parameters")
    given = given if isinstance(given, Mapping) else {}
    unrotated = [name for name, rope in given.items() if rope is None]
    return dict.fromkeys(unrotated) | {
        group.name: dict(replaced.get(id(group), group.parameters))
        for group in rotating
        if group.name is not None
    }


def _list_context_keys(entry: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    """The keys of a config that hold the context length: that of its class, and equal ones."""
    usual = "max_position_embeddings"
    name: str = entry.get("names", {}).get(usual, "")
    own = name if name in data else usual
    others = [
        other for other in NAMES[usual] if other in data and data.get(own) in (None, data[other])
    ]
    return list(dict.fromkeys([own, *others]))


def _get_context(extension: ModelExtension) -> int:
    """The new max_position_embeddings; "dynamic" needs the trained length there."""
    if extension.scaling.name != "dynamic_ntk":
        return extension.length
    tokens: int = getattr(extension.scaling, "original_context", extension.length)
    return tokens


def _compute_softmax_scale(group: LayerGroup, scaling: Scaling) -> float:
    """The factor on the softmax scale of latent attention: the square of YaRN's mscale."""
    weight = getattr(scaling, "mscale_all_dim", None)
    if group.softmax_scale == 1.0 or not weight:
        return 1.0
    return compute_mscale(getattr(scaling, "factor", 1.0), weight) ** 2


def _build_parameters(
    model: ModelPositions, group: LayerGroup, scaling: Scaling
) -> tuple[dict[str, Any] | None, str | None]:
    """The rope parameters of a group for transformers 5, or why it cannot express the scaling."""
    assert group.rotation is not None
    options = group.rotation.options
    if options.get("inv_freq") is not None:
        return None, "the frequencies of these layers do not follow from a base"
    base = float(options.get("base", 10_000.0))
    width = options.get("rotary_dim") or options["head_dim"]
    found = rope_parameters(scaling, base, width)
    if found.parameters is None:
        return None, found.why
    why = explain_refused_type(model, str(found.parameters["rope_type"]))
    if why is not None:
        return None, why
    carried = {name: group.parameters[name] for name in _CARRIED_OVER if name in group.parameters}
    if (
        "llama_4_scaling_beta" in carried and _ORIGINAL in group.parameters
    ):  # the length of its formula
        carried[_ORIGINAL] = group.parameters[_ORIGINAL]
    new = dict(found.parameters)
    start = {name: new.pop(name) for name in ("rope_type", "rope_theta")}
    return {**start, **carried, **new}, None
