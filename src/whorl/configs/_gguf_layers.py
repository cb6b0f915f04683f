"""Which layers of a GGUF model have a sliding window, which rotate, and which are recurrent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whorl._support.words import quote

from ._gguf_families import SLIDING, SlidingRule
from ._values import MOST_LAYERS, Keys
from .model import ConfigError, QueryScale

__all__ = ["GGUFLayers", "group_layers"]

_PATTERN = "attention.sliding_window_pattern"
_CHUNK = 8192  # Llama 4 in llama.cpp, independent of the file
_STEP = 4  # n_no_rope_layer_step of llama.cpp, a constant


@dataclass(frozen=True)
class GGUFLayers:
    """Layers that treat positions alike."""

    name: str | None
    layers: tuple[int, ...]
    rotated: bool = True
    attends: bool = True  # False for recurrent layers
    sliding: SlidingRule | None = None  # None for layers with full attention
    window: int | None = None
    query_scale: QueryScale | None = None


def group_layers(keys: Keys) -> tuple[GGUFLayers, ...]:
    """Groups of layers that treat positions alike, in the order of their first layers."""
    count = keys.read_int("block_count", most=MOST_LAYERS)
    family = _choose_rule(keys, count)
    window = keys.read_int("attention.sliding_window", least=0) or None
    if keys.where == "llama4":
        window = _CHUNK
    slides, attends = _make_sliding_test(keys, family, count), _make_attention_test(keys)
    scale = _read_query_scale(keys)
    found: dict[tuple[str, bool], list[int]] = {}
    for layer in range(1 if count is None else count):
        sliding = slides(layer)
        label = "sliding_attention" if sliding else "full_attention"
        if not attends(layer):
            label = "linear_attention"
        rotated = label != "linear_attention" and _is_rotated(family, layer, sliding)
        found.setdefault((label, rotated), []).append(layer)
    return tuple(
        GGUFLayers(
            _name_layers(keys, label) if len(found) > 1 else None,
            () if count is None else tuple(layers),
            rotated,
            label != "linear_attention",
            family if label == "sliding_attention" else None,
            window if label == "sliding_attention" else None,
            scale if keys.where != "llama4" or not rotated else None,
        )
        for (label, rotated), layers in found.items()
    )


def _name_layers(keys: Keys, label: str) -> str:
    """The layer type by its name in transformers; Llama 4 attends within chunks."""
    chunked = keys.where == "llama4" and label == "sliding_attention"
    return "chunked_attention" if chunked else label


def _choose_rule(keys: Keys, count: int | None) -> SlidingRule | None:
    family = SLIDING.get(keys.where)
    window = keys.read_int("attention.sliding_window", least=0)
    if keys.where == "smollm3":
        return family
    if keys.where == "exaone4" and count != 64:  # only the 32B model has sliding windows
        return None
    if keys.where == "llama4":
        return None if window == 0 else family
    return family if window else None


def _make_sliding_test(
    keys: Keys, family: SlidingRule | None, count: int | None
) -> Callable[[int], bool]:
    given = keys.data.get(_PATTERN)
    if family is None or (given is None and family.period is None):
        return lambda layer: False
    if isinstance(given, (list, tuple)):
        flags = list(given)
        if len(flags) < (count or 0) or not all(flag in (0, 1) for flag in flags):
            raise keys.wrong_value(_PATTERN, "a period, or 0 or 1 for each layer")
        return lambda layer: bool(flags[layer]) if layer < len(flags) else False
    period = (
        keys.read_int(_PATTERN, least=0, most=MOST_LAYERS) if given is not None else family.period
    )
    if not period:
        return lambda layer: True
    full = 0 if family.full_first else period - 1
    return lambda layer: layer % period != full


def _is_rotated(family: SlidingRule | None, layer: int, sliding: bool) -> bool:
    if family is None or family.unrotated is None:
        return True
    if family.unrotated == "full":
        return sliding
    return layer % _STEP != (_STEP - 1 if family.unrotated == "last" else 0)


def _make_attention_test(keys: Keys) -> Callable[[int], bool]:
    """Function that says whether a layer has attention; layers without KV heads are recurrent."""
    heads: Any = keys.data.get("attention.head_count_kv")
    if isinstance(heads, (list, tuple)):
        if not all(type(n) is int and n >= 0 for n in heads):
            raise keys.wrong_value("attention.head_count_kv", "a count of heads for each layer")
        return lambda layer: layer >= len(heads) or heads[layer] > 0
    interval = keys.read_int("full_attention_interval", most=MOST_LAYERS)
    if interval is None:
        return lambda layer: True
    return lambda layer: (layer + 1) % interval == 0


def _read_query_scale(keys: Keys) -> QueryScale | None:
    if keys.where == "llama4":
        return QueryScale("log", beta=0.1, length=8192.0, shift=1)
    beta = keys.read_number("attention.temperature_scale")
    if not beta:
        return None
    length = keys.read_int("attention.temperature_length") or keys.read_int(
        "rope.scaling.original_context_length"
    )
    if length is None:
        raise ConfigError(
            f"{keys.path('attention.temperature_scale')} {quote(beta)} needs a length:"
            " attention.temperature_length or rope.scaling.original_context_length."
        )
    return QueryScale("log", beta=beta, length=float(length))
