"""Values that configs leave out because the classes of transformers have them: defaults.json.

``scripts/transformers-defaults`` writes it from the installed transformers. For each model type:

    keys    defaults of its class for the keys below, default_theta, and
            default_rope_parameters if the class has them
    names   its names for sizes, if they are not the usual ones
    parts   model types of its parts, by key
    absent  values of parts that a config leaves out, if not the defaults of their type

It also has the names of all other types, which have no rotation.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

__all__ = [
    "KEYS",
    "POSITION_FREE",
    "get_entry",
    "get_known_name",
    "get_version",
    "has_no_rotation",
    "list_model_types",
]

#: Keys whose class defaults are kept.
KEYS = (
    *("hidden_size", "num_attention_heads", "head_dim", "num_hidden_layers"),
    *("max_position_embeddings", "original_max_position_embeddings", "sliding_window"),
    *("rope_theta", "partial_rotary_factor", "rotary_dim", "rotary_embedding_base"),
    *("qk_rope_head_dim", "rope_interleave", "compress_rope_theta", "projection_dim"),
    *("no_rope_layer_interval", "sliding_window_pattern", "global_attn_every_n_layers"),
    *("prefix_dense_sliding_window_pattern", "layer_group_size", "full_attention_interval"),
    *("max_window_layers", "use_sliding_window", "block_types", "cross_attention_layers"),
    *("position_embedding_type", "position_embeddings_type", "use_mem_rope", "alibi"),
    *("use_rotary_embedding", "attn_temperature_tuning", "attn_scale", "floor_scale"),
    *("default_partial_rotary_factor", "attn_layer_indices", "layer_types"),
    *("speech_encoder_attention_heads", "attention_chunk_size", "local_attention"),
    *("rotary_value", "use_long_context", "full_attn_idxs", "query_pre_attn_scalar"),
    # vision encoders and other families of nd
    *("embed_dim", "depth", "descriptor_dim", "num_attention_layers"),
    *("memory_attention_hidden_size", "memory_attention_num_layers"),
    *("memory_attention_num_attention_heads", "memory_attention_downsample_rate"),
)

#: Types without attention, or with attention that has no positions. A rope_theta in their configs
#: comes from a parent class, and no code reads it.
POSITION_FREE = {
    *("falcon_mamba", "glm5_next_text", "jamba", "kimi_linear", "mamba", "mamba2", "nemotron_h"),
    *("rwkv", "xlstm", "zamba"),
}


@cache
def _load_document() -> dict[str, Any]:
    text = resources.files("whorl.configs.huggingface").joinpath("defaults.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def get_version() -> str:
    """The version of transformers that the defaults come from."""
    return str(_load_document()["transformers"])


def get_known_name(model_type: str | None) -> str | None:
    """The name under which defaults.json has a model type that has several names."""
    found: str | None = _load_document()["other_names"].get(model_type, model_type)
    return found


def has_no_rotation(model_type: str | None) -> bool:
    """Whether transformers has this model type, and it has no rotation."""
    return model_type in _load_document()["without_rotation"]


def list_model_types() -> tuple[str, ...]:
    """All model types that defaults.json describes."""
    return tuple(_load_document()["types"])


def get_entry(model_type: str | None) -> dict[str, Any] | None:
    """The entry of a model type in defaults.json; None if it has none."""
    found: dict[str, Any] | None = _load_document()["types"].get(model_type)
    return found
