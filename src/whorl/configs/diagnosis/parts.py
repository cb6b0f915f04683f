"""What the rules ask a config: its rope parameters, its sizes, and what its class does with them.

Rules must not need a config that can be read, so everything here accepts any value for any key.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from whorl._support import words
from whorl.configs.huggingface import defaults
from whorl.configs.huggingface.families import FAMILIES
from whorl.configs.huggingface.schema import read_base_only, use_base_10000
from whorl.configs.model import LayerGroup, ModelPositions

__all__ = ["ConfigPart", "RopeDictionary", "format_value", "read_number", "read_whole"]

#: Keys by which families name the tokens that they claim.
_CONTEXT_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
    "seq_length",
)
_ORIGINAL = "original_max_position_embeddings"
#: The keys of the rope parameters in transformers 4 and 5; the first that is not empty counts.
_DICTIONARY_KEYS = ("rope_scaling", "rope_parameters")
#: Rope parameters that are no layer types, even if an object is written there by mistake.
_NO_LAYER_TYPES = (
    *("rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", _ORIGINAL),
    *("attention_factor", "short_factor", "long_factor", "mrope_section", "beta_fast", "beta_slow"),
)


def read_number(value: Any) -> float | None:
    """A finite number as a float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def read_whole(value: Any) -> int | None:
    """A positive whole number below 2**53, where floats are exact; None for anything else."""
    found = read_number(value)
    return int(found) if found is not None and found.is_integer() and 0 < found < 2**53 else None


def format_value(value: Any) -> str:
    """A value for a message: short, and numbers without needless digits."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return words.quote(value)


@dataclass(frozen=True)
class ConfigSection:
    """Keys of a config, and the keys that lead to them; none for the top of the config."""

    where: tuple[str, ...]
    keys: Mapping[str, Any]

    def path(self, *names: str) -> str:
        """The path of one of its keys, as people write it: rope_scaling.factor."""
        return ".".join((*self.where, *names))

    def has(self, name: str) -> bool:
        """Whether a key is there and not null."""
        return self.keys.get(name) is not None

    def get_number(self, name: str) -> float | None:
        """The finite number under a key, None for anything else."""
        return read_number(self.keys.get(name))

    def get_whole(self, name: str) -> int | None:
        """The positive whole number under a key, None for anything else."""
        return read_whole(self.keys.get(name))


@dataclass(frozen=True)
class RopeDictionary(ConfigSection):
    """One dictionary of rope parameters, and the layer type that it is for.

    layer_type: None for a dictionary of all layers.
    """

    part: "ConfigPart"
    layer_type: str | None = None

    @property
    def type_key(self) -> str:
        """The key of its type: type, the old one, if there is no rope_type."""
        return "rope_type" if self.has("rope_type") else "type"

    @property
    def rope_type(self) -> str:
        """The rope_type as transformers 5 takes it: rope_type, else type, else "default"."""
        given = self.keys.get("rope_type", self.keys.get("type", "default"))
        if not isinstance(given, str):
            return "default" if given is None else ""
        if given == "su" or (given == "yarn" and self.part.family in ("phi3", "phi4_multimodal")):
            return "longrope"
        return "default" if given == "mrope" else given

    @property
    def rotated_share(self) -> float:
        """The share of a head that rotates, as the keys say it."""
        found = self.get_number("partial_rotary_factor")
        if found is None:
            found = self.part.get_number("partial_rotary_factor")
        return 1.0 if found is None else found

    @property
    def trained_length(self) -> int | None:
        """Tokens of training before the extension, None if the config does not say."""
        return self.get_whole(_ORIGINAL) or self.part.get_whole(_ORIGINAL)

    @property
    def rotated_channels(self) -> int | None:
        """The number of rotated channels, as the keys say it."""
        head, share = self.part.head_dim, self.rotated_share
        return None if head is None or not 0 < share <= 1 else int(head * share)

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The layer groups that were read from this dictionary."""
        reading = self.part.reading
        if reading is None:
            return ()
        chosen = self.layer_type
        return tuple(g for g in reading.groups if chosen is None or g.name == chosen)


@dataclass(frozen=True)
class ConfigPart(ConfigSection):
    """A config with its own positions: the whole, or a part of it such as text_config.

    reading: what ``read_config`` makes of it; None where it makes nothing of it.
    """

    reading: ModelPositions | None

    @property
    def family(self) -> str | None:
        """The model_type, as it is written or as it was read."""
        found = self.keys.get("model_type")
        if not isinstance(found, str) and self.reading is not None:
            return self.reading.model_type
        return found if isinstance(found, str) else None

    @property
    def is_known_family(self) -> bool:
        """Whether transformers has this family, so that we know which keys its class reads."""
        return bool(self.class_entry)

    @property
    def has_fixed_frequencies(self) -> bool:
        """Whether the code of the family fixes the frequencies and reads no rope parameters."""
        family = FAMILIES.get(defaults.get_known_name(self.family) or "")
        return family is not None and family.schema in (use_base_10000, read_base_only)

    @property
    def class_entry(self) -> Mapping[str, Any]:
        """What is recorded about the family's class in transformers; empty if it is unknown."""
        return defaults.get_entry(defaults.get_known_name(self.family)) or {}

    def get_class_default(self, name: str) -> Any:
        """The rope parameter that the class uses if the config does not have it."""
        given = self.class_entry.get("keys", {}).get("default_rope_parameters")
        return given.get(name) if isinstance(given, Mapping) else None

    @property
    def context_length(self) -> int | None:
        """max_position_embeddings, or the key that the family has in its place."""
        if self.reading is not None and self.reading.context is not None:
            return self.reading.context
        return next((n for k in _CONTEXT_KEYS if (n := self.get_whole(k))), None)

    @property
    def head_dim(self) -> int | None:
        """Channels of a head, as the keys say them."""
        hidden, heads = self.get_whole("hidden_size"), self.get_whole("num_attention_heads")
        divided = hidden // heads if hidden and heads else None
        return self.get_whole("qk_rope_head_dim") or self.get_whole("head_dim") or divided

    @cached_property
    def used_key(self) -> str | None:
        """The key whose dictionary is used: a rope_scaling that is not empty replaces the other."""
        for name in _DICTIONARY_KEYS:
            if isinstance(self.keys.get(name), Mapping) and self.keys[name]:
                return name
        return None

    @cached_property
    def used_parameters(self) -> tuple[RopeDictionary, ...]:
        """One for all layers, or one for each layer type; empty where the class reads none."""
        return () if self.used_key is None else self._split(self.used_key)

    @cached_property
    def written_parameters(self) -> tuple[RopeDictionary, ...]:
        """Those of both dictionaries, if both are there; the used one comes first."""
        return tuple(rope for name in _DICTIONARY_KEYS for rope in self._split(name))

    def _split(self, name: str) -> tuple[RopeDictionary, ...]:
        """The dictionary under a key, split by layer type if it is nested."""
        given, where = self.keys.get(name), (*self.where, name)
        if not isinstance(given, Mapping) or self.has_fixed_frequencies:
            return ()
        if all(value is None for value in given.values()):
            return ()  # also {"full_attention": null}, which says that no layer rotates
        nested = {
            k: v for k, v in given.items() if isinstance(v, Mapping) and k not in _NO_LAYER_TYPES
        }
        if not nested:
            return (RopeDictionary(where, given, self),)
        return tuple(RopeDictionary((*where, str(k)), v, self, str(k)) for k, v in nested.items())

    @property
    def has_layer_types(self) -> bool:
        """Whether the used dictionary holds one dictionary for each layer type."""
        return any(rope.layer_type is not None for rope in self.used_parameters)
