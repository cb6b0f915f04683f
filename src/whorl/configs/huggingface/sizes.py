"""Read the width of heads and of their rotated part."""

from collections.abc import Mapping
from typing import Any

from whorl.configs._values import MOST_CHANNELS, Keys
from whorl.configs.model import ConfigError

__all__ = [
    "NAMES",
    "add_usual_names",
    "compute_rotated_width",
    "read_full_head_width",
    "read_head_width",
]

#: Other names of sizes, for model types whose names are not in defaults.json.
NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_hidden_layers": ("n_layer", "n_layers"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "n_ctx", "seq_length"),
}


def add_usual_names(data: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The config with its values under the usual names too, if it uses others."""
    full = dict(data)
    for name, others in names.items():
        for other in (others,) if isinstance(others, str) else others:
            if full.get(name) is None and full.get(other) is not None:
                full[name] = full[other]
        # A class with one other name has the same value under both.
        if isinstance(others, str) and full.get(others) is None and full.get(name) is not None:
            full[others] = full[name]
    return full


def read_head_width(keys: Keys, key: str) -> int:
    """Channels of a head, or of its separate rotated part."""
    if key == "speech_encoder":
        return _divide_hidden_size(keys, "speech_encoder_attention_heads")
    own = keys.read_int(key, most=MOST_CHANNELS) if key else None
    if own is not None:
        return own
    # Zamba2 concatenates its hidden states with the input.
    sides = 2 if key == "attention_head_dim" else 1
    return sides * _divide_hidden_size(keys, "num_attention_heads")


def read_full_head_width(keys: Keys, usual: int) -> int:
    """Channels of heads in layers with full attention, if they are wider than others (Gemma 4)."""
    overrides = keys.read_object("per_layer_config")
    if overrides is not None:
        for name in overrides.data:
            inside = overrides.read_object(name)
            if inside is not None and "head_dim" in inside:
                return inside.read_int("head_dim", most=MOST_CHANNELS) or usual
    return keys.read_int("global_head_dim", most=MOST_CHANNELS) or usual


def compute_rotated_width(head: int, share: float, rope: Keys) -> int:
    """Number of rotated channels: int(head * share), as in transformers."""
    if not 0 < share <= 1:
        wanted = f"above 0 and at most 1, the rotated share of the {head} channels of a head"
        raise rope.wrong_value("partial_rotary_factor", wanted)
    if int(head * share) < 1:
        wanted = f"at least 1 / {head}, so that one of the {head} channels of a head rotates"
        raise rope.wrong_value("partial_rotary_factor", wanted)
    return int(head * share)


def _divide_hidden_size(keys: Keys, by: str) -> int:
    why = f"without head_dim the width of a head is hidden_size / {by}"
    hidden = keys.read_int("hidden_size", most=MOST_CHANNELS * MOST_CHANNELS)
    hidden = keys.require("hidden_size", hidden, why)
    heads = keys.require(by, keys.read_int(by, most=MOST_CHANNELS), why)
    width = hidden // heads
    if not 1 <= width <= MOST_CHANNELS:
        raise ConfigError(
            f"{keys.path('hidden_size')} / {by} must be a width of heads from 1 to"
            f" {MOST_CHANNELS}; got {hidden} / {heads}."
        )
    return width
