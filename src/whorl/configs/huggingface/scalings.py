"""From a dictionary of rope parameters to a frequency scaling.

default        none
linear         Linear(factor)
dynamic        DynamicNTK(factor, max_position_embeddings)
ntk_alpha      NTK(alpha), what Hunyuan calls dynamic (adapting.py)
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

__all__ = ["ROPE_TYPES", "Lengths", "scaling_of", "trained_context"]


_MAXIMUM = "max_position_embeddings"


@dataclass(frozen=True)
class Lengths:
    """What a config says outside the rope parameters and scalings need."""

    context: int | None  # max_position_embeddings
    truncate: bool | None = None  # in place of the parameters' own, for parity
    parity: Parity | None = None


def scaling_of(rope: Keys, lengths: Lengths) -> Scaling | None:
    """The scaling of standardised parameters; None for plain frequencies."""
    kind = rope.text("rope_type") or "default"
    if kind not in ROPE_TYPES:
        hint = suggest_name(kind[:20], ROPE_TYPES)
        if kind == "mrope":
            hint = ": it belongs to vision-language models such as qwen2_vl; is model_type theirs?"
        raise ConfigError(
            f"read_config: {rope.path('rope_type')} {quote(kind)} is not known{hint}"
            f" Known: {', '.join(ROPE_TYPES)}."
        )
    try:
        return ROPE_TYPES[kind](rope, lengths)
    except ConfigError:
        raise
    except (ValueError, OverflowError) as error:  # what a scaling itself refuses
        raise ConfigError(f"read_config: {rope.where or 'rope_parameters'}: {error}") from None


def trained_context(rope: Keys, context: int | None) -> int | None:
    """Tokens before any extension."""
    return rope.whole("original_max_position_embeddings") or context


def _default(rope: Keys, lengths: Lengths) -> None:
    return None


def _linear(rope: Keys, lengths: Lengths) -> Scaling:
    return Linear(_factor(rope))


def _dynamic(rope: Keys, lengths: Lengths) -> Scaling:
    own = rope.whole("max_trained_positions")  # of Nomic
    return DynamicNTK(_factor(rope), own or _needed(rope, lengths.context, _MAXIMUM))


def _ntk_alpha(rope: Keys, lengths: Lengths) -> Scaling:
    alpha = rope.number("alpha", above=0)
    if alpha is None:
        raise rope.missing("alpha", "ntk_alpha multiplies the base by a power of it")
    return NTK(alpha)


def _yarn(rope: Keys, lengths: Lengths) -> Scaling:
    trained = _trained(rope, lengths)
    factor = rope.number("factor", above=0)
    if factor is None:  # DeepSeek leaves it to the lengths
        factor = _needed(rope, lengths.context, "factor") / trained
    truncate = lengths.truncate
    if truncate is None:
        truncate = rope.flag("truncate", default=True)
    fast = rope.number("beta_fast") or 32.0  # 0 stands for the default, as None does
    slow = rope.number("beta_slow") or 1.0
    return YaRN(
        factor,
        trained,
        beta_fast=fast,
        beta_slow=slow,
        ramp="backward" if fast < slow and lengths.parity is not None else "index",
        truncate=truncate,
        mscale=rope.number("mscale"),
        mscale_all_dim=rope.number("mscale_all_dim"),
        attention_factor=rope.number("attention_factor", above=0),
    )


def _longrope(rope: Keys, lengths: Lengths) -> Scaling:
    trained = _trained(rope, lengths)
    short, long = rope.numbers("short_factor"), rope.numbers("long_factor")
    for name, given in (("short_factor", short), ("long_factor", long)):
        if given is None:
            raise rope.missing(name, "longrope needs a factor for each pair")
    factor = rope.number("factor", above=0)
    if factor is None:
        factor = _needed(rope, lengths.context, "factor") / trained
    assert short is not None
    assert long is not None
    return LongRoPE(
        short,
        long,
        trained,
        factor=factor,
        attention_factor=rope.number("attention_factor", above=0),
        long_attention_factor=rope.number("long_attention_factor", above=0),
    )


def _llama3(rope: Keys, lengths: Lengths) -> Scaling:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    for name, given in (("low_freq_factor", low), ("high_freq_factor", high)):
        if given is None:
            raise rope.missing(name, "llama3 blends between low_freq_factor and high_freq_factor")
    assert low is not None
    assert high is not None
    return Llama3(_factor(rope), _trained(rope, lengths), low, high)


def _proportional(rope: Keys, lengths: Lengths) -> Scaling:
    share, factor = rope.number("partial_rotary_factor"), rope.number("factor")
    return Proportional(1.0 if share is None else share, 1.0 if factor is None else factor)


#: The values of rope_type that are known.
ROPE_TYPES: dict[str, Callable[[Keys, Lengths], Scaling | None]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "ntk_alpha": _ntk_alpha,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


def _factor(rope: Keys) -> float:
    found = rope.number("factor", above=0)
    if found is None:
        raise rope.missing("factor", f"{rope.text('rope_type')} divides by it")
    return found


def _trained(rope: Keys, lengths: Lengths) -> int:
    name = "original_max_position_embeddings"
    return _needed(rope, trained_context(rope, lengths.context), name)


def _needed(rope: Keys, value: int | None, name: str) -> int:
    if value is None:
        kind = rope.text("rope_type")
        raise rope.missing(name, f"{kind} needs it or the config's max_position_embeddings")
    return value
