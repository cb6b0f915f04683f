"""Read sizes and parameters of vision encoders, and build their rotations."""

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
    "divide_hidden_size",
    "list_layers",
    "read_head_dim",
    "read_rope_parameters",
    "read_size",
]

# Older names first, because the newer keys may hold only the defaults of the class.
HEADS = ("heads", "num_heads", "num_attention_heads")
LAYERS = ("layers", "depth", "num_hidden_layers")


def read_size(keys: Keys, *names: str, most: int = MOST_CHANNELS**2) -> int:
    """The value of the first of these keys that the config has."""
    for name in names:
        if (found := keys.read_int(name, most=most)) is not None:
            return found
    raise keys.missing_key(names[0], "the size of the rotation depends on it")


def read_head_dim(keys: Keys, *widths: str) -> int:
    """Channels of one head: head_dim, or the width divided by the number of heads."""
    given = keys.read_int("head_dim", most=MOST_CHANNELS)
    return given or divide_among_heads(read_size(keys, *widths), read_size(keys, *HEADS))


def divide_among_heads(width: int, heads: int) -> int:
    """Channels of a head if ``heads`` divide ``width``."""
    if not 2 <= width // heads <= MOST_CHANNELS:
        raise ConfigError(
            f"heads must have 2 to {MOST_CHANNELS} channels, because channels rotate"
            f" in pairs; got {width} channels for {heads} heads."
        )
    return width // heads


def divide_hidden_size(keys: Keys, *widths: str) -> int:
    """Channels of a head by hidden_size, or one of ``widths``, and num_attention_heads alone."""
    width = read_size(keys, *widths, "hidden_size")
    return divide_among_heads(width, read_size(keys, "num_attention_heads"))


def list_layers(keys: Keys, *names: str) -> tuple[int, ...]:
    """Numbers of all layers; empty if the config does not say how many there are."""
    for name in names or LAYERS:
        if (found := keys.read_int(name, least=0, most=MOST_LAYERS)) is not None:
            return tuple(range(found))
    return ()


def read_rope_parameters(keys: Keys, base: float, *, only: str = "axial") -> dict[str, Any]:
    """Unscaled rope parameters: those of the config, or made from rope_theta."""
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
    """base ** exponent; infinity if it is too large, which the encoding refuses."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf


def build_axial(**options: Any) -> Rotation:
    """A rotation by AxialRoPE, with checked options."""
    return _check_options("axial_rope", AxialRoPEConfig, options)


def build_mrope(**options: Any) -> Rotation:
    """A rotation by MRoPE, with checked options."""
    return _check_options("mrope", MRoPEConfig, options, "rope_parameters.mrope_section: ")


def _check_options(name: str, config: type, options: dict[str, Any], where: str = "") -> Rotation:
    try:
        config(**options)
    except ValueError as error:
        raise ConfigError(f"{where}{error}") from None
    return Rotation(name, options)
