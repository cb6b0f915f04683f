"""Options of ``RoPE`` and ``rope_parameters`` of transformers, from a rule and a scale."""

from typing import Any

from torch import Tensor

from whorl.configs import rope_parameters
from whorl.scaling import (
    DynamicLinear,
    DynamicNTK,
    DynamicYaRN,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    Scaling,
    YaRN,
)
from whorl.scaling.yarn import compute_mscale

from .frequency_rules import FrequencyRule, compute_frequencies
from .pairs import Pairs
from .rounding import list_roundings

__all__ = ["add_attention_scale", "build_rope_options", "build_rope_parameters"]

#: Context of a scaling of factor 1, which has an attention scale and changes no frequency.
_CARRIER_CONTEXT = 2048


def add_attention_scale(rule: FrequencyRule, scale: float, slack: float) -> FrequencyRule:
    """The rule with an attention scale, in the fewest options; slack: error of the scale."""
    if scale == 1.0:
        return rule
    old = rule.scaling
    if isinstance(old, (NTKByParts, Llama3)):
        return FrequencyRule(rule.base, _build_yarn(old, scale, slack), rule.inv_freq)
    if rule.base is not None and old is None:
        return FrequencyRule(rule.base, YaRN(1.0, _CARRIER_CONTEXT, attention_factor=scale))
    if isinstance(old, Linear) and old.factor >= 1:  # no pair rotates once within one position
        return FrequencyRule(
            rule.base, YaRN(old.factor, 1, ramp="rotations", attention_factor=scale)
        )
    if isinstance(old, (LongRoPE, DynamicNTK, DynamicLinear, DynamicYaRN)):
        return rule
    return FrequencyRule(None, None, rule.inv_freq)


def _build_yarn(old: NTKByParts | Llama3, scale: float, slack: float) -> YaRN:
    usual = abs(scale - compute_mscale(old.factor, 1.0)) <= 4 * slack
    attention = None if usual else scale
    if isinstance(old, Llama3):
        return YaRN(
            old.factor,
            old.original_context,
            beta_fast=old.high_freq_factor,
            beta_slow=old.low_freq_factor,
            ramp="rotations",
            attention_factor=attention,
        )
    return YaRN(
        old.factor,
        old.original_context,
        beta_fast=old.beta_fast,
        beta_slow=old.beta_slow,
        truncate=old.truncate,
        attention_factor=attention,
    )


def build_rope_options(
    rule: FrequencyRule, pairs: Pairs, head_dim: int, inv_freq: list[float], scale: float
) -> dict[str, Any]:
    """Keyword arguments of ``RoPE``, without defaults except the layout."""
    options: dict[str, Any] = {"head_dim": head_dim}
    if rule.base is not None:
        options["base"] = rule.base
    options["layout"] = pairs.layout or "half"
    if pairs.out_layout != pairs.layout:
        options["out_layout"] = pairs.out_layout
    if pairs.width != head_dim - pairs.start:
        options["rotary_dim"] = pairs.width
    if pairs.start:
        options["rotary_start"] = pairs.start
    if rule.base is None:
        options["inv_freq"] = inv_freq
    scaling = rule.scaling
    if rule.base is None and scale != 1.0:
        scaling = YaRN(1.0, _CARRIER_CONTEXT, ramp="rotations", attention_factor=scale)
    if scaling is not None:
        options["scaling"] = _drop_defaults(scaling)
    return options


def _drop_defaults(scaling: Scaling) -> dict[str, Any]:
    """Options of a scaling as a dict, without defaults."""
    fields = type(scaling).__dataclass_fields__
    full = scaling.to_dict()
    return {
        name: value
        for name, value in full.items()
        if name == "name" or getattr(scaling, name) != fields[name].default
    }


def build_rope_parameters(
    rule: FrequencyRule, scale: float, inv_freq: Tensor, pairs: Pairs, head_dim: int
) -> tuple[dict[str, Any] | None, list[str]]:
    """``rope_parameters`` of transformers, or None, and what they cannot express."""
    missing: list[str] = []
    if bool((inv_freq < 0).any()):
        return None, [
            "transformers has no rope type that rotates backwards (a model does it in code)"
        ]
    found = _choose_rope_type(rule, scale, inv_freq)
    if found is None:
        return None, ["transformers has no rope type for these frequencies"]
    parameters, said = found
    missing += said
    if pairs.width < head_dim:
        part = next(
            p
            for p in list_roundings(pairs.width / head_dim, 0.5)
            if int(head_dim * p) == pairs.width
        )
        parameters["partial_rotary_factor"] = part
    if pairs.layout != "half" or pairs.out_layout != "half":
        missing.append(
            "the layout: rope_parameters have no key for it, a family's code decides"
            " (llama: half; cohere, glm, gptj: interleaved)"
        )
    if pairs.start:
        missing.append(f"that rotation begins at channel {pairs.start}")
    return parameters, missing


def _choose_rope_type(
    rule: FrequencyRule, scale: float, inv_freq: Tensor
) -> tuple[dict[str, Any], list[str]] | None:
    scaling, base = rule.scaling, rule.base
    without = scaling is None or isinstance(scaling, (Linear, Llama3, Proportional))
    if base is not None and (scale == 1.0 or not without):
        found = rope_parameters(scaling, base, 2 * len(inv_freq))
        if found.parameters is not None:
            return dict(found.parameters), list(found.unsaid)
        if isinstance(scaling, (DynamicLinear, DynamicYaRN)):
            said = f"that frequencies follow the length past {scaling.original_context}"
            return {"rope_type": "default", "rope_theta": base}, [f"{said} ({scaling.name})"]
    if not bool((inv_freq > 0).all()):
        return None
    return _build_longrope(base or 10_000.0, scale, inv_freq), []


def _build_longrope(base: float, scale: float, inv_freq: Tensor) -> dict[str, Any]:
    """Any positive frequencies as LongRoPE, with the same divisors for short and long contexts."""
    divisors = [
        next(list_roundings(float(d), 1e-10))
        for d in compute_frequencies(base, len(inv_freq)) / inv_freq
    ]
    return {
        "rope_type": "longrope",
        "short_factor": divisors,
        "long_factor": divisors,
        "original_max_position_embeddings": _CARRIER_CONTEXT,
        "factor": 1.0,
        "attention_factor": float(scale),
        "rope_theta": base,
    }
