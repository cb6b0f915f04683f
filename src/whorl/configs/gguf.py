"""GGUF files of llama.cpp: how a model rotates, from its metadata and its small tensors.

    {arch}.rope.freq_base, .rope.dimension_count, .rope.scaling.*, .attention.key_length ...
    rope_freqs.weight            divides each frequency: Llama 3.1, Gemma 4
    rope_factors_{short,long}    the two lists of factors of LongRoPE

The layout depends on the architecture (``_gguf_layers``), not on the file. For missing keys the
defaults of llama.cpp hold: base 10000, scaling "linear" by 1. ``_gguf_scaling`` reads scalings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whorl._support.words import quote
from whorl.scaling import Ladder, Llama3

from ._gguf_layers import (
    HALVED,
    LATENT,
    PERMUTED,
    GGUFLayers,
    RopeStyle,
    SlidingRule,
    get_rope_style,
    group_layers,
)
from ._gguf_scaling import ORIGINAL, GGUFScaling, read_scaling
from ._notes import get_note
from ._rope_parameters import write_parameters
from ._values import MOST_CHANNELS, Keys, check_rotation
from .model import ConfigError, LayerGroup, ModelPositions, Note, Parity, Rotation
from .source import Document

__all__ = ["read"]

_LONGEST_NAME = 100
_NO_KEY_LENGTH = "attention.key_length, which also gives the width of a head, is missing too"

_PERMUTED = Note(
    "permuted-storage",
    "The rows of q and k are stored permuted: pairs that are half a head apart at Hugging Face are"
    " neighbours here. Undo the permutation before comparing weights.",
)


@dataclass(frozen=True)
class _GGUFModel:
    """A GGUF file; ``keys`` are without the architecture, which is ``keys.where``."""

    keys: Keys
    style: RopeStyle
    sections: tuple[int, ...]
    tensors: Mapping[str, tuple[float, ...]]


def read(document: Document, parity: Parity | None = None) -> ModelPositions:
    """What llama.cpp does with positions for this file."""
    keys = _select_keys(document.data)
    sections = _read_sections(keys)
    how = get_rope_style(keys.where, sections=bool(sections))
    notes: list[Note] = []
    if how is None:
        how = "mrope" if sections else "neox"
        notes.append(Note("unknown-family", f"{quote(keys.where)} is not known; read as {how}."))
    if keys.where == "baichuan" and keys.read_int("block_count") == 40:
        how = "none"  # the 13B model has ALiBi
    groups: tuple[LayerGroup, ...] = ()
    if how == "none":
        notes.append(get_note("no-rotary"))
    else:
        model = _GGUFModel(keys, how, sections, document.tensors)
        groups = tuple(_build_group(model, layers) for layers in group_layers(keys))
        if keys.where in PERMUTED:
            notes.append(_PERMUTED)
    context = keys.read_int("context_length")
    trained = keys.read_int(ORIGINAL) or _infer_trained_length(groups) or context
    return ModelPositions("gguf", keys.where, context, trained, groups, tuple(notes), parity=parity)


def _infer_trained_length(groups: tuple[LayerGroup, ...]) -> int | None:
    """The trained length in the scaling of Llama 3, if a group has that scaling."""
    scalings = [g.rotation.options.get("scaling") for g in groups if g.rotation is not None]
    return next((each.original_context for each in scalings if isinstance(each, Llama3)), None)


def _select_keys(data: Mapping[str, Any]) -> Keys:
    name = data.get("general.architecture")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        if data.get("split.no"):
            raise ConfigError(
                "this GGUF file is a later part of a split model; pass the first part, which has"
                " the metadata."
            )
        raise ConfigError(f"general.architecture must name an architecture; got {quote(name)}.")
    own = {key[len(name) + 1 :]: v for key, v in data.items() if key.startswith(name + ".")}
    return Keys(own, name)


def _read_sections(keys: Keys) -> tuple[int, ...]:
    """Number of pairs of each axis, without zeros at the end."""
    name = "rope.dimension_sections"
    found = keys.read_list(name, int, "numbers of pairs") or ()
    if len(found) > 4 or not all(type(n) is int and 0 <= n <= MOST_CHANNELS for n in found):
        raise keys.wrong_value(name, "at most 4 numbers of pairs")
    while found and found[-1] == 0:
        found = found[:-1]
    return found


def _build_group(model: _GGUFModel, kind: GGUFLayers) -> LayerGroup:
    if not kind.rotated:
        why = (get_note("nope-layers" if kind.attends else "no-attention"),)
        scale = kind.query_scale if kind.attends else None
        return LayerGroup(kind.name, kind.layers, None, scale, window=kind.window, notes=why)
    keys, encoding = model.keys, "rope"
    options, ladder = _read_options(model, kind.sliding)
    change = GGUFScaling()
    if kind.sliding is None or kind.sliding.scaled:
        try:
            change = read_scaling(keys, ladder, keys.read_int("context_length"), model.tensors)
        except ConfigError:
            raise
        except (ValueError, ArithmeticError) as error:  # raised by the scaling
            raise ConfigError(f"{keys.where}: {error}") from None
    if change.scaling is not None:
        options["scaling"] = change.scaling
    if model.style in ("mrope", "imrope") and len(model.sections) > 1:
        encoding = "mrope"
        options["sections"] = model.sections
        options["order"] = "chunked" if model.style == "mrope" else "interleaved"
    return LayerGroup(
        kind.name,
        kind.layers,
        check_rotation(Rotation(encoding, options)),
        kind.query_scale,
        change.softmax_scale,
        kind.window,
        (*change.notes, *map(get_note, _list_notes(keys, kind))),
        write_parameters(options),
    )


def _list_notes(keys: Keys, kind: GGUFLayers) -> list[str]:
    chunked = keys.where == "llama4" and kind.window is not None
    return [*(["mla"] if _is_mla(keys) else []), *(["chunked-attention"] if chunked else [])]


def _read_options(model: _GGUFModel, sliding: SlidingRule | None) -> tuple[dict[str, Any], Ladder]:
    """Options of the rotation (base, widths, layout), and its frequencies before scaling."""
    keys = model.keys
    base = keys.read_number("rope.freq_base", above=0.0) or 10_000.0
    if sliding is not None:
        base = keys.read_number("rope.freq_base_swa", above=0.0) or sliding.base or base
    head_dim, width = _read_widths(keys, sliding is not None)
    options: dict[str, Any] = {
        "head_dim": head_dim,
        "base": base,
        "layout": "interleaved" if model.style == "norm" else "half",
    }
    if width != head_dim:
        options["rotary_dim"] = width
    return options, Ladder.of(width, base)


def _read_widths(keys: Keys, sliding: bool) -> tuple[int, int]:
    """Channels of a head, and how many rotate; in latent attention only the rotary part counts."""
    width = keys.read_int("rope.dimension_count", most=MOST_CHANNELS)
    head_dim = keys.read_int("attention.key_length", most=MOST_CHANNELS)
    if sliding:
        width = keys.read_int("rope.dimension_count_swa", most=MOST_CHANNELS) or width
        head_dim = keys.read_int("attention.key_length_swa", most=MOST_CHANNELS) or head_dim
    if _is_mla(keys) and width is not None:
        return width, width
    if head_dim is None:
        heads = _count_heads(keys)
        channels = keys.read_int("embedding_length", least=heads, most=heads * MOST_CHANNELS)
        head_dim = keys.require("embedding_length", channels, _NO_KEY_LENGTH) // heads
    width = width or head_dim
    return head_dim, width // 2 if keys.where in HALVED and not sliding else width


def _count_heads(keys: Keys) -> int:
    name = "attention.head_count"
    value = keys.data.get(name)
    if isinstance(value, (list, tuple)):  # one for each layer; 0 for layers without attention
        value = next((n for n in value if n), None)
    value = keys.require(name, value, _NO_KEY_LENGTH)
    if type(value) is not int or not 1 <= value <= MOST_CHANNELS:
        raise keys.wrong_value(name, f"a number of heads up to {MOST_CHANNELS}")
    return value


def _is_mla(keys: Keys) -> bool:
    return "attention.kv_lora_rank" in keys or keys.where in LATENT
