"""Read the schemas of transformers 4 and 5 into one dictionary of rope parameters per layer type.

    version 4   rope_theta, partial_rotary_factor and rope_scaling {"type" or "rope_type", ...}
    version 5   rope_parameters {"rope_type", "rope_theta", ...}, or such a dictionary for each type

Version 4 is read as transformers 5 reads it: a rope_scaling that is not empty replaces
rope_parameters; keys inside the dictionary come before keys beside it; "rope_type" comes before
"type"; without both the type is "default". A dictionary is nested if one of its keys is a layer
type. None for a nested dictionary means that these layers do not rotate.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whorl.configs._values import Keys
from whorl.configs.model import Parity

__all__ = ["Ropes", "Schema", "fill_parameters", "read_plain"]

#: Rope parameters by label; the label is None if one dictionary is for all layers.
Ropes = dict[str | None, Keys | None]
Schema = Callable[[Keys, Sequence[str], Parity | None], Ropes]

WITH_ORIGINAL = ("llama3", "yarn", "longrope")
_ORIGINAL = "original_max_position_embeddings"
FULL, SLIDING = "full_attention", "sliding_attention"


def read_plain(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """The schema of most families."""
    given = _find_given(keys)
    nested = [name for name in given.data if name in labels]
    if (
        not nested and not labels and parity is None
    ):  # no layer types: recognise nested dictionaries
        nested = [name for name, v in given.data.items() if _is_rope(v) and isinstance(name, str)]
    if not nested:
        flat = {name: v for name, v in given.data.items() if labels or not _is_rope(v)}
        return {None: fill_parameters(flat, keys, given.where)}
    ropes: Ropes = {}
    for name in nested:
        rope = given.read_object(name)
        is_none = given.data.get(name) is None
        where = given.path(name)
        data = {} if rope is None else rope.data
        ropes[name] = None if is_none else fill_parameters(data, keys, where, nested=True)
    return ropes


def fill_parameters(
    rope: Mapping[str, Any], keys: Keys, where: str, *, base: Any = None, nested: bool = False
) -> Keys:
    """One dictionary, with type, base and share filled in; ``base`` comes before the config's."""
    full = {name: value for name, value in rope.items() if value is not None}
    full.setdefault("rope_type", full.get("type", "default"))
    if base is None:
        base = (
            keys.read_number("rope_theta", above=0) or keys.read_number("default_theta") or 10_000.0
        )
    full.setdefault("rope_theta", base)
    share = keys.read_number("partial_rotary_factor")
    if share is not None:
        full.setdefault("partial_rotary_factor", share)
    if full["rope_type"] in WITH_ORIGINAL:
        trained = keys.read_int(_ORIGINAL)
        if trained is not None and not nested:
            full[_ORIGINAL] = trained
        elif (context := keys.read_int("max_position_embeddings")) is not None:
            full.setdefault(_ORIGINAL, context)
    return Keys(full, where)


def read_two_bases(full: str, sliding: str, *, scaled: tuple[str, ...] = (FULL,)) -> Schema:
    """One base for layers with full attention and one for sliding windows, by their old keys.

    scaled: the layer types that an old rope_scaling applies to.
    """

    def schema(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
        given, legacy = keys.read_object("rope_parameters"), keys.read_object("rope_scaling")
        ropes: Ropes = {}
        flat: Keys | None = None  # one dictionary for all: its base, and a scaling
        if given is not None and FULL not in given.data and SLIDING not in given.data:
            flat, given = given, None
            legacy = flat if legacy is None else legacy
        for label, name, kind in ((FULL, full, "global"), (SLIDING, sliding, "local")):
            inside = None if given is None else given.read_object(label)
            rope = {"rope_type": "default"} if inside is None else dict(inside.data)
            where = f"rope_parameters.{label}"
            if legacy is not None and label in scaled:
                rope.update(_rename_type(legacy.data))
                where = legacy.where
            base = keys.read_number(name, above=0)
            if flat is not None and name == full:
                base = flat.read_number("rope_theta", above=0) or base
            ropes[label] = fill_parameters(
                rope, keys, where, base=base or _get_default_base(keys, kind), nested=True
            )
        return ropes

    return schema


def read_lists_per_layer(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """Lists of bases and shares, one value for each layer (Step-3.7, UltraBERT)."""
    given = keys.read_object("rope_parameters")
    types = list(dict.fromkeys(labels))
    if given is not None and all(isinstance(given.data.get(t), Mapping) for t in types):
        return read_plain(keys, labels, parity)
    listed = isinstance(keys.data.get("rope_theta"), (list, tuple))
    if not listed:
        return read_plain(keys, labels, parity)
    bases, shares = keys.read_numbers("rope_theta"), keys.read_numbers("partial_rotary_factors")
    legacy = keys.read_object("rope_scaling")
    ropes: Ropes = {}
    for name in types:
        first = list(labels).index(name)
        rope: dict[str, Any] = {}
        for option, values in (("rope_theta", bases), ("partial_rotary_factor", shares)):
            if values is not None and first < len(values):
                rope[option] = values[first]
        if legacy is not None and name == FULL:
            rope.update(_rename_type(legacy.data))
        beside = Keys({n: v for n, v in keys.data.items() if n != "rope_theta"}, keys.where)
        ropes[name] = fill_parameters(rope, beside, "rope_parameters", nested=True)
    return ropes


def read_base_only(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """Models that read no rope parameters except the base."""
    base = keys.read_number("rope_theta", above=0)
    return {None: Keys({"rope_type": "default", "rope_theta": base or 10_000.0}, keys.where)}


def use_base_10000(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """Models that do not read the base either."""
    return {None: Keys({"rope_type": "default", "rope_theta": 10_000.0}, keys.where)}


def read_compressed_layers(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """DeepSeek-V4: "main" for layers with a window, "compress" for compressed ones."""
    given = _find_given(keys)
    head, part = keys.read_int("head_dim"), keys.read_int("qk_rope_head_dim")
    share = keys.read_number("partial_rotary_factor")
    if share is None:
        usual = keys.read_number("default_partial_rotary_factor")
        share = part / head if head and part else usual
    ropes: Ropes = {}
    inside = {name: given.read_object(name) for name in ("main", "compress")}
    for name, key in (("main", "rope_theta"), ("compress", "compress_rope_theta")):
        rope = inside[name]
        if all(inside.values()) and rope is not None:
            ropes[name] = fill_parameters(rope.data, keys, rope.where, nested=True)
            continue
        data = {} if name == "main" else dict(given.data)
        data = {n: v for n, v in data.items() if n not in ("main", "compress", "rope_theta")}
        if data.get("rope_type", data.get("type")) == "yarn":
            data.setdefault("attention_factor", 1.0)
        if share is not None:
            data["partial_rotary_factor"] = share
        base = keys.read_number(key, above=0)
        ropes[name] = fill_parameters(data, keys, given.where, base=base, nested=True)
    return ropes


def _rename_type(legacy: Mapping[str, Any]) -> dict[str, Any]:
    """An old rope_scaling with its type under "rope_type", and without its base."""
    typed = {name: value for name, value in legacy.items() if name != "rope_theta"}
    if "type" in typed:
        typed.setdefault("rope_type", typed["type"])
    return typed


def _find_given(keys: Keys) -> Keys:
    """The rope parameters of version 4, else of version 5, else the defaults of the family."""
    for name in ("rope_scaling", "rope_parameters", "default_rope_parameters"):
        found = keys.read_object(name)
        if found is not None:
            return found
    return Keys({}, "rope_parameters")


def _get_default_base(keys: Keys, kind: str) -> float | None:
    """The default base of a family for a kind of layers, "global" or "local"."""
    if isinstance(keys.data.get("default_theta"), Mapping):
        found = keys.read_object("default_theta")
        return None if found is None else found.read_number(kind)
    return keys.read_number("default_theta")


def _is_rope(value: Any) -> bool:
    return isinstance(value, Mapping) and ("rope_theta" in value or "rope_type" in value)


def require_base(rope: Keys) -> float:
    """The base of complete rope parameters."""
    return rope.require("rope_theta", rope.read_number("rope_theta", above=0), "add the base")
