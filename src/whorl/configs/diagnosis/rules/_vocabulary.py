"""The keys of rope parameters, and which of them each rope_type reads (transformers 5.22.2)."""

from collections.abc import Mapping
from typing import Any

from whorl._support.words import shorten
from whorl.configs.diagnosis.parts import RopeDictionary, format_value, read_number
from whorl.configs.huggingface.nd import MROPE

__all__ = [
    "BASE_KEYS",
    "KEYS_BY_TYPE",
    "KNOWN_KEYS",
    "LIST_KEYS",
    "ORIGINAL",
    "SECTION_KEYS",
    "SHARE_KEYS",
    "SIZE_KEYS",
    "SWITCH_KEYS",
    "TYPE_ALIASES",
    "is_known_type",
    "is_neutral",
    "list_read_keys",
    "quote_name",
]

ORIGINAL = "original_max_position_embeddings"

#: The keys that each rope_type reads, besides rope_theta and partial_rotary_factor.
KEYS_BY_TYPE: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "axial": frozenset(),
    "linear": frozenset({"factor"}),
    "dynamic": frozenset({"factor"}),
    "yarn": frozenset(
        {
            *("factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow"),
            *("mscale", "mscale_all_dim", "truncate"),
        }
    ),
    "longrope": frozenset(
        {
            *("short_factor", "long_factor", "factor", ORIGINAL, "attention_factor"),
            *("long_attention_factor", "short_mscale", "long_mscale"),
        }
    ),
    "llama3": frozenset({"factor", ORIGINAL, "low_freq_factor", "high_freq_factor"}),
    "proportional": frozenset({"factor"}),
}
#: Keys whose values are whole numbers.
SIZE_KEYS = (
    *("head_dim", "hidden_size", "max_position_embeddings", "num_attention_heads"),
    *("num_hidden_layers", "num_key_value_heads", "original_max_position_embeddings"),
    *("qk_rope_head_dim", "rotary_dim", "sliding_window"),
)
#: Names of the base, and of the rotated share, beside the rope parameters and inside them.
BASE_KEYS = (
    *("rope_theta", "rope_local_base_freq", "global_rope_theta", "local_rope_theta"),
    *("compress_rope_theta", "rotary_emb_base"),
)
SHARE_KEYS = ("partial_rotary_factor", "rotary_emb_fraction", "rotary_pct")
SWITCH_KEYS = ("apply_yarn_scaling", "finetuned", "mrope_interleaved", "truncate")
LIST_KEYS = ("short_factor", "long_factor", "mrope_section", "xdrope_section")
#: Values of rope_type that only some families know, and the types that they stand for.
TYPE_ALIASES = {"su": "longrope", "mrope": "default", "xdrope": "dynamic"}
SECTION_KEYS = ("mrope_section", "xdrope_section")

_KEYS_OF_EVERY_TYPE = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor"})
#: Keys that some family reads, or that are only information; they are never reported as unknown.
_OTHER_KEYS = frozenset(
    {
        *SECTION_KEYS,
        *("mrope_interleaved", "alpha", "llama_4_scaling_beta", "max_position_embeddings"),
        *("finetuned", "apply_yarn_scaling", "rope_local_base_freq", "max_trained_length"),
    }
)
KNOWN_KEYS = frozenset().union(_KEYS_OF_EVERY_TYPE, _OTHER_KEYS, *KEYS_BY_TYPE.values())

#: Values with which a key changes nothing.
_NEUTRAL_VALUES: Mapping[str, tuple[Any, ...]] = {
    "factor": (1,),
    "beta_fast": (32,),
    "beta_slow": (1,),
    "mscale": (0, 1),
    "mscale_all_dim": (0, 1),
    "attention_factor": (1,),
    "truncate": (True,),
}


def is_neutral(name: str, value: Any) -> bool:
    """Whether ``name`` at this value would change nothing if it were read."""
    if value is None:
        return True
    if isinstance(value, bool):
        return name == "truncate" and value
    return read_number(value) in _NEUTRAL_VALUES.get(name, ())


def quote_name(name: str) -> str:
    """A name in quotes, with the codes of its letters if some are not ASCII."""
    quoted = format_value(name)
    return quoted if name.isascii() else f"{quoted} (written {shorten(ascii(name))})"


def list_read_keys(rope: RopeDictionary) -> frozenset[str]:
    """The keys that the rope_type of this dictionary reads."""
    own = KEYS_BY_TYPE.get(rope.rope_type, frozenset())
    more = {ORIGINAL} if rope.rope_type in ("default", "linear", "proportional", "axial") else set()
    if (rope.part.family or "").startswith("hunyuan") or not rope.part.is_known_family:
        more.add("alpha")
    return _KEYS_OF_EVERY_TYPE | own | more | (_OTHER_KEYS - {*SECTION_KEYS, "alpha"})


def is_known_type(rope: RopeDictionary) -> bool:
    """Whether the family knows the rope_type that is written; also true if none is written."""
    given = rope.keys.get("rope_type")
    given = rope.keys.get("type", "default") if given is None else given
    if not isinstance(given, str) or given in KEYS_BY_TYPE:
        return isinstance(given, str) or given is None
    family = rope.part.family or ""
    # Some families know one of these names; an unknown family may know any of them.
    takes = {
        "su": family.startswith("phi"),
        "xdrope": family.startswith("hunyuan"),
        "mrope": bool(rope.part.class_entry.get("parts")) or family in MROPE,
    }
    return given in TYPE_ALIASES and (takes[given] or not rope.part.is_known_family)
