"""What defaults.json holds, made from the installed transformers."""

import copy
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig

import whorl
from whorl.configs.huggingface import nd
from whorl.configs.huggingface.defaults import KEYS

from .census import ROTARY, without_timm

__all__ = ["PATH", "document", "write"]

#: Codecs whose encoder and decoder are in the census and share one config.
_WHOLE = ("mimi", "pocket_tts_audio_tokenizer")
PATH = Path(whorl.__file__).parent / "configs" / "huggingface" / "defaults.json"


def document() -> dict[str, Any]:
    """All of it."""
    classes: dict[str, Any] = {}
    with without_timm():
        for name in CONFIG_MAPPING:
            classes[name] = CONFIG_MAPPING[name]
    for name, rotary in ROTARY.items():
        classes.setdefault(name, rotary.config_class)
    parts = {}
    for name, cls in sorted(classes.items()):
        parts[name] = dict(_parts(cls))
        for inside in list(_inside(cls)):
            classes.setdefault(_name(inside), type(inside))
    rotating = {*ROTARY, *_WHOLE, *nd.FAMILIES, *nd.MROPE}
    types: dict[str, Any] = {}
    for name, cls in sorted(classes.items()):
        own = parts.get(name) or dict(_parts(cls))
        entry: dict[str, Any] = {}
        if name in rotating:
            entry["keys"] = _keys(cls)
            entry["names"] = _names(cls.attribute_map)
        if own and (name in rotating or _rotates(own, parts, rotating)):
            entry["parts"] = own
            entry["absent"] = dict(_absent(cls))
        if entry:
            types[name] = {
                kind: values for kind, values in entry.items() if values or kind == "keys"
            }
    others: dict[str, str] = {}
    for name, cls in sorted(classes.items()):
        if cls.model_type != name and cls.model_type in types:
            others[name] = cls.model_type
    types = {name: entry for name, entry in types.items() if name not in others}
    return {
        "what": "what the config classes of transformers know and a config.json may leave out",
        "command": "scripts/transformers-defaults",
        "transformers": transformers.__version__,
        "types": types,
        "other_names": others,
        "without_rotation": sorted({*classes} - {*types} - {*others}),
    }


def write() -> None:
    """Write the file: one line for each model type."""
    made = document()
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in made["types"].items()]
    rest = ("types", "without_rotation")
    text = json.dumps({name: made[name] for name in made if name not in rest}, indent=1)[:-2]
    text += f',\n "without_rotation": {json.dumps(made["without_rotation"])}'
    PATH.write_text(text + ',\n "types": {\n' + ",\n".join(lines) + "\n }\n}\n")


def _rotates(own: Mapping[str, str], parts: Mapping[str, Any], rotating: set[str]) -> bool:
    return any(
        kind in rotating or _rotates(parts.get(kind, {}), parts, rotating) for kind in own.values()
    )


def _inside(cls: Any) -> Iterator[Any]:
    try:
        config = cls()
    except Exception:  # some classes cannot be made without arguments or missing packages
        return
    for value in vars(config).values():
        if isinstance(value, PretrainedConfig):
            yield value
            yield from _inside(type(value))


def _parts(cls: Any) -> Iterator[tuple[str, str]]:
    try:
        config = cls()
    except Exception:
        return
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            yield name, _name(value)


def _absent(cls: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """What parts that a config leaves out have in place of their own defaults."""
    config = cls()
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            usual = type(value)().to_dict()
            wanted = (*KEYS, "rope_parameters")
            told = {k: v for k, v in value.to_dict().items() if k in wanted and usual.get(k) != v}
            if told:
                width = value.to_dict().get("head_dim")
                yield name, told if width is None else {**told, "head_dim": width}


def _name(config: Any) -> str:
    return config.model_type or type(config).__name__


def _names(attribute_map: Mapping[str, str]) -> dict[str, str]:
    """Its own names for the usual keys."""
    own = {usual: name for usual, name in attribute_map.items() if usual in KEYS}
    for name, usual in attribute_map.items():
        if usual in KEYS and name not in KEYS:
            own.setdefault(usual, name)
    return own


def _keys(cls: Any) -> dict[str, Any]:
    """Class defaults, and the rope parameters that a config without any gets."""
    aliases = {alias: name for name, alias in cls.attribute_map.items()}
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name = field.name if field.name in KEYS else aliases.get(field.name, field.name)
        default = field.default
        if default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if name in KEYS and default is not dataclasses.MISSING and default is not None:
            found[name] = default
    for name in KEYS:
        if name not in found and name not in {f.name for f in dataclasses.fields(cls)}:
            value = vars(cls).get(name)
            if isinstance(value, (int, float, str, bool)):
                found[name] = value
    theta = getattr(cls, "default_theta", 10_000.0)
    if theta != 10_000.0:
        found["default_theta"] = theta
    rope, beside = _filled_in(cls)
    if rope and "rope_theta" in found:  # a field, which a config may set
        rope.pop("rope_theta", None)
    if rope:
        found["default_rope_parameters"] = rope
    for name in ("rope_theta", "partial_rotary_factor"):
        if beside.get(name) is not None:
            found[name] = beside[name]
    return dict(sorted(found.items()))


def _filled_in(cls: Any) -> tuple[Any, dict[str, Any]]:
    """Rope parameters that a class sets itself, and what it adds to the keys of a config."""
    seen: list[tuple[Any, dict[str, Any]]] = []

    class Watched(cls):  # type: ignore[misc]
        def convert_rope_params_to_dict(self, **kwargs: Any) -> Any:
            seen.append((copy.deepcopy(self.rope_parameters), dict(kwargs)))
            return super().convert_rope_params_to_dict(**kwargs)

    Watched()
    return seen[0] if seen else (None, {})


if __name__ == "__main__":
    write()
