"""Groups of layers of one config that treat positions alike."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from whorl._support.words import list_quoted, quote
from whorl.configs._notes import get_note
from whorl.configs._values import Keys
from whorl.configs.model import ConfigError, LayerGroup, Parity

from .families import Family
from .layers import CHUNKED, NO_ATTENTION, count_layers, list_layer_types
from .rotations import RotationBuilder, compute_softmax_scale
from .schema import Ropes, Schema

__all__ = ["build_groups"]

_MOST_GROUPS = 100


@dataclass(frozen=True)
class _LayerKind:
    """What distinguishes the layers of one group from others."""

    layer_type: str | None  # as the config names it
    label: str | None  # the name of their rope parameters
    reason: str | None = None  # id of the note that says why they do not rotate
    base: float | None = None  # if it is not that of their rope parameters
    unscaled: bool = False


def build_groups(
    written: Keys, family: Family, parity: Parity | None, schema: Schema
) -> tuple[LayerGroup, ...]:
    """All layers in groups; one group per dictionary of rope parameters if no number is known."""
    keys = _rename_keys(written, family)
    types = list_layer_types(keys, family.types)
    labels = tuple(types or ())
    found_in = written if schema is family.parity_schema else keys
    ropes = _adapt_parameters(schema(found_in, labels, parity), keys, family, parity)
    alone = next(iter(ropes)) if len(ropes) == 1 else None  # one label is for all layers
    names: Sequence[str | None] = [alone] * (count_layers(keys) or 0) if types is None else types
    found: dict[_LayerKind, list[int]] = {}
    if len(ropes) == 1 or types is not None:
        for layer, kind in enumerate(_list_layer_kinds(keys, family, names, ropes)):
            found.setdefault(kind, []).append(layer)
    if len(found) > _MOST_GROUPS:
        raise ConfigError(
            f"layers must be of at most {_MOST_GROUPS} kinds; got {len(found)} in"
            f" {keys.path('layer_types')}."
        )
    if not found:
        found = {_LayerKind(label, label): [] for label in ropes}
    builder = RotationBuilder(keys, family, parity)
    return tuple(_build_group(builder, ropes, kind, layers) for kind, layers in found.items())


def _rename_keys(keys: Keys, family: Family) -> Keys:
    """The config with base and share under the usual names too."""
    data = dict(keys.data)
    if family.base is not None:
        outer, _, inner = family.base.rpartition(".")
        found = keys.read_object(outer) if outer else keys
        apart = outer and data.get("rope_theta") is not None
        if found is not None and found.data.get(inner) is not None and not apart:
            data["rope_theta"] = found.read_number(inner, above=0) if outer else found.data[inner]
    if family.share is not None:
        name, usual = family.share
        share = usual if data.get(name) is None else data[name]
        if share is not None:
            data["partial_rotary_factor"] = share
    return Keys(data, keys.where)


def _adapt_parameters(ropes: Ropes, keys: Keys, family: Family, parity: Parity | None) -> Ropes:
    if family.adapt is None:
        return ropes
    adapted: Ropes = {}
    for label, rope in ropes.items():
        if rope is not None:
            data = dict(rope.data)
            family.adapt(data, keys, parity)
            rope = Keys(data, rope.where)
        adapted[label] = rope
    return adapted


def _list_layer_kinds(
    keys: Keys, family: Family, types: Sequence[str | None], ropes: Ropes
) -> list[_LayerKind]:
    """The kind of each layer."""
    rule = family.unrotated
    unrotated = [False] * len(types) if rule is None else rule(keys, types)
    bases = None if family.bases is None else keys.read_numbers(family.bases)
    scaled = None if family.scaled is None else keys.read_list(family.scaled, int, "layer numbers")
    scaled_layers = None if scaled is None else set(scaled)
    kinds = []
    for layer, kind in enumerate(types):
        label = _choose_label(family, kind, ropes)
        if kind in NO_ATTENTION:
            kinds.append(_LayerKind(kind, label, "no-attention"))
        elif unrotated[layer] or (label in ropes and ropes[label] is None):
            kinds.append(_LayerKind(kind, label, family.reason))
        elif label not in ropes:
            given = list_quoted(ropes)
            raise ConfigError(
                f"{keys.path('rope_parameters')} must hold parameters, or null, for"
                f" the layer type {quote(label)}; it has {given}."
            )
        else:
            base = bases[layer] if bases is not None and layer < len(bases) else None
            plain = scaled_layers is not None and layer not in scaled_layers
            kinds.append(_LayerKind(kind, label, None, base, plain))
    return kinds


def _choose_label(family: Family, kind: str | None, ropes: Ropes) -> str | None:
    """The label of the rope parameters for layers of a type."""
    if None in ropes:
        return None
    names = dict(family.labels)
    return names.get(kind or "", names[""]) if names else kind


def _build_group(
    builder: RotationBuilder, ropes: Ropes, kind: _LayerKind, layers: list[int]
) -> LayerGroup:
    keys, family = builder.keys, builder.family
    rope = ropes.get(kind.label)
    group = LayerGroup(
        kind.layer_type, tuple(layers), None, window=_read_window(keys, family, kind.layer_type)
    )
    if kind.reason is not None or rope is None:
        reason = kind.reason or family.reason
        scale = None
        if family.query_scale is not None and reason != "no-attention":
            scale = family.query_scale(keys, None)
        return replace(group, notes=(get_note(reason),), query_scale=scale)
    rope = Keys({**rope.data, **_get_own_parameters(kind)}, rope.where)
    ids = ["chunked-attention"] if kind.layer_type == CHUNKED else []
    rotation = builder.build(rope, kind.label, kind.layer_type, ids)
    return replace(
        group,
        rotation=rotation,
        query_scale=None if family.query_scale is None else family.query_scale(keys, rope),
        softmax_scale=compute_softmax_scale(rope) if "mla" in family.notes else 1.0,
        notes=tuple(map(get_note, ids)),
        parameters=dict(rope.data),
    )


def _read_window(keys: Keys, family: Family, kind: str | None) -> int | None:
    if kind == CHUNKED:
        return keys.read_int("attention_chunk_size", least=0) or None
    if family.window is not None and kind not in NO_ATTENTION:
        used = keys.read_flag("use_sliding_window", default=True)
        return keys.read_int(family.window, least=0) or None if used else None
    if kind not in ("sliding_attention", "hybrid_sliding", "reference_sliding_attention"):
        return None
    both_sides = keys.read_int("local_attention", least=0)  # ModernBERT counts tokens on both sides
    return keys.read_int("sliding_window", least=0) or (both_sides or 0) // 2 or None


def _get_own_parameters(kind: _LayerKind) -> dict[str, Any]:
    """Parameters of a kind of layers that replace those of its label."""
    own: dict[str, Any] = {}
    if kind.base is not None:
        own["rope_theta"] = kind.base
    if kind.unscaled:
        own["rope_type"] = "default"
    return own
