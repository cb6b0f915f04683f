"""The frequencies of a GGUF file: scaling keys and divisor tensors as a scaling of whorl.

Its YaRN ramps as that of transformers does. Rotated channels are multiplied by

    a = attn_factor g(s, m) / g(s, l)      g(s, m) = 1 + 0.1 m ln s      l = yarn_log_multiplier

where l is 0 if the key is missing and m is 1. In DeepSeek's architectures the key holds 0.1 l, and
the softmax scale is multiplied by (a g(s, l))^2; in deepseek2 itself m is l. So
src/llama-context.cpp and src/models/deepseek2.cpp, which undo the 1 + 0.1 ln s that ggml's rotation
puts in by itself.

Tensors divide frequencies. Where they are what a formula gives, the formula is named: Llama 3's,
or Gemma 4's zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from whorl.scaling import NTK, Ladder, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN
from whorl.scaling.yarn import compute_mscale

from ._gguf_families import DEEPSEEK
from ._values import Keys
from .model import ConfigError, Note

__all__ = ["ORIGINAL", "Scaled", "scaled"]

ORIGINAL = "rope.scaling.original_context_length"
_STANDS_STILL = 1e20  # a divisor that leaves no turn; the files have 1e30
_AT_LOAD = Note(
    "longrope-at-load",
    "llama.cpp picks the short or the long factors once, by the context size that it is started"
    " with; here they switch at the current length.",
)


@dataclass(frozen=True)
class Scaled:
    """A scaling and what goes with it."""

    scaling: Scaling | None = None
    softmax_scale: float = 1.0
    notes: tuple[Note, ...] = ()


def scaled(
    keys: Keys, ladder: Ladder, context: int | None, tensors: Mapping[str, tuple[float, ...]]
) -> Scaled:
    """How llama.cpp changes the frequencies of ``ladder``."""
    kind = keys.text("rope.scaling.type") or "linear"
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise keys.refused("rope.scaling.type", "none, linear, yarn or longrope")
    factor = keys.number("rope.scaling.factor")
    if factor is None:
        factor = keys.number("rope.scale_linear")
    factor = factor or 1.0  # 0 stands for none, as a missing key does
    if factor <= 0:
        raise keys.refused("rope.scaling.factor", "above 0")
    attention = keys.number("rope.scaling.attn_factor", above=0.0) or 1.0
    if _yarn_weight(keys, kind):
        return _yarn(keys, factor, attention, context, "rope_freqs.weight" in tensors)
    stretch = 1.0 if kind == "none" else factor
    divisors = tensors.get("rope_freqs.weight")
    if divisors is not None:
        return _divided(keys, ladder, [stretch * d for d in divisors], attention, context)
    short, long = (tensors.get(f"rope_factors_{side}.weight") for side in ("short", "long"))
    if short is not None and long is not None:
        near, far = ([stretch * d for d in factors] for factors in (short, long))
        rule = LongRoPE(near, far, _needed(keys, context), attention_factor=attention)
        return Scaled(rule, notes=(_AT_LOAD,))
    if short is not None or long is not None:
        raise ConfigError(
            "read_config: one of rope_factors_short and rope_factors_long is missing."
        )
    alpha = keys.number("rope.scaling.alpha")
    if alpha:
        return Scaled(NTK(alpha))
    if attention != 1.0:
        return _divided(keys, ladder, [stretch] * len(ladder.inv_freq), attention, context)
    return Scaled(Linear(stretch) if stretch != 1.0 else None)


def _yarn_weight(keys: Keys, kind: str) -> bool:
    """Whether the ramp of YaRN is on: yarn_ext_factor, by default 1 for yarn and 0 for others."""
    name = "rope.scaling.yarn_ext_factor"
    weight = keys.number(name)
    if weight is None or weight < 0:
        return kind == "yarn"
    if weight not in (0.0, 1.0):
        raise keys.refused(name, "0 or 1, because whorl has no YaRN in part")
    return weight == 1.0


def _yarn(
    keys: Keys, factor: float, attention: float, context: int | None, divided: bool
) -> Scaled:
    if divided:
        raise ConfigError("read_config: YaRN and rope_freqs.weight in one file; no model has both.")
    weight = keys.number("rope.scaling.yarn_log_multiplier") or 0.0
    deepseek = keys.where in DEEPSEEK
    if deepseek:
        weight /= 0.1
    above = weight if keys.where == "deepseek2" and weight else 1.0
    below = compute_mscale(factor, weight)
    scale = attention * compute_mscale(factor, above) / below
    rule = YaRN(
        factor,
        _needed(keys, context),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast") or 32.0,
        beta_slow=keys.number("rope.scaling.yarn_beta_slow") or 1.0,
        attention_factor=scale,
    )
    return Scaled(rule, softmax_scale=(scale * below) ** 2 if deepseek else 1.0)


def _divided(
    keys: Keys, ladder: Ladder, divisors: list[float], attention: float, context: int | None
) -> Scaled:
    """Divisors by the formula that gives them, or as they are."""
    if len(divisors) != len(ladder.inv_freq):
        raise ConfigError(
            f"read_config: rope_freqs.weight must hold {len(ladder.inv_freq)} numbers, one for each"
            f" pair of the {ladder.rotary_dim} rotated channels; got {len(divisors)}."
        )
    if attention == 1.0:
        turning = divisors.count(1.0)
        still = all(d >= _STANDS_STILL for d in divisors[turning:])
        if still and turning < len(divisors) and divisors[:turning] == [1.0] * turning:
            return Scaled(Proportional(turning / len(divisors)))
        rule = Llama3(max(1.0, divisors[-1]), keys.whole(ORIGINAL) or 8192)
        wanted = ladder.inv_freq / rule.frequencies(ladder, None).inv_freq
        if all(abs(d - w) <= 1e-4 * w for d, w in zip(divisors, wanted.tolist(), strict=True)):
            return Scaled(rule)
    known = keys.whole(ORIGINAL) or context or 1
    return Scaled(LongRoPE(divisors, divisors, known, attention_factor=attention))


def _needed(keys: Keys, context: int | None) -> int:
    found = keys.whole(ORIGINAL) or context
    if found is None:
        raise keys.missing(ORIGINAL, "the scaling needs it or context_length")
    return found
