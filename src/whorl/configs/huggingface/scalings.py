"""Build a frequency scaling from a dictionary of rope parameters.

default        none
linear         Linear(factor)
dynamic        DynamicNTK(factor, max_position_embeddings)
ntk_alpha      NTK(alpha), which Hunyuan calls dynamic (adaptations.py)
yarn           YaRN(factor, original_max_position_embeddings, ...)
longrope       LongRoPE(short_factor, long_factor, ...)
llama3         Llama3(factor, original_max_position_embeddings, ...)
proportional   Proportional(partial_rotary_factor, factor)
"""

from collections.abc import Callable
from dataclasses import dataclass

from whorl._support.words import quote, suggest_name
from whorl.configs._values import Keys
from whorl.configs.model import ConfigError, Parity
from whorl.scaling import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    Scaling,
    YaRN,
)

__all__ = ["ROPE_TYPES", "ScalingInputs", "build_scaling"]


_MAXIMUM = "max_position_embeddings"


@dataclass(frozen=True)
class ScalingInputs:
    """Values outside the rope parameters that scalings need."""

    context: int | None  # max_position_embeddings
    truncate: bool | None = None  # replaces that of the rope parameters, for parity
    parity: Parity | None = None


def build_scaling(rope: Keys, lengths: ScalingInputs) -> Scaling | None:
    """The scaling of complete rope parameters; None for unscaled frequencies."""
    kind = rope.read_text("rope_type") or "default"
    if kind not in ROPE_TYPES:
        hint = suggest_name(kind[:20], ROPE_TYPES)
        if kind == "mrope":
            hint = ": it belongs to vision-language models such as qwen2_vl; is model_type right?"
        raise ConfigError(
            f"{rope.path('rope_type')} {quote(kind)} is not known{hint}"
            f" Known: {', '.join(ROPE_TYPES)}."
        )
    try:
        return ROPE_TYPES[kind](rope, lengths)
    except ConfigError:
        raise
    except (ValueError, OverflowError) as error:  # raised by the scaling
        raise ConfigError(f"{rope.where or 'rope_parameters'}: {error}") from None


def _build_none(rope: Keys, lengths: ScalingInputs) -> None:
    return None


def _build_linear(rope: Keys, lengths: ScalingInputs) -> Scaling:
    return Linear(_read_factor(rope))


def _build_dynamic(rope: Keys, lengths: ScalingInputs) -> Scaling:
    own = rope.read_int("max_trained_positions")  # a key of Nomic
    return DynamicNTK(_read_factor(rope), own or _require_length(rope, lengths.context, _MAXIMUM))


def _build_ntk_alpha(rope: Keys, lengths: ScalingInputs) -> Scaling:
    why = "ntk_alpha multiplies the base by a power of it"
    return NTK(rope.require("alpha", rope.read_number("alpha", above=0), why))


def _build_yarn(rope: Keys, lengths: ScalingInputs) -> Scaling:
    trained = _read_trained_length(rope, lengths)
    factor = rope.read_number("factor", above=0)
    if factor is None:  # DeepSeek derives it from the lengths
        factor = _require_length(rope, lengths.context, "factor") / trained
    truncate = lengths.truncate
    if truncate is None:
        truncate = rope.read_flag("truncate", default=True)
    fast = rope.read_number("beta_fast") or 32.0  # 0 means the default, like null
    slow = rope.read_number("beta_slow") or 1.0
    return YaRN(
        factor,
        trained,
        beta_fast=fast,
        beta_slow=slow,
        ramp="backward" if fast < slow and lengths.parity is not None else "index",
        truncate=truncate,
        mscale=rope.read_number("mscale"),
        mscale_all_dim=rope.read_number("mscale_all_dim"),
        attention_factor=rope.read_number("attention_factor", above=0),
    )


def _build_longrope(rope: Keys, lengths: ScalingInputs) -> Scaling:
    trained = _read_trained_length(rope, lengths)
    short, long = (
        rope.require(name, rope.read_numbers(name), "longrope needs a factor for each pair")
        for name in ("short_factor", "long_factor")
    )
    factor = rope.read_number("factor", above=0)
    if factor is None:
        factor = _require_length(rope, lengths.context, "factor") / trained
    return LongRoPE(
        short,
        long,
        trained,
        factor=factor,
        attention_factor=rope.read_number("attention_factor", above=0),
        long_attention_factor=rope.read_number("long_attention_factor", above=0),
    )


def _build_llama3(rope: Keys, lengths: ScalingInputs) -> Scaling:
    why = "llama3 blends between low_freq_factor and high_freq_factor"
    low, high = (
        rope.require(name, rope.read_number(name), why)
        for name in ("low_freq_factor", "high_freq_factor")
    )
    return Llama3(_read_factor(rope), _read_trained_length(rope, lengths), low, high)


def _build_proportional(rope: Keys, lengths: ScalingInputs) -> Scaling:
    share, factor = rope.read_number("partial_rotary_factor"), rope.read_number("factor")
    return Proportional(1.0 if share is None else share, 1.0 if factor is None else factor)


#: The values of rope_type that are known.
ROPE_TYPES: dict[str, Callable[[Keys, ScalingInputs], Scaling | None]] = {
    "default": _build_none,
    "linear": _build_linear,
    "dynamic": _build_dynamic,
    "ntk_alpha": _build_ntk_alpha,
    "yarn": _build_yarn,
    "longrope": _build_longrope,
    "llama3": _build_llama3,
    "proportional": _build_proportional,
}


def _read_factor(rope: Keys) -> float:
    why = f"{rope.read_text('rope_type')} divides by it"
    return rope.require("factor", rope.read_number("factor", above=0), why)


def _read_trained_length(rope: Keys, lengths: ScalingInputs) -> int:
    name = "original_max_position_embeddings"
    return _require_length(rope, rope.read_int(name) or lengths.context, name)


def _require_length(rope: Keys, value: int | None, name: str) -> int:
    kind = rope.read_text("rope_type")
    return rope.require(name, value, f"{kind} needs it, or max_position_embeddings")
