"""Write rope parameters into a config, in the dialect of transformers 4 or 5.

    transformers 5   rope_parameters {"rope_type", "rope_theta", ...}, or one for each layer type
    transformers 4   the base beside rope_scaling {"rope_type", "factor", ...}; some families have
                     names of their own for the base, or a second base for their sliding layers

transformers 5 reads both. Version 4 does not read rope_parameters: a model with its values only
there rotates by the default base of its class, 10,000 for most, without scaling.
"""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from whorl._support.words import shorten

from . import defaults
from .families import FAMILIES, PLAIN
from .schema import FULL, SLIDING

__all__ = [
    "DIALECTS",
    "Dialect",
    "explain_loss",
    "find_dialect",
    "list_losses",
    "read_major_version",
    "write_config",
    "write_dialect_lines",
]

Dialect = Literal["transformers 4", "transformers 5"]
DIALECTS: tuple[Dialect, Dialect] = ("transformers 4", "transformers 5")

_OLD, _NEW = "rope_scaling", "rope_parameters"
_VERSION, _FIRST_OF_5 = "transformers_version", "5.0.0"
_BESIDE = ("rope_theta", "partial_rotary_factor")
_TYPES_OF_4 = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
_READS_5_ONLY = ("cohere2_moe",)  # the class does not read rope_scaling
#: Keys of the bases of full and sliding layers in version 4, and the layers that it scales.
_TWO_BASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("gemma3_text", "gemma3n_text"), ("rope_theta", "rope_local_base_freq", (FULL,))
    ),
    **dict.fromkeys(
        ("modernbert", "modernbert-decoder"), ("global_rope_theta", "local_rope_theta", ())
    ),
}
_ROTARY = (
    _OLD,
    _NEW,
    "rope_theta",
    "rotary_emb_base",
    *(k for v in _TWO_BASES.values() for k in v[:2]),
)


def find_dialect(data: Mapping[str, Any], keys: Mapping[str, Any]) -> Dialect:
    """The dialect of a config: by its transformers_version, else by its rotary keys.

    keys: those of the part of ``data`` that the model is read from. A config with neither counts as
    version 4, because version 5 reads that too.
    """
    version = read_major_version(keys, data)
    if 0 < version < 5:
        return "transformers 4"
    old = any(keys.get(name) for name in _ROTARY if name != _NEW)
    new = bool(keys.get(_NEW)) and not keys.get(_OLD)
    return "transformers 5" if new or (version and not old) else "transformers 4"


def write_dialect_lines(
    keys: Mapping[str, Any], model_type: str | None, parameters: Mapping[str, Any], dialect: Dialect
) -> dict[str, Any] | None:
    """Keys to set in a config so that it has these rope parameters; None for keys to remove.

    keys: the config, or the part of it that the lines are for.
    parameters: in the schema of transformers 5, one dictionary or one for each layer type.
    The result is None if the dialect, or the family in that dialect, cannot express them.
    """
    four = _write_lines_of_4(keys, model_type, parameters)
    if dialect == "transformers 4":
        return four
    # Keys of the other schema would come before the new ones, or contradict them.
    beside = {} if four is None else {k: v for k, v in four.items() if k not in (_OLD, _NEW)}
    beside = {k: v for k, v in beside.items() if keys.get(k) is not None and keys[k] != v}
    void: dict[str, Any] = {_OLD: None} if keys.get(_OLD) else {}
    void |= {_VERSION: _FIRST_OF_5} if _is_of_4(keys) else {}
    return {**beside, **void, _NEW: copy.deepcopy(dict(parameters))}


def write_config(
    data: Mapping[str, Any], path: Sequence[str], lines: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole config with ``lines`` in the part at ``path``, without keys of the other dialect.

    lines: from ``write_dialect_lines``, and other keys to set. A transformers_version of the other
    dialect is changed too, because software and ``whorl doctor`` go by it.
    """
    written = copy.deepcopy(dict(data))
    five = lines.get(_NEW) is not None
    part = written
    _correct_version(part, five=five)
    for name in path:
        for key in _ROTARY:
            part.pop(key, None)
        part = part[name]
        _correct_version(part, five=five)
    remove = [key for key in _ROTARY if key != _NEW] if five else [_NEW]
    for key in remove:
        part.pop(key, None)
    for key, value in lines.items():
        if key not in remove and (value is not None or key in part):
            part[key] = copy.deepcopy(value)
    return written


def _correct_version(part: dict[str, Any], *, five: bool) -> None:
    """Set the first version of dialect 5, or remove it for dialect 4, which both versions read."""
    if part.get(_VERSION) and _is_of_4(part) == five:
        del part[_VERSION]
        part |= {_VERSION: _FIRST_OF_5} if five else {}


def read_major_version(*configs: Mapping[str, Any]) -> int:
    """The first number of transformers_version, of the first config that has one; else 0.

    The version may be a number, or a text such as "4.51.0", "4" or "v4.51.0".
    """
    for config in configs:
        if found := re.match(r"\s*v?([0-9]{1,4})(?![0-9])", str(config.get(_VERSION))[:20]):
            return int(found[1])
    return 0


def _is_of_4(keys: Mapping[str, Any]) -> bool:
    return 0 < read_major_version(keys) < 5


def list_losses(ropes: Iterable[Mapping[str, Any] | None], model_type: str | None = None) -> str:
    """Values that transformers 4 ignores if they are only in rope_parameters; "" for none.

    A base of 10,000 is not lost, unless the class of ``model_type`` has another default.
    """
    found: list[str] = []
    usual = (defaults.get_entry(model_type) or {}).get("keys", {}).get("default_theta", 10_000)
    for rope in ropes:
        base, kind = (rope or {}).get("rope_theta"), (rope or {}).get("rope_type", "default")
        found += (
            [f"rope_theta {base:.12g}"]
            if isinstance(base, (int, float)) and not base == usual == 10_000
            else []
        )
        found += [f"the {shorten(str(kind))} scaling"] if kind not in ("default", "axial") else []
    return " and ".join(dict.fromkeys(found))


def explain_loss(ropes: Iterable[Mapping[str, Any] | None], model_type: str | None = None) -> str:
    """A warning about what transformers 4 ignores in a config of version 5."""
    lost = list_losses(ropes, model_type) or "what it says"
    return (
        "this config is written for transformers 4, whose keys cannot express this. transformers 4"
        f" does not read rope_parameters and loses {lost}: load the model with transformers 5."
    )


def _is_flat(parameters: Mapping[str, Any]) -> bool:
    return not parameters or not all(
        isinstance(v, (Mapping, type(None))) for v in parameters.values()
    )


def _write_lines_of_4(
    keys: Mapping[str, Any], model_type: str | None, parameters: Mapping[str, Any]
) -> dict[str, Any] | None:
    if model_type in _READS_5_ONLY:
        return None
    if _is_flat(parameters):
        family = FAMILIES.get(model_type or "", PLAIN)
        base, share = family.base or "rope_theta", (family.share or _BESIDE[1:])[0]
        if "." in base or "rope_theta" not in parameters:
            return None
        rope, beside = parameters, {base: parameters["rope_theta"]}
        beside |= {share: rope[_BESIDE[1]]} if _BESIDE[1] in rope else {}
    else:
        found = _split_two_bases(model_type, parameters)
        if found is None:
            return None
        beside, rope = found
    scaling = {name: value for name, value in rope.items() if name not in _BESIDE}
    if scaling.get("rope_type") not in _TYPES_OF_4:
        return None
    given = keys.get(_OLD)
    if isinstance(given, Mapping) and "type" in given:  # the model's own code may read this name
        scaling["type"] = scaling["rope_type"]
    # With null, the default parameters of the class would apply.
    class_keys = (defaults.get_entry(model_type) or {}).get("keys", {})
    plain = scaling.get("rope_type") == "default" and set(scaling) <= {"rope_type", "type"}
    no_scaling = plain and "default_rope_parameters" not in class_keys and not keys.get(_NEW)
    void = {_NEW: None} if keys.get(_NEW) else {}
    return {**beside, _OLD: None if no_scaling else copy.deepcopy(scaling), **void}


def _split_two_bases(
    model_type: str | None, parameters: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, Any]] | None:
    """The two bases by their keys, and the parameters of the scaled layers."""
    names = _TWO_BASES.get(model_type or "")
    ropes: list[Any] = [parameters.get(FULL), parameters.get(SLIDING)]
    if names is None or not all(isinstance(r, Mapping) and "rope_theta" in r for r in ropes):
        return None
    full, sliding, scaled = names
    for label, rope in zip((FULL, SLIDING), ropes, strict=True):
        if rope.get("rope_type") != "default" and label not in scaled:
            return None
    return {full: ropes[0]["rope_theta"], sliding: ropes[1]["rope_theta"]}, ropes[0]
