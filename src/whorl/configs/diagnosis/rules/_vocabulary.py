"""The keys of rope parameters, and which of them each rope_type reads (transformers 5.22.2)."""

from collections.abc import Mapping
from typing import Any

from whorl._support.words import shorten
from whorl.configs.diagnosis.parts import Block, number, shown
from whorl.configs.huggingface.nd import MROPE

__all__ = [
    "ALIASES",
    "BASES",
    "KNOWN",
    "LISTS",
    "ORIGINAL",
    "READ",
    "SECTIONS",
    "SHARES",
    "SIZES",
    "SWITCHES",
    "is_neutral",
    "knows_type",
    "read_by",
    "spelt",
]

ORIGINAL = "original_max_position_embeddings"

#: What each type computes with, beside rope_theta and partial_rotary_factor.
READ: dict[str, frozenset[str]] = {
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
SIZES = (
    *("head_dim", "hidden_size", "max_position_embeddings", "num_attention_heads"),
    *("num_hidden_layers", "num_key_value_heads", "original_max_position_embeddings"),
    *("qk_rope_head_dim", "rotary_dim", "sliding_window"),
)
#: Names of the base, and of the rotated share, beside the rope parameters and in them.
BASES = (
    *("rope_theta", "rope_local_base_freq", "global_rope_theta", "local_rope_theta"),
    *("compress_rope_theta", "rotary_emb_base"),
)
SHARES = ("partial_rotary_factor", "rotary_emb_fraction", "rotary_pct")
SWITCHES = ("apply_yarn_scaling", "finetuned", "mrope_interleaved", "truncate")
LISTS = ("short_factor", "long_factor", "mrope_section", "xdrope_section")
#: Values of rope_type that some family takes, and what it makes of them.
ALIASES = {"su": "longrope", "mrope": "default", "xdrope": "dynamic"}
SECTIONS = ("mrope_section", "xdrope_section")

_ALWAYS = frozenset({"rope_type", "type", "rope_theta", "partial_rotary_factor"})
#: Keys that one family or another reads, or that only inform: no fault anywhere.
_EXTRA = frozenset(
    {
        *SECTIONS,
        *("mrope_interleaved", "alpha", "llama_4_scaling_beta", "max_position_embeddings"),
        *("finetuned", "apply_yarn_scaling", "rope_local_base_freq", "max_trained_length"),
    }
)
KNOWN = frozenset().union(_ALWAYS, _EXTRA, *READ.values())

#: Values at which a key changes nothing, whoever reads it.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
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
    return number(value) in _NEUTRAL.get(name, ())


def spelt(name: str) -> str:
    """A name for a message, with the codes of letters that look like others."""
    return shown(name) if name.isascii() else f"{shown(name)} (written {shorten(ascii(name))})"


def read_by(block: Block) -> frozenset[str]:
    """The keys that count in this block."""
    own = READ.get(block.kind, frozenset())
    more = {ORIGINAL} if block.kind in ("default", "linear", "proportional", "axial") else set()
    if (block.tower.family or "").startswith("hunyuan") or not block.tower.known_family:
        more.add("alpha")
    return _ALWAYS | own | more | (_EXTRA - {*SECTIONS, "alpha"})


def knows_type(block: Block) -> bool:
    """Whether the family takes the rope_type that is written, or none is."""
    given = block.keys.get("rope_type")
    given = block.keys.get("type", "default") if given is None else given
    if not isinstance(given, str) or given in READ:
        return isinstance(given, str) or given is None
    family = block.tower.family or ""
    # Families that take a name of their own; an unknown family may.
    takes = {
        "su": family.startswith("phi"),
        "xdrope": family.startswith("hunyuan"),
        "mrope": bool(block.tower.class_entry.get("parts")) or family in MROPE,
    }
    return given in ALIASES and (takes[given] or not block.tower.known_family)
