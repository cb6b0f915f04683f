"""Options of ``RoPE``, ``XPos`` and ``rope_parameters`` of transformers, from measured parts."""

import math
from dataclasses import replace
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
    YaRN,
)
from whorl.scaling.yarn import compute_mscale

from .by_parts import list_ramp_options
from .frequency_rules import FrequencyRule
from .identification import Identification
from .measured_function import MeasuredRotation
from .pairs import Pairs
from .rounding import compute_frequencies, list_roundings

__all__ = ["add_attention_scale", "add_xpos", "build_rope_options", "build_rope_parameters"]

#: Context of a scaling of factor 1, which has an attention scale and changes no frequency.
_CARRIER_CONTEXT = 2048


def add_attention_scale(rule: FrequencyRule, scale: float, slack: float) -> FrequencyRule:
    """The rule with an attention scale, in the fewest options; slack: error of the scale."""
    if scale == 1.0:
        return rule
    old = rule.scaling
    if isinstance(old, (NTKByParts, Llama3)):
        usual = abs(scale - compute_mscale(old.factor, 1.0)) <= 4 * slack
        options = {**list_ramp_options(old), "attention_factor": None if usual else scale}
        yarn = YaRN(old.factor, old.original_context, **options)
        return FrequencyRule(rule.base, yarn, rule.inv_freq)
    if rule.base is not None and old is None:
        return FrequencyRule(rule.base, YaRN(1.0, _CARRIER_CONTEXT, attention_factor=scale))
    if isinstance(old, Linear) and old.factor >= 1:  # no pair rotates once within one position
        return FrequencyRule(
            rule.base, YaRN(old.factor, 1, ramp="rotations", attention_factor=scale)
        )
    if isinstance(old, (LongRoPE, DynamicNTK, DynamicLinear, DynamicYaRN)):
        return rule
    return FrequencyRule(None, None, rule.inv_freq)


def build_rope_options(
    rule: FrequencyRule, pairs: Pairs, inv_freq: list[float], scale: float
) -> dict[str, Any]:
    """Keyword arguments of ``RoPE``, without defaults except the layout."""
    options: dict[str, Any] = {"head_dim": pairs.head_dim}
    if rule.base is not None:
        options["base"] = rule.base
    options["layout"] = pairs.layout or "half"
    if pairs.out_layout != pairs.layout:
        options["out_layout"] = pairs.out_layout
    if pairs.width != pairs.head_dim - pairs.start:
        options["rotary_dim"] = pairs.width
    if pairs.start:
        options["rotary_start"] = pairs.start
    if rule.base is None:
        options["inv_freq"] = inv_freq
    scaling = rule.scaling
    if rule.base is None and scale != 1.0:
        scaling = YaRN(1.0, _CARRIER_CONTEXT, ramp="rotations", attention_factor=scale)
    if scaling is not None:
        fields = type(scaling).__dataclass_fields__
        options["scaling"] = {
            name: value
            for name, value in scaling.to_dict().items()
            if name == "name" or getattr(scaling, name) != fields[name].default
        }
    return options


def build_rope_parameters(
    rule: FrequencyRule, scale: float, inv_freq: Tensor, pairs: Pairs
) -> tuple[dict[str, Any] | None, list[str]]:
    """``rope_parameters`` of transformers, or None, and what they cannot express."""
    if bool((inv_freq < 0).any()):
        return None, [
            "transformers has no rope type that rotates backwards (a model does it in code)"
        ]
    found = _choose_rope_type(rule, scale, inv_freq)
    if found is None:
        return None, ["transformers has no rope type for these frequencies"]
    parameters, missing = found
    if pairs.width < pairs.head_dim:
        shares = list_roundings(pairs.width / pairs.head_dim, 0.5)
        fitting = next(share for share in shares if int(pairs.head_dim * share) == pairs.width)
        parameters["partial_rotary_factor"] = fitting
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


def add_xpos(
    found: Identification, function: MeasuredRotation, pairs: Pairs, departs: list[str]
) -> Identification:
    """The identification as XPos, if sizes change with the position p as zeta_i^(p/s) does.

    If they change by another rule, that is added to ``departs``.
    """
    growth, unit = function.rotations.growth.mean(-1), function.rounding_unit
    if float(growth.abs().max()) * 15 <= max(1e-9, 64 * unit):
        return found
    role, power = ("query", "p/s") if float(growth.sum()) < 0 else ("key", "-p/s")
    steps = pairs.index.double() / (pairs.width // 2)
    fitted = _fit_gamma(growth if role == "query" else -growth, steps, unit)
    if fitted is None:
        departs.append(f"sizes change by up to {float(growth.abs().max()):.2g} per position")
    if fitted is None or found.base is None:
        return found
    options = {name: value for name, value in (found.config or {}).items() if name != "scaling"}
    for name, value, default in zip(("gamma", "scale_base"), fitted, (0.4, 512), strict=True):
        if value != default:
            options[name] = value
    note = f"an XPos {role}: the size of each pair is zeta^({power})"
    return replace(
        found,
        encoding="xpos",
        role=role,
        config=options,
        hf=None,
        scaling=None,
        notes=(note, *found.notes),
    )


def _fit_gamma(falling: Tensor, steps: Tensor, unit: float) -> tuple[float, float] | None:
    """gamma and s with ln((2 i/R + gamma) / (1 + gamma)) / s = falling, by bisection, or None."""
    if len(falling) < 2:
        return None
    middle = len(falling) // 2
    wanted = float(falling[middle] / falling[0])

    def curve(gamma: float) -> Tensor:
        return ((steps + gamma) / (1 + gamma)).log()

    low, high = 1e-6, 1e3
    for _ in range(200):
        gamma = math.sqrt(low * high)
        values = curve(gamma)
        low, high = (gamma, high) if float(values[middle] / values[0]) < wanted else (low, gamma)
    for rounded in list_roundings(gamma, 1e-3):
        values = curve(rounded)
        base = float(values[0] / falling[0])
        for scale_base in list_roundings(base, 1e-3):
            misfit = (values / scale_base - falling).abs()
            if float(misfit.max()) <= max(1e-9, 16 * unit):  # zeta may be computed in float32
                return rounded, scale_base
    return None
