"""Write a scaling as rope_parameters of transformers, which read back as the same rotation.

    linear, llama3, proportional, longrope     the types of these names
    yarn           "yarn"; with mscale_rule="each" a single mscale becomes an attention_factor
    ntk_by_parts   "yarn" with attention_factor 1
    ntk            a larger rope_theta, base s^(R / (R - 2)); also dynamic_ntk with alpha
    dynamic_ntk    "dynamic", whose trained length is max_position_embeddings

transformers has no type for dynamic_linear, dynamic_yarn, and ramp="rotations" of YaRN.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from whorl.scaling import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    Scaling,
    YaRN,
)
from whorl.scaling.yarn import compute_mscale

__all__ = ["RopeParameters", "rope_parameters", "write_parameters"]

_ORIGINAL = "original_max_position_embeddings"


@dataclass(frozen=True)
class RopeParameters:
    """rope_parameters, or the reason why there are none.

    unsaid: sentences about what other keys or code must add.
    """

    parameters: Mapping[str, Any] | None
    why: str | None = None
    unsaid: tuple[str, ...] = ()


def rope_parameters(scaling: Scaling | None, base: float, rotary_dim: int) -> RopeParameters:
    """The rope_parameters of transformers 5 for a scaling of ``rotary_dim`` channels and a base.

    >>> from whorl.scaling import Linear
    >>> rope_parameters(Linear(4.0), 10_000.0, 128).parameters
    {'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 4.0}
    """
    unsaid: tuple[str, ...] = ()
    kind, rest = "default", dict[str, Any]()
    match scaling:
        case None:
            pass
        case NTK() | DynamicNTK(alpha=float() | int()):
            base = _compute_raised_base(scaling, base, rotary_dim)
        case Linear():
            kind, rest = "linear", {"factor": scaling.factor}
        case Llama3():
            kind, rest = "llama3", _write_llama3(scaling)
        case Proportional():
            kind, rest = "proportional", {"partial_rotary_factor": scaling.rotary_share}
            rest |= {} if scaling.factor == 1 else {"factor": scaling.factor}
        case DynamicNTK():
            kind, rest = "dynamic", {"factor": scaling.factor}
            begins = f"max_position_embeddings: {scaling.original_context}"
            unsaid = (f"{begins}, from which on it scales",)
        case LongRoPE():
            kind, rest = "longrope", _write_longrope(scaling)
            unsaid = _describe_long_scale(scaling)
        case YaRN() | NTKByParts() if scaling.ramp != "rotations":
            kind, rest = "yarn", _write_yarn(scaling)
        case YaRN() | NTKByParts():
            return RopeParameters(
                None, f"transformers has no ramp by rotations, as {scaling.name!r} has"
            )
        case _:
            return RopeParameters(None, f"transformers has no type for {scaling.name!r}")
    return RopeParameters({"rope_type": kind, "rope_theta": base, **rest}, unsaid=unsaid)


def write_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """The rope_parameters for the options of a rotation that was read in another dialect."""
    width = options.get("rotary_dim") or options["head_dim"]
    found = rope_parameters(options.get("scaling"), options["base"], width)
    assert found.parameters is not None, found.why
    share = {"partial_rotary_factor": width / options["head_dim"]}
    return {**(share if "rotary_dim" in options else {}), **found.parameters}


def _compute_raised_base(scaling: NTK | DynamicNTK, base: float, rotary_dim: int) -> float:
    multiplier = scaling.factor if isinstance(scaling, NTK) else scaling.alpha
    assert multiplier is not None
    if rotary_dim <= 2:  # the only pair is the fastest one, which NTK leaves unchanged
        return base
    return float(base * multiplier ** (rotary_dim / (rotary_dim - 2)))


def _write_llama3(scaling: Llama3) -> dict[str, Any]:
    return {
        "factor": scaling.factor,
        _ORIGINAL: scaling.original_context,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
    }


def _write_yarn(scaling: YaRN | NTKByParts) -> dict[str, Any]:
    """Keys of type "yarn", without those that have the default of transformers."""
    keys: dict[str, Any] = {"factor": scaling.factor, _ORIGINAL: scaling.original_context}
    for name, usual in (("beta_fast", 32.0), ("beta_slow", 1.0), ("truncate", True)):
        if getattr(scaling, name) != usual:
            keys[name] = getattr(scaling, name)
    if isinstance(scaling, NTKByParts):
        return {**keys, "attention_factor": 1.0}
    above, below = scaling.mscale, scaling.mscale_all_dim
    if scaling.attention_factor is not None:
        keys["attention_factor"] = float(scaling.attention_factor)
    elif scaling.mscale_rule == "each" and (above is not None or below) and not (above and below):
        over = compute_mscale(scaling.factor, 1.0 if above is None else above)
        keys["attention_factor"] = over / compute_mscale(scaling.factor, below or 0.0)
    given = {"mscale": above, "mscale_all_dim": below}
    return {**keys, **{name: value for name, value in given.items() if value is not None}}


def _write_longrope(scaling: LongRoPE) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "short_factor": list(scaling.short_factors),
        "long_factor": list(scaling.long_factors),
        _ORIGINAL: scaling.original_context,
        "factor": 1.0 if scaling.factor is None else scaling.factor,
    }
    if scaling.attention_factor is not None:
        keys["attention_factor"] = float(scaling.attention_factor)
    return keys


def _describe_long_scale(scaling: LongRoPE) -> tuple[str, ...]:
    past = scaling.long_attention_factor
    if past is None or past == scaling.attention_factor:
        return ()
    return (f"the attention scale {past} past {scaling.original_context} tokens",)
