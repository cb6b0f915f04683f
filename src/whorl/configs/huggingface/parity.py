"""Read rope keys as transformers 5.22.2 does: the schemas for parity="transformers".

    convert       old and new keys become rope_parameters; some classes have their own converter
    standardise   missing type, base, share and trained length are filled in
    validate      keys that the type needs must exist; their values may be null
    look up       a rotary module takes one dictionary, or one for each layer type

The source is configuration_utils.py and modeling_rope_utils.py. Where transformers raises an error,
a ConfigError is raised here. Only here a missing key and a null differ.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from whorl._support.words import quote
from whorl.configs._values import Keys
from whorl.configs.model import ConfigError, Parity

from . import defaults
from .schema import FULL, SLIDING, WITH_ORIGINAL, Ropes, Schema, read_compressed_layers

__all__ = ["follow_one_dictionary", "make_refusal", "refuse_without_latent_attention"]

_ORIGINAL = "original_max_position_embeddings"
_SHARE = "partial_rotary_factor"
#: Keys that a rope_type needs, and those of them that must not be null.
_NEEDED_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "linear": (("factor",), ("factor",)),
    "dynamic": (("factor",), ("factor",)),
    "yarn": (("factor", _ORIGINAL), (_ORIGINAL,)),
    "longrope": (("short_factor", "long_factor", _ORIGINAL), (_ORIGINAL,)),
    "llama3": (
        ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
        ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
    ),
}


def make_refusal(why: str) -> ConfigError:
    """The error for a config on which transformers raises an error."""
    name = f"transformers {defaults.get_version()}"
    return ConfigError(
        f"{name} refuses this config, so parity has nothing to follow: {why}; leave"
        " parity out to read what is meant."
    )


def follow_one_dictionary(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """The converter of most classes, and a module that takes one dictionary."""
    rope = _fill_base_and_share(_copy_given(keys), keys, labels)
    return {None: _check_one_dictionary(rope, keys, labels)}


def follow_dictionary_per_type(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """No converter, and a module that takes a dictionary for each layer type (Gemma 4).

    An old rope_scaling replaces everything, even if it is null. The first layer type with a scaling
    copies the base and share beside the dictionaries into all of them; types before it get neither.
    """
    rope = _copy(keys, "rope_scaling") if "rope_scaling" in keys.data else _copy_new_schema(keys)
    if not rope:
        raise make_refusal(f"{keys.path('rope_scaling')} leaves no rope_parameters")
    found: Ropes = {}
    for label in sorted(set(labels or rope)):
        inside = _get_nested(rope, label)
        if (
            inside is not None
            and inside.get("rope_type", inside.get("type", "default")) != "default"
        ):
            for name in _list_nested(rope, labels or tuple(rope)):
                beside = _get_nested(rope, name)
                if beside is not None:
                    beside.setdefault("rope_theta", keys.data.get("rope_theta"))
                    _add_share(beside, keys.data.get(_SHARE))
        found |= _check_each_type(
            {label: copy.copy(rope.get(label))} if label in rope else {}, keys, (label,)
        )
    return found


def follow_dictionary_per_type_with_share(share: float) -> Schema:
    """A dictionary for each layer type; ``share`` is the default of the module (MiMo)."""

    def schema(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
        ropes = follow_dictionary_per_type(keys, labels, parity)
        return {
            name: Keys({_SHARE: share, **rope.data}, rope.where)
            if rope is not None and _get_type(rope.data) == "default"
            else rope
            for name, rope in ropes.items()
        }

    return schema


def follow_late_layer_types(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A class that sets its layer types after it has read its rope keys."""
    return follow_one_dictionary(keys, labels if "layer_types" in keys else (), parity)


def follow_null_head_dim(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A class that leaves head_dim null, with which three of the rope types fail."""
    ropes = follow_one_dictionary(keys, labels, parity)
    rope = ropes[None]
    if rope is None or "head_dim" in keys:
        return ropes
    if _get_type(rope.data) in ("dynamic", "yarn", "longrope") and not rope.data.get("alpha"):
        raise make_refusal(f"{_get_type(rope.data)} needs {keys.path('head_dim')}, which is null")
    return ropes


def follow_equal_widths(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A class whose table has head_dim channels, which must be qk_rope_head_dim (DeepSeek-V3)."""
    table, rotated = keys.read_int("head_dim"), keys.read_int("qk_rope_head_dim", least=0)
    if table is not None and table != rotated:
        raise make_refusal(
            f"its table has {table} channels, but {rotated} channels of a head are rotated"
        )
    return follow_one_dictionary(keys, labels, parity)


def follow_late_parameters(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A class that does not read rope_scaling, and sets rope_parameters last (Command-A MoE)."""
    if keys.data.get("rope_theta") is None:
        raise make_refusal(f"{keys.path('rope_theta')} is null")
    if "rope_parameters" not in keys.data:
        return {None: _check_one_dictionary(_fill_base_and_share({}, keys, ()), keys, ())}
    rope = _copy(keys, "rope_parameters")
    if not rope:
        raise make_refusal(f"{keys.path('rope_parameters')} is empty")
    if not _list_nested(rope, labels):
        rope.setdefault("rope_type", rope.get("type", "default"))
        _require(
            rope, _NEEDED_KEYS.get(_get_type(rope), ((), ()))[0], Keys(rope, "rope_parameters")
        )
        if _get_type(rope) != "default":
            rope.setdefault("rope_theta", keys.data["rope_theta"])
    return {None: _check_one_dictionary(rope, keys, labels)}


def follow_share_of_head(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A table for a share of the whole head, which must be qk_rope_head_dim (Mistral 4)."""
    rope = _fill_base_and_share(_copy_given(keys), keys, labels)
    rotated = keys.read_int("qk_rope_head_dim") or 64
    whole = rotated + (keys.read_int("qk_nope_head_dim", least=0) or 64)
    if not keys.data.get("rope_scaling"):
        rope.setdefault(_SHARE, rotated / whole)
    found = _check_one_dictionary(rope, keys, labels)
    share = found.read_number(_SHARE)
    scales = _get_type(found.data) not in ("default", "proportional")
    width = int(whole * share) if scales and share is not None else whole
    if width != rotated:
        raise make_refusal(
            f"its table has {width} channels, but {rotated} channels of a head are rotated"
        )
    return {None: found}


def refuse_without_latent_attention(
    keys: Keys, labels: Sequence[str], parity: Parity | None
) -> Ropes:
    """Raise the error for use_mla false, which classes with latent attention do not read."""
    raise make_refusal(
        f"{keys.path('use_mla')} false is not read, and its class has latent attention"
    )


def follow_compressed_layers(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """DeepSeek-V4: like the default schema, but with the checks of transformers."""
    if "rope_theta" in keys.data and keys.data["rope_theta"] is None:
        raise make_refusal(f"{keys.path('rope_theta')} is null")
    ropes = read_compressed_layers(keys, labels, parity)
    given = _copy_given(keys)
    for name, rope in ropes.items():
        if rope is not None:
            inside = given.get(name or "")  # with the nulls that the schema drops
            written = {**rope.data, **(inside if isinstance(inside, dict) else given)}
            _require(written, _NEEDED_KEYS.get(_get_type(rope.data), ((), ()))[0], rope)
    return ropes


def follow_two_bases(
    full: str, sliding: str, scaled: tuple[str, ...] = (FULL,), strict: str = ""
) -> Schema:
    """A converter for two layer types that have a key each for the base (Gemma 3).

    scaled: the types that an old rope_scaling is added to. strict: the name of a class whose
    rope_parameters must have no keys but the layer types.
    """

    def schema(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
        rope = _copy(keys, "rope_parameters")
        if keys.data.get("rope_parameters") is None:
            rope = {name: {"rope_type": "default"} for name in (SLIDING, FULL)}
        if keys.data.get("rope_scaling") is not None:
            for name in scaled:
                inside = _get_nested(rope, name)
                if inside is None:
                    raise make_refusal(
                        f"{keys.path('rope_parameters')} has no {quote(name)} to scale"
                    )
                inside.update(_copy(keys, "rope_scaling"))
        others = [name for name in rope if name not in (FULL, SLIDING)]
        if strict and others:
            raise make_refusal(f"rope_parameters of {strict} must not hold {quote(others[0])}")
        spent = set[str]()
        for name, key, kind in ((FULL, full, "global"), (SLIDING, sliding, "local")):
            inside = _get_nested(rope, name) or {"rope_type": "default"}
            base = keys.data.get(key, _get_default_base(keys, kind))
            inside.setdefault("rope_theta", _get_default_base(keys, kind) if key in spent else base)
            inside.setdefault("rope_type", inside.get("type", "default"))
            if inside["rope_type"] != "default":
                _add_share(inside, keys.data.get(_SHARE))
            rope[name] = inside
            spent.add(key)
        return _check_each_type(rope, keys, labels)

    return schema


def follow_other_names(base: str, share: str, usual_share: float) -> Schema:
    """A converter that reads base and share only under these names (GPT-NeoX)."""

    def schema(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
        rope = _copy_given(keys)
        rope.setdefault("rope_theta", keys.data.get(base, _get_default_base(keys)))
        rope.setdefault(_SHARE, keys.data.get(share, usual_share))
        return {None: _check_one_dictionary(rope, keys, labels)}

    return schema


def follow_phi3(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A class in which "su" and "yarn" become longrope, and other types are errors (Phi-3)."""
    rope = _fill_base_and_share(_copy_given(keys), keys, labels)
    _fill_type_and_length(rope, keys)
    if rope["rope_type"] in ("su", "yarn"):
        rope["rope_type"] = "longrope"
    if rope["rope_type"] not in ("default", "longrope"):
        raise make_refusal(f"this family takes longrope only, not {quote(rope['rope_type'])}")
    return {None: _check_one_dictionary(rope, keys, labels)}


def follow_phimoe(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A class in which every scaling needs both attention scales (Phi-3.5-MoE)."""
    ropes = follow_one_dictionary(keys, labels, parity)
    rope = ropes[None]
    if rope is not None and rope.data["rope_type"] != "default":
        for name in ("short_mscale", "long_mscale"):
            if not isinstance(rope.data.get(name), (int, float)):
                raise make_refusal(f"{rope.path(name)} must be a number")
    return ropes


def follow_default_only(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A class without layer types and scalings (RecurrentGemma)."""
    ropes = follow_one_dictionary(keys, (), parity)
    rope = ropes[None]
    if rope is not None and rope.data["rope_type"] != "default":
        raise make_refusal(
            f"its module has no scaling, but the config asks for {quote(rope.data['rope_type'])}"
        )
    return ropes


def follow_step(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """Lists of bases and shares, or one base for all; an old rope_scaling is added (Step-3.7)."""
    types = list(dict.fromkeys(labels))
    given = _copy(keys, "rope_parameters")
    if types and all(isinstance(given.get(name), Mapping) for name in types):
        beside = {name: v for name, v in keys.data.items() if name != "rope_theta"}
        return _check_each_type(
            _fill_base_and_share(given, Keys(beside, keys.where), labels), keys, labels
        )
    base = keys.data.get("rope_theta", _get_default_base(keys))
    bases = base if isinstance(base, (list, tuple)) else [base] * len(labels)
    shares = keys.read_numbers("partial_rotary_factors")
    rope: dict[str, Any] = {}
    for name in types:
        first = list(labels).index(name)
        if first >= len(bases) or (shares and first >= len(shares)):
            raise make_refusal(f"its lists end before layer {first}")
        rope[name] = {"rope_type": "default", "rope_theta": bases[first]}
        if shares:
            rope[name][_SHARE] = shares[first]
    if FULL in rope:
        rope[FULL].update(_copy(keys, "rope_scaling"))
    return _check_each_type(rope, keys, labels)


def follow_base_list(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """A list of bases, one for each layer (UltraBERT)."""
    bases = keys.data.get("rope_theta")
    rope = _copy_new_schema(keys)
    if bases is not None and keys.data.get("rope_parameters") is None:
        if not isinstance(bases, (list, tuple)):
            raise make_refusal(f"{keys.path('rope_theta')} of this family must be a list")
        pairs = zip(labels, bases, strict=False)
        rope = {name: {"rope_type": "default", "rope_theta": base} for name, base in pairs}
    rope = _copy(keys, "rope_scaling") or rope
    beside = {name: v for name, v in keys.data.items() if name != "rope_theta"}
    return _check_each_type(
        _fill_base_and_share(rope, Keys(beside, keys.where), labels), keys, labels
    )


def follow_hard_coded(schema: Schema, base: str | None = None) -> Schema:
    """A class with its frequencies in code: rope parameters are checked, but not used.

    base: the key for the base, if the class has one.
    """

    def schema_of_parity(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
        given = [name for name in keys.data if name in ("rope_scaling", "rope_parameters")]
        rope = _copy(keys, given[-1]) if given else {}
        if rope:
            rope.setdefault("rope_type", rope.get("type", "default"))
            moved = keys.data.get("rope_scaling") and keys.data.get("rope_theta")
            if base != "rope_theta" and moved:
                _fill_type_and_length(_fill_base_and_share(rope, keys, ()), keys)
            _check_unread(rope, keys, given[-1])
        if base is None:
            return schema(keys, labels, parity)
        if base in keys.data and keys.data[base] is None:
            raise make_refusal(f"{keys.path(base)} is null")
        return schema(Keys({"rope_theta": keys.data.get(base)}, keys.where), labels, parity)

    return schema_of_parity


def _check_unread(rope: dict[str, Any], keys: Keys, name: str) -> None:
    kind, found = _get_type(rope), Keys(rope, keys.path(name))
    needs = _NEEDED_KEYS.get(kind, ((), ()))[0]
    if kind in ("llama3", "proportional"):
        needs = (*needs, "rope_theta")
    _require(rope, needs, found)
    if kind in ("llama3", "yarn") and "max_position_embeddings" not in keys:
        raise make_refusal(
            f"{kind} is compared with max_position_embeddings, which this class does not have"
        )


def _copy_given(keys: Keys) -> dict[str, Any]:
    return _copy(keys, "rope_scaling") or _copy_new_schema(keys)


def _copy_new_schema(keys: Keys) -> dict[str, Any]:
    """A copy of rope_parameters, or of those of the class if a config has none."""
    absent = keys.data.get("rope_parameters") is None
    return _copy(keys, "default_rope_parameters" if absent else "rope_parameters")


def _copy(keys: Keys, name: str) -> dict[str, Any]:
    found = keys.read_object(name)
    return {} if found is None else copy.deepcopy(dict(found.data))


def _list_nested(rope: Mapping[str, Any], labels: Sequence[str]) -> list[str]:
    return [name for name in rope if name in labels]


def _get_nested(rope: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = rope.get(name)
    if value is not None and not isinstance(value, dict):
        raise make_refusal(f"rope_parameters[{quote(name)}] must be an object, not {quote(value)}")
    return value


def _fill_base_and_share(rope: dict[str, Any], keys: Keys, labels: Sequence[str]) -> dict[str, Any]:
    """Copy base and share from beside the dictionaries into those that have none."""
    base = keys.data.get("rope_theta", _get_default_base(keys))
    for inside in [_get_nested(rope, name) for name in _list_nested(rope, labels)] or [rope]:
        if inside is not None:
            inside.setdefault("rope_theta", base)
            _add_share(inside, keys.data.get(_SHARE))
    return rope


def _fill_type_and_length(rope: dict[str, Any], keys: Keys) -> None:
    """Fill in the type of a dictionary, and the trained length of types that need it."""
    rope.setdefault("rope_type", rope.get("type", "default"))
    if _get_type(rope) in WITH_ORIGINAL:
        if _ORIGINAL in keys.data:
            rope[_ORIGINAL] = keys.data[_ORIGINAL]
        else:
            rope.setdefault(_ORIGINAL, keys.data.get("max_position_embeddings"))


def _check_one_dictionary(rope: dict[str, Any], keys: Keys, labels: Sequence[str]) -> Keys:
    """Checked parameters for a module that takes one dictionary for all layers."""
    nested = _list_nested(rope, labels)
    if not nested:
        _fill_type_and_length(rope, keys)
    if "rope_type" not in rope:
        raise make_refusal(
            f"its module looks for one dictionary and finds {quote(nested[0])} in"
            f" {keys.path('rope_parameters')}"
        )
    return _check_parameters({name: v for name, v in rope.items() if name not in nested}, keys, "")


def _check_each_type(rope: dict[str, Any], keys: Keys, labels: Sequence[str]) -> Ropes:
    """Checked parameters for a module that takes a dictionary for each layer type."""
    ropes: Ropes = {}
    for name in dict.fromkeys(labels or rope):
        if name not in rope:
            raise make_refusal(
                f"{keys.path('rope_parameters')} has no {quote(name)}, and its module looks for"
                " each type of layer"
            )
        inside = _get_nested(rope, name)
        if inside is not None:
            inside.setdefault("rope_type", inside.get("type", "default"))
            if _get_type(inside) in WITH_ORIGINAL:
                inside.setdefault(_ORIGINAL, keys.data.get("max_position_embeddings"))
        ropes[name] = None if inside is None else _check_parameters(inside, keys, name)
    return ropes


def _check_parameters(rope: dict[str, Any], keys: Keys, label: str) -> Keys:
    """The parameters, after a check that the functions of transformers do not fail on them."""
    found = Keys(rope, ".".join(filter(None, (keys.path("rope_parameters"), label))))
    needs, numbers = _NEEDED_KEYS.get(_get_type(rope), ((), ()))
    _require(rope, (*needs, "rope_theta"), found)
    for name in (*numbers, "rope_theta"):
        if rope[name] is None:
            raise make_refusal(f"{found.path(name)} is null")
    return found


def _require(rope: Mapping[str, Any], needs: Sequence[str], found: Keys) -> None:
    for name in needs:
        if name not in rope:
            raise make_refusal(f"{found.path(name)} is missing")


def _add_share(rope: dict[str, Any], share: Any) -> None:
    if share is not None:
        rope.setdefault(_SHARE, share)


def _get_type(rope: Mapping[str, Any]) -> str:
    kind = rope["rope_type"]
    return kind if isinstance(kind, str) else "default"


def _get_default_base(keys: Keys, kind: str = "global") -> Any:
    usual = keys.data.get("default_theta", 10_000.0)
    return usual.get(kind) if isinstance(usual, Mapping) else usual
