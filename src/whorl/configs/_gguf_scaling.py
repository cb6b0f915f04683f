"""Scaling of the frequencies in a GGUF file: its keys and tensors of divisors as a ``Scaling``.

The ramp of YaRN is that of transformers. Rotated channels are multiplied by

    a = attn_factor g(s, m) / g(s, l)      g(s, m) = 1 + 0.1 m ln s      l = yarn_log_multiplier

where m is 1, and l is 0 if the key is missing. In DeepSeek architectures the key holds 0.1 l, and
the softmax scale is multiplied by (a g(s, l))^2; in deepseek2 itself m is l. Sources:
src/llama-context.cpp and src/models/deepseek2.cpp, which undo the factor 1 + 0.1 ln s that ggml's
rotation applies by itself.

Tensors hold divisors of the frequencies. Divisors that a formula gives are read as that formula:
Llama 3's, or the pairs of Gemma 4 that do not rotate.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from whorl.scaling import NTK, Ladder, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN
from whorl.scaling.yarn import compute_mscale

from ._gguf_layers import DEEPSEEK
from ._values import Keys
from .model import ConfigError, Note

__all__ = ["ORIGINAL", "GGUFScaling", "read_scaling"]

ORIGINAL = "rope.scaling.original_context_length"
_NO_ROTATION = 1e20  # divisors from here on mean a pair that does not rotate; files have 1e30
_AT_LOAD = Note(
    "longrope-at-load",
    "llama.cpp chooses the short or the long factors once, by the context size it is started"
    " with; here they switch at the current length.",
)


@dataclass(frozen=True)
class GGUFScaling:
    """The scaling of a GGUF file, with the factor on the softmax scale and notes."""

    scaling: Scaling | None = None
    softmax_scale: float = 1.0
    notes: tuple[Note, ...] = ()


def read_scaling(
    keys: Keys, ladder: Ladder, context: int | None, tensors: Mapping[str, tuple[float, ...]]
) -> GGUFScaling:
    """How llama.cpp scales the frequencies of ``ladder``."""
    kind = keys.read_text("rope.scaling.type") or "linear"
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise keys.wrong_value("rope.scaling.type", "none, linear, yarn or longrope")
    factor = keys.read_number("rope.scaling.factor")
    if factor is None:
        factor = keys.read_number("rope.scale_linear")
    factor = factor or 1.0  # 0 means no factor, like a missing key
    if factor <= 0:
        raise keys.wrong_value("rope.scaling.factor", "above 0")
    attention = keys.read_number("rope.scaling.attn_factor", above=0.0) or 1.0
    if _has_yarn_ramp(keys, kind):
        return _build_yarn(keys, factor, attention, context, "rope_freqs.weight" in tensors)
    multiplier = 1.0 if kind == "none" else factor
    divisors = tensors.get("rope_freqs.weight")
    if divisors is not None:
        return _build_from_divisors(
            keys, ladder, [multiplier * d for d in divisors], attention, context
        )
    short, long = (tensors.get(f"rope_factors_{side}.weight") for side in ("short", "long"))
    if short is not None and long is not None:
        near, far = ([multiplier * d for d in factors] for factors in (short, long))
        rule = LongRoPE(
            near, far, _require_trained_length(keys, context), attention_factor=attention
        )
        return GGUFScaling(rule, notes=(_AT_LOAD,))
    if short is not None or long is not None:
        raise ConfigError(
            "the tensors rope_factors_short and rope_factors_long must both be in the file, because"
            " LongRoPE switches between them; one is missing. Convert the model again."
        )
    alpha = keys.read_number("rope.scaling.alpha")
    if alpha:
        return GGUFScaling(NTK(alpha))
    if attention != 1.0:
        return _build_from_divisors(
            keys, ladder, [multiplier] * len(ladder.inv_freq), attention, context
        )
    return GGUFScaling(Linear(multiplier) if multiplier != 1.0 else None)


def _has_yarn_ramp(keys: Keys, kind: str) -> bool:
    """Whether YaRN is on: by yarn_ext_factor, which is 1 for type "yarn" and 0 for others."""
    name = "rope.scaling.yarn_ext_factor"
    weight = keys.read_number(name)
    if weight is None or weight < 0:
        return kind == "yarn"
    if weight not in (0.0, 1.0):
        raise keys.wrong_value(name, "0 or 1, because whorl cannot apply YaRN in part")
    return weight == 1.0


def _build_yarn(
    keys: Keys, factor: float, attention: float, context: int | None, divided: bool
) -> GGUFScaling:
    if divided:
        raise ConfigError(
            "a file must not have both YaRN and the tensor rope_freqs.weight; no model does."
        )
    weight = keys.read_number("rope.scaling.yarn_log_multiplier") or 0.0
    deepseek = keys.where in DEEPSEEK
    if deepseek:
        weight /= 0.1
    above = weight if keys.where == "deepseek2" and weight else 1.0
    below = compute_mscale(factor, weight)
    scale = attention * compute_mscale(factor, above) / below
    rule = YaRN(
        factor,
        _require_trained_length(keys, context),
        beta_fast=keys.read_number("rope.scaling.yarn_beta_fast") or 32.0,
        beta_slow=keys.read_number("rope.scaling.yarn_beta_slow") or 1.0,
        attention_factor=scale,
    )
    return GGUFScaling(rule, softmax_scale=(scale * below) ** 2 if deepseek else 1.0)


def _build_from_divisors(
    keys: Keys, ladder: Ladder, divisors: list[float], attention: float, context: int | None
) -> GGUFScaling:
    """The formula that gives these divisors; a LongRoPE with the divisors if there is none."""
    if len(divisors) != len(ladder.inv_freq):
        raise ConfigError(
            f"rope_freqs.weight must hold {len(ladder.inv_freq)} numbers, one for each"
            f" pair of the {ladder.rotary_dim} rotated channels; got {len(divisors)}."
        )
    if attention == 1.0:
        rotating = divisors.count(1.0)
        still = all(d >= _NO_ROTATION for d in divisors[rotating:])
        if still and rotating < len(divisors) and divisors[:rotating] == [1.0] * rotating:
            return GGUFScaling(Proportional(rotating / len(divisors)))
        rule = Llama3(max(1.0, divisors[-1]), keys.read_int(ORIGINAL) or 8192)
        wanted = ladder.inv_freq / rule.frequencies(ladder, None).inv_freq
        if all(abs(d - w) <= 1e-4 * w for d, w in zip(divisors, wanted.tolist(), strict=True)):
            return GGUFScaling(rule)
    known = keys.read_int(ORIGINAL) or context or 1
    return GGUFScaling(LongRoPE(divisors, divisors, known, attention_factor=attention))


def _require_trained_length(keys: Keys, context: int | None) -> int:
    found = keys.read_int(ORIGINAL) or context
    return keys.require(ORIGINAL, found, "the scaling needs it, or context_length")
