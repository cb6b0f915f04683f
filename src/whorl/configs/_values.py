"""What every dialect needs: values fit for a message, rotations that work, one schema for them."""

import math
import reprlib
from collections.abc import Mapping
from typing import Any

from .model import ConfigError, Rotation

__all__ = ["parameters", "shown", "sound"]

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 60
_REPR.maxlong = 40

_TYPES = {
    "linear": "linear",
    "llama3": "llama3",
    "longrope": "longrope",
    "ntk": "dynamic",
    "proportional": "proportional",
    "yarn": "yarn",
}
_NAMES = {
    "attention_factor": "attention_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "factor": "factor",
    "high_freq_factor": "high_freq_factor",
    "long_factors": "long_factor",
    "low_freq_factor": "low_freq_factor",
    "original_context": "original_max_position_embeddings",
    "rotary_share": "partial_rotary_factor",
    "short_factors": "short_factor",
}


def shown(value: Any) -> str:
    """A value as it may stand in a message, however long it is."""
    return _REPR.repr(value)


def sound(rotation: Rotation) -> Rotation:
    """The rotation, if an encoding can be built of it and its frequencies are numbers."""
    try:
        encoding = rotation.build(table="on_the_fly", table_length=0)
        short = encoding.frequencies()  # type: ignore[operator]
        long = encoding.frequencies(2**40)  # type: ignore[operator]
        finite = all(
            bool(found.inv_freq.isfinite().all()) and math.isfinite(found.attention_scale)
            for found in (short, long)
        )
    except ConfigError:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ConfigError(f"read_config: {error}") from None
    if not finite:
        raise ConfigError(
            "read_config: these numbers give frequencies that are not finite:"
            f" {shown(rotation.to_dict())}."
        )
    return rotation


def parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a rotation as the rope_parameters of transformers that say the same."""
    scaling = options.get("scaling")
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": options["base"]}
    if "rotary_dim" in options:
        found["partial_rotary_factor"] = options["rotary_dim"] / options["head_dim"]
    if scaling is None:
        return found
    given = scaling.to_dict()
    found["rope_type"] = _TYPES.get(given.pop("name"), "default")
    for option, value in given.items():
        if value is not None and option in _NAMES:
            found[_NAMES[option]] = value
    if found["rope_type"] == "dynamic":  # a stretch that stays put is Hunyuan's alpha
        found["alpha"] = found.pop("factor")
    return found
