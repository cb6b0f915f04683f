"""How vLLM 0.32.0 reads a config: get_rope and the model files of its wheel. Found by reading.

    default    partial_rotary_factor is read in every family
    yarn       attention_factor, the two mscales and truncate are read, as in transformers; gpt_oss
               passes on a dictionary without attention_factor and mscales
    MLA        a single mscale is applied; truncate and attention_factor are not read, except that
               attention_factor 1 switches off the correction of the softmax scale
    dynamic    computed once for the length in the config, where the factor is 1: no scaling
    longrope   long factors for every text if the longest allowed text exceeds the trained length;
               the attention scale follows from the two lengths, attention_factor is not read

Earlier versions ignored attention_factor in every family. Families that were not read are
"unknown".
"""

from dataclasses import replace
from typing import Any

from whorl._support.words import quote
from whorl.scaling import DynamicNTK, LongRoPE, Proportional, YaRN
from whorl.scaling.yarn import MscaleRule
from whorl.types import Layout

from .base import ConfiguredLayers, FrameworkReading, Remark, make_unknown

__all__ = ["BASIS", "FAMILIES", "NAME", "VERSION", "read"]

NAME, VERSION, BASIS = "vLLM", "0.32.0", "by reading"

_MODELS = "vLLM 0.32.0, models"
_ROPE = "vLLM 0.32.0, rotary_embedding"
_EACH: MscaleRule = "each"

FAMILIES: dict[str, Layout] = {
    "cohere": "interleaved",
    "cohere2": "interleaved",
    "deepseek_v2": "interleaved",
    "deepseek_v3": "interleaved",
    "gemma": "half",
    "gemma2": "half",
    "gemma3_text": "half",
    "glm4": "interleaved",
    "gpt_oss": "half",
    "granite": "half",
    "llama": "half",
    "mistral": "half",
    "mixtral": "half",
    "modernbert": "half",
    "phi3": "half",
    "qwen2": "half",
    "qwen2_moe": "half",
    "qwen3": "half",
    "qwen3_moe": "half",
    "stablelm": "half",
}


def read(case: ConfiguredLayers) -> FrameworkReading:
    kind = case.model_type
    if kind not in FAMILIES:
        return make_unknown(f"the model file of {quote(kind)} was not read")
    remarks: list[Remark] = []
    options, at, softmax = case.options, None, 1.0
    own = options.get("scaling")
    _set_rotated_width(case, options, remarks)
    if isinstance(own, YaRN) and kind.startswith("deepseek"):
        options["scaling"], softmax = _read_latent_yarn(case, own, remarks)
    elif isinstance(own, YaRN) and kind == "gpt_oss":
        options["scaling"] = _read_gpt_oss_yarn(own, remarks)
    elif isinstance(own, DynamicNTK) and own.alpha is None:
        options.pop("scaling")
        text = "'dynamic' is computed once for the length in the config, where it changes nothing"
        remarks.append(Remark(text, f"{_ROPE}/dynamic_ntk_scaling_rope.py"))
    elif isinstance(own, LongRoPE):
        options["scaling"], at = _read_longrope(case, own, remarks), case.context
    elif isinstance(own, Proportional) and own.factor != 1:
        options["scaling"] = replace(own, factor=1.0)
        remarks.append(Remark("factor is not read", f"{_ROPE}/__init__.py"))
    return FrameworkReading(options, at, softmax, FAMILIES[kind], tuple(remarks))


def _set_rotated_width(
    case: ConfiguredLayers, options: dict[str, Any], remarks: list[Remark]
) -> None:
    share = case.parameters.get("partial_rotary_factor")
    if not isinstance(share, (int, float)) or isinstance(options.get("scaling"), Proportional):
        return
    width = int(options["head_dim"] * share)
    if width != (options.get("rotary_dim") or options["head_dim"]):
        options["rotary_dim"] = width
        text = f"partial_rotary_factor is read: {width} channels rotate"
        remarks.append(Remark(text, f"{_ROPE}/__init__.py"))


def _read_latent_yarn(
    case: ConfiguredLayers, own: YaRN, remarks: list[Remark]
) -> tuple[YaRN, float]:
    where = f"{_MODELS}/deepseek_v2.py"
    if not own.truncate:
        text = "truncate is not read: the ends of the ramp are always rounded"
        remarks.append(Remark(text, f"{_ROPE}/deepseek_scaling_rope.py"))
    scaling = replace(own, attention_factor=None, truncate=True, mscale_rule=_EACH)
    if bool(own.mscale) != bool(own.mscale_all_dim):
        text = "mscale or mscale_all_dim alone is applied"
        remarks.append(Remark(text, f"{_ROPE}/deepseek_scaling_rope.py"))
    if own.attention_factor is None:
        return scaling, case.group.softmax_scale
    if own.attention_factor == 1:
        remarks.append(Remark("attention_factor 1 leaves the softmax scale unchanged", where))
        return scaling, 1.0
    remarks.append(Remark("attention_factor is not read", where))
    return scaling, case.group.softmax_scale


def _read_gpt_oss_yarn(own: YaRN, remarks: list[Remark]) -> YaRN:
    if own.attention_factor is not None or (own.mscale and own.mscale_all_dim):
        text = "attention_factor and the mscales are not passed on"
        remarks.append(Remark(text, f"{_MODELS}/gpt_oss.py"))
    return replace(own, attention_factor=None, mscale=None, mscale_all_dim=None)


def _read_longrope(case: ConfiguredLayers, own: LongRoPE, remarks: list[Remark]) -> LongRoPE:
    where = f"{_ROPE}/phi3_long_rope_scaled_rope.py"
    text = "the longest allowed text chooses long or short factors for all texts"
    remarks.append(Remark(text, where))
    given = case.parameters
    if given.get("attention_factor") is not None:
        remarks.append(Remark("attention_factor is not read", where))
    return LongRoPE(
        own.short_factors,
        own.long_factors,
        own.original_context,
        factor=case.context / own.original_context,
        attention_factor=given.get("short_mscale"),
        long_attention_factor=given.get("long_mscale"),
    )
