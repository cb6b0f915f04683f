"""Sizes and parameters of towers, under the names that they go by, and what is made of them."""

import math
from typing import Any

from whorl._support.words import quote
from whorl.configs._values import MOST_CHANNELS, MOST_LAYERS, Keys
from whorl.configs.model import ConfigError, Rotation
from whorl.encodings.axial_rope import AxialRoPEConfig
from whorl.encodings.mrope import MRoPEConfig

__all__ = [
    "build_axial",
    "build_mrope",
    "compute_power",
    "divide_among_heads",
    "list_layers",
    "read_head_dim",
    "read_rope_parameters",
    "read_size",
]

# Older names first: the newer ones hold the defaults of the class if nothing else.
HEADS = ("heads", "num_heads", "num_attention_heads")
LAYERS = ("layers", "depth", "num_hidden_layers")


def read_size(keys: Keys, *names: str, most: int = MOST_CHANNELS**2) -> int:
    """The first of the keys that is there."""
    for name in names:
        if (found := keys.read_int(name, most=most)) is not None:
            return found
    raise keys.missing_key(names[0], "no size can be told without it")


def read_head_dim(keys: Keys, *widths: str) -> int:
    """Channels of one head: head_dim, or a share of the width."""
    given = keys.read_int("head_dim", most=MOST_CHANNELS)
    return given or divide_among_heads(read_size(keys, *widths), read_size(keys, *HEADS))


def divide_among_heads(width: int, heads: int) -> int:
    """Channels of each of ``heads``."""
    if not 2 <= width // heads <= MOST_CHANNELS:
        raise ConfigError(
            f"heads need from 2 to {MOST_CHANNELS} channels, because channels rotate"
            f" in pairs; got {width} channels for {heads} heads."
        )
    return width // heads


def list_layers(keys: Keys, *names: str) -> tuple[int, ...]:
    """Their numbers; none where the config does not say how many there are."""
    for name in names or LAYERS:
        if (found := keys.read_int(name, least=0, most=MOST_LAYERS)) is not None:
            return tuple(range(found))
    return ()


def read_rope_parameters(keys: Keys, base: float, *, only: str = "axial") -> dict[str, Any]:
    """The parameters, all flat and unscaled: of version 5, or rope_theta of older ones."""
    given = keys.read_object("rope_scaling") or keys.read_object("rope_parameters") or Keys({})
    kind = given.read_text("rope_type") or given.read_text("type") or "default"
    if kind not in ("default", only):
        raise ConfigError(
            f"{given.path('rope_type')} must be {only!r}, because this model has no"
            f" other frequencies; got {quote(kind)}."
        )
    theta = (
        given.read_number("rope_theta", above=0) or keys.read_number("rope_theta", above=0) or base
    )
    return {**given.data, "rope_type": only, "rope_theta": theta}


def compute_power(base: float, exponent: float) -> float:
    """base ** exponent; infinite, for the encoding to refuse, where it is too large."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf


def build_axial(**options: Any) -> Rotation:
    """An AxialRoPE that can be built."""
    return _check_options("axial_rope", AxialRoPEConfig, options)


def build_mrope(**options: Any) -> Rotation:
    """An MRoPE that can be built."""
    return _check_options("mrope", MRoPEConfig, options, "rope_parameters.mrope_section: ")


def _check_options(name: str, config: type, options: dict[str, Any], where: str = "") -> Rotation:
    try:
        config(**options)
    except ValueError as error:
        raise ConfigError(f"{where}{error}") from None
    return Rotation(name, options)
