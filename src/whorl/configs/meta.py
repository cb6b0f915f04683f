"""params.json of Meta's Llama releases: interleaved layout, Llama 3's scaling on or off.

    dim, n_layers, n_heads, head_dim       head_dim, or else dim / n_heads, is the width of a head
    rope_theta                             10000 if it is missing (Llama 1 and 2)
    use_scaled_rope                        Llama3(factor=8, original_context=8192, 1, 4)
    rope_scaling_factor, rope_high_freq_factor     of Llama 4 Scout: 16 and 1 if missing
    nope_layer_interval, attn_temperature_tuning, floor_scale, attn_scale     Llama 4's NoPE layers

Source: meta-llama/llama-models, models/llama3/model.py (apply_scaling) and models/llama4/args.py
and model.py. The factor 8 is a constant of that code, so the file does not say which factor its
model was trained with; configs at Hugging Face have 32 for Llama 3.2.
"""

from typing import Any

from whorl.scaling import Llama3

from ._notes import get_note
from ._rope_parameters import write_parameters
from ._values import MOST_CHANNELS, MOST_LAYERS, Keys, check_rotation
from .model import ConfigError, LayerGroup, ModelPositions, Note, Parity, QueryScale, Rotation
from .source import Document

__all__ = ["read", "read_head_dim"]

_ASSUMED = Note(
    "factor-assumed",
    "use_scaled_rope gives no factor, so 8 is assumed, the constant in Meta's code for Llama 3.1;"
    " configs of Llama 3.2 at Hugging Face have 32.",
)


def read(document: Document, parity: Parity | None = None) -> ModelPositions:
    """What Meta's code does with positions for this params.json."""
    keys = Keys(document.data)
    count = keys.read_int("n_layers", most=MOST_LAYERS)
    every = keys.read_int("nope_layer_interval", most=MOST_LAYERS)
    rotated = [every is None or (layer + 1) % every != 0 for layer in range(count or 0)]
    rotating = tuple(layer for layer, yes in enumerate(rotated) if yes)
    plain = tuple(layer for layer, yes in enumerate(rotated) if not yes)
    options: dict[str, Any] = {
        "head_dim": read_head_dim(keys),
        "base": keys.read_number("rope_theta", above=0.0) or 10_000.0,
        "layout": "interleaved",
    }
    notes = []
    if keys.read_flag("use_scaled_rope"):
        options["scaling"], assumed = _read_scaling(keys)
        notes += [_ASSUMED] if assumed else []
    if keys.read_flag("use_qk_norm"):
        notes.append(get_note("qk-norm-after"))
    chunk = keys.read_int("attention_chunk_size")
    if chunk is not None:
        notes.append(get_note("chunked-attention"))
    name, rest = ("chunked_attention", "full_attention") if every else (None, None)
    rotation = check_rotation(Rotation("rope", options))
    known = write_parameters(options)
    own = LayerGroup(name, rotating, rotation, window=chunk, notes=tuple(notes), parameters=known)
    groups = [own]
    if plain:
        why = (get_note("nope-layers"),)
        groups.append(LayerGroup(rest, plain, None, _read_query_scale(keys), notes=why))
    context = keys.read_int("max_seq_len")
    trained = 8192 if "scaling" in options else context
    family = "llama4" if every or "moe_args" in keys else "llama"
    return ModelPositions("meta", family, context, trained, tuple(groups), parity=parity)


def read_head_dim(keys: Keys) -> int:
    """Channels of a head, by the keys that Meta and Mistral both use."""
    head_dim = keys.read_int("head_dim", most=MOST_CHANNELS)
    if head_dim is not None:
        return head_dim
    why = "head_dim, which also gives the width of a head, is missing too"
    heads = keys.require("n_heads", keys.read_int("n_heads", most=MOST_CHANNELS), why)
    channels = keys.read_int("dim", least=heads, most=heads * MOST_CHANNELS)
    return keys.require("dim", channels, why) // heads


def _read_scaling(keys: Keys) -> tuple[Llama3, bool]:
    """The scaling, and whether its factor is the constant in Meta's code."""
    scout = "nope_layer_interval" in keys or "moe_args" in keys
    given = keys.read_number("rope_scaling_factor", above=0.0) or keys.read_number(
        "rope_scale_factor"
    )
    high = keys.read_number("rope_high_freq_factor", above=0.0) or (1.0 if scout else 4.0)
    try:
        rule = Llama3(given or (16.0 if scout else 8.0), 8192, 1.0, high)
    except ValueError as error:
        raise ConfigError(f"{error}") from None
    return rule, given is None and not scout


def _read_query_scale(keys: Keys) -> QueryScale | None:
    if not keys.read_flag("attn_temperature_tuning"):
        return None
    beta, length = keys.read_number("attn_scale"), keys.read_number("floor_scale", above=0.0)
    return QueryScale("log", 0.1 if beta is None else beta, length or 8192.0, shift=1)
