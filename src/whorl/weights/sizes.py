"""How wide heads are and which of their channels rotate: what the tensors alone do not say.

Taken from the config beside the weights, through ``read_config``, and from what the caller states,
which wins. Without a config the caller must state head_dim; heads are then counted from the rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whorl._support.words import quote
from whorl.configs import ConfigError, ModelPositions, Part, load, read_config

from .layout import Head, Packing
from .tensor_names import FUSED_BY_FAMILY

__all__ = [
    "HeadSizes",
    "Stated",
    "check_stated",
    "find_family",
    "find_key_sharing",
    "find_sizes",
    "read_part",
]

_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = (
    *("num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_head_kv"),
    "multi_query_group_num",
)
#: q_proj gives each head's queries and then a gate as wide.
_GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen4_exp_text")
#: Families whose rows of q and k are not where they are in others.
_UNUSUAL = {
    "jetmoe": "queries are made by experts (self_attention.experts.input_linear), and keys and"
    " values share kv_proj.",
    "zaya": "q and k pass through convolutions over their channels (conv_qk_depthwise,"
    " conv_qk_grouped) behind their projections.",
    "bailing_hybrid": "layers of latent and of linear attention have heads of different widths"
    " under the same names.",
}
#: What a model does with positions so that moving rows of q and k would not be all.
_MORE_THAN_ROWS = (
    *("values-rotated", "output-unrotated", "one-head", "head-index-positions"),
    "before-projection",
)


@dataclass(frozen=True)
class Stated:
    """What the caller knows better than the config; None is not stated."""

    head_dim: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    rotary_dim: int | None = None
    rotary_start: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name == "rotary_start" else 1
            if value is not None and (type(value) is not int or value < least):
                raise ValueError(f"{name} must be an int >= {least}; got {quote(value)}.")


def check_stated(given: Stated | None) -> Stated:
    """What a caller passed as stated."""
    if given is not None and not isinstance(given, Stated):
        raise ValueError(
            f"stated must be a Stated, such as Stated(head_dim=64); got {quote(given)}."
        )
    return given or Stated()


@dataclass(frozen=True)
class HeadSizes:
    """One layer: a head of q and one of k, how many there are (None: not said), how fused."""

    q: Head
    k: Head
    num_heads: int | None = None
    num_kv_heads: int | None = None
    packing: Packing | None = None


def find_sizes(config: Path | None, stated: Stated) -> Callable[[int | None], HeadSizes | None]:
    """A function from the number of a layer to its sizes; None for layers that do not rotate."""
    if config is None:
        if stated.head_dim is None:
            raise ValueError(
                "there is no config.json beside the weights, and they do not say how wide a head"
                " is; pass stated=Stated(head_dim=...) (--head-dim)."
            )
        plain = _build_stated_sizes(stated, stated.head_dim, stated.head_dim, 0)
        return lambda layer: plain
    found, part = read_part(config)
    data, family = part.keys, find_family(part)
    if family in _UNUSUAL:
        raise ConfigError(f"{family} is not supported: {_UNUSUAL[family]}")
    if "kv_lora_rank" in data and "qk_rope_head_dim" in data:
        latent = _read_latent_sizes(data, family)
        return lambda layer: latent
    _check_notes(found, data)
    heads, kv_heads = _get_first(data, _HEADS), _get_first(data, _KV_HEADS)
    packing, kv_heads = _find_packing(data, family, heads, kv_heads)

    def of(layer: int | None) -> HeadSizes | None:
        size = _read_rotated_sizes(found, layer, stated)
        if size is None:
            return None
        if family in _GATED:
            size = replace(size, q=replace(size.q, rows=2 * size.q.rows))
        return replace(
            size,
            num_heads=stated.num_heads or heads,
            num_kv_heads=stated.num_kv_heads or kv_heads,
            packing=packing,
        )

    return of


def find_key_sharing(config: Path | None) -> Callable[[int | None], bool]:
    """Whether a layer has no keys of its own and uses those of another: the last ones of Gemma."""
    data = {} if config is None else read_part(config)[1].keys
    shared = _get_first(data, ("num_kv_shared_layers",)) or 0
    first = (_get_first(data, ("num_hidden_layers",)) or 0) - shared
    return lambda layer: bool(shared) and layer is not None and layer >= first > 0


def _read_rotated_sizes(
    found: ModelPositions, layer: int | None, stated: Stated
) -> HeadSizes | None:
    inside = any(layer in group.layers for group in found.groups)
    rotation = found.group(layer=layer if inside else None).rotation
    if rotation is None:
        return None
    if rotation.encoding not in ("rope", "mrope"):
        raise ConfigError(
            f"{found.model_type}: {rotation.encoding} pairs channels within each axis, which"
            " neither of the two layouts describes."
        )
    options = rotation.options
    head_dim = options["head_dim"]
    start = options.get("rotary_start", 0)
    return _build_stated_sizes(
        stated, head_dim, options.get("rotary_dim") or head_dim - start, start
    )


def _build_stated_sizes(stated: Stated, head_dim: int, width: int, start: int) -> HeadSizes:
    rows = stated.head_dim or head_dim
    start = start if stated.rotary_start is None else stated.rotary_start
    if stated.rotary_dim is not None:
        width = stated.rotary_dim
    elif stated.head_dim is not None or stated.rotary_start is not None:
        width = rows - start
    if width % 2 or width < 2 or start + width > rows:
        raise ValueError(
            f"rotated channels must be pairs within a head of {rows} channels; got rotary_dim"
            f" {width} from rotary_start {start}."
        )
    return HeadSizes(
        Head("q", rows, start, width),
        Head("k", rows, start, width),
        stated.num_heads,
        stated.num_kv_heads,
    )


def _read_latent_sizes(data: Mapping[str, Any], family: str) -> HeadSizes:
    """Multi-head latent attention: rotated channels come last, and k has them once for all heads.

    DeepSeek-AI 2024, DeepSeek-V2, section 2.1, https://arxiv.org/abs/2405.04434.
    """
    names = ("qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank")
    sizes = [_get_first(data, (name,)) for name in names]
    unrotated, rotated, rank = sizes
    if unrotated is None or rotated is None or rank is None or rotated % 2:
        raise ConfigError(
            f"config: {', '.join(names)} must be positive ints, the second even; got"
            f" {quote(sizes)}."
        )
    # A-X K2 has a gate for the values behind each head of q.
    gate = _get_first(data, ("v_head_dim",)) if family == "axk2" else None
    return HeadSizes(
        Head("q", unrotated + rotated + (gate or 0), unrotated, rotated),
        Head("k", rank + rotated, rank, rotated),
        _get_first(data, _HEADS),
        1,
    )


def _find_packing(
    data: Mapping[str, Any], family: str, heads: int | None, kv_heads: int | None
) -> tuple[Packing | None, int | None]:
    if family in ("falcon", "RefinedWeb", "RefinedWebModel"):
        if data.get("new_decoder_architecture"):
            return "grouped", kv_heads
        return ("concatenated", 1) if data.get("multi_query", True) else ("grouped", heads)
    return FUSED_BY_FAMILY.get(family), kv_heads


def _check_notes(found: ModelPositions, data: Mapping[str, Any]) -> None:
    for note in (*found.notes, *(note for group in found.groups for note in group.notes)):
        asked = note.id == "values-rotated-optional" and data.get("rotary_value")
        if note.id in _MORE_THAN_ROWS or asked:
            raise ConfigError(
                f"{found.model_type} cannot be converted by moving rows of q and k: {note.text}"
            )


def read_part(config: Any) -> tuple[ModelPositions, Part]:
    """A config, and the part of it that describes the text model."""
    document = load(config)
    found = read_config(document)
    return found, found.part or Part("", found.model_type, document.data)


def find_family(part: Part) -> str:
    """The model type that a config names, or else the one that it has in the whole."""
    return str(part.keys.get("model_type") or part.model_type)


def _get_first(data: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = data.get(name)
        if type(value) is int and 0 < value < 2**24:
            return value
    return None
