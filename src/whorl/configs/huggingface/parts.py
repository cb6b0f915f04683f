"""Configs inside configs: text, vision, audio, encoder and decoder parts."""

from collections.abc import Mapping
from typing import Any

from whorl.configs._values import Keys
from whorl.configs.model import ModelPositions

__all__ = ["TEXT_PARTS", "find_parts", "find_text_part"]

#: Keys of parts that stand for the whole model, best first; else the first part that rotates.
TEXT_PARTS = (
    *("text_config", "language_config", "llm_config", "thinker_config"),
    *("decoder_config", "decoder"),
)
_NOT_PARTS = frozenset(("quantization_config", "generation_config", "compression_config"))
_OWN = ("hidden_size", "num_attention_heads", "num_hidden_layers", "rope_theta", "rope_scaling")


def find_parts(
    keys: Keys, entry: Mapping[str, Any]
) -> dict[str, tuple[Mapping[str, Any], str | None]]:
    """The keys of each part, and the model type of parts that do not name theirs."""
    known: Mapping[str, str] = entry.get("parts", {})
    parts: dict[str, tuple[Mapping[str, Any], str | None]] = {}
    for name, kind in known.items():
        inside = keys.read_object(name)
        if inside is not None:
            own = dict(inside.data)
            if own.get("model_type") == keys.data.get("model_type"):
                own.pop(
                    "model_type", None
                )  # the vision part of Qwen2.5-VL has the type of the whole
            parts[name] = own, kind
        elif name in TEXT_PARTS and any(key in keys for key in _OWN) and "keys" not in entry:
            # Older configs have the keys of the text at the top, beside the other parts.
            apart = ("model_type", *known)
            parts[name] = {k: v for k, v in keys.data.items() if k not in apart}, kind
        elif name not in keys.data or name in TEXT_PARTS:
            parts[name] = entry.get("absent", {}).get(name, {}), kind
    for name, value in keys.data.items():
        if name not in parts and _is_part(name, value):
            parts[name] = value, None
    return parts


def find_text_part(
    parts: Mapping[str, ModelPositions], keys: Keys, entry: Mapping[str, Any]
) -> str | None:
    """The key of the part that stands for the model; None if its own keys do."""
    if not parts or "keys" in entry:
        return None
    if not entry and any(key in keys for key in _OWN):
        return None
    rotating = [name for name, part in parts.items() if part.groups]
    for name in TEXT_PARTS:
        if name in rotating:
            return name
    return rotating[0] if rotating else None


def _is_part(name: object, value: object) -> bool:
    if not isinstance(name, str) or not isinstance(value, Mapping) or name in _NOT_PARTS:
        return False
    named = name.endswith("_config") or name in ("encoder", "decoder")
    return named and ("model_type" in value or "hidden_size" in value)
