"""How llama.cpp reads a config that its converter writes to a GGUF file. Found by reading.

    yarn       the ends of the ramp are always rounded; attention_factor is written to the file and
               then overwritten by 0.1 ln s + 1; mscale counts as 1; only the DeepSeek
               architecture reads mscale_all_dim; the factor 1 + 0.1 ln s of the kernel is
               divided out first
    llama3     becomes a tensor of divisors, with a trained length of 8192 unless the config has
               original_max_position_embeddings at its top level
    longrope   both lists of factors are tensors; the context size at start chooses one of them
    dynamic    not written to the file: no scaling

Source: ggml-org/llama.cpp after its pull request 17945 (December 2025), at the commits below; the
commit of llama-model.cpp is not known. Older versions have another rule for YaRN's attention scale.
Families whose converter was not read are "unknown", and so are the sliding layers of Gemma 3.
"""

from dataclasses import dataclass, replace
from typing import Any

from whorl._support.words import quote
from whorl.scaling import Llama3, LongRoPE, YaRN
from whorl.scaling.yarn import compute_mscale

from .base import ConfiguredLayers, FrameworkReading, Remark, make_unknown

__all__ = ["BASIS", "FAMILIES", "NAME", "VERSION", "read"]

NAME, VERSION, BASIS = "llama.cpp", "#17945+", "by reading"

_CONTEXT = "llama.cpp src/llama-context.cpp @001d906a6d86"
_BASE = "llama.cpp conversion/base.py @00bd27a621f9"
_LLAMA = "llama.cpp conversion/llama.py @0274f0fc7d7f"
_PHI = "llama.cpp conversion/phi.py @051139f51130"
_DEEPSEEK = "llama.cpp conversion/deepseek.py @01a723dc630d"
_GRAPH = "llama.cpp src/models/deepseek2.cpp @07bede6a8f32"
_MODEL = "llama.cpp src/llama-model.cpp, commit not known"
_NEOX_FILE = "llama.cpp conversion/gpt_neox.py @7bca1fd9ca2a"


@dataclass(frozen=True)
class ConverterRules:
    """What the converter and llama_model_rope_type do with one family.

    normal: interleaved layout, which llama.cpp calls "normal"; else half layout.
    permuted: the converter reorders q and k from half to interleaved, with the same result.
    divisors: the converter writes the tensor of divisors for Llama 3.
    bare: source of a converter that writes neither base nor scaling; the base is 10000 then.
    """

    normal: bool = False
    permuted: bool = False
    divisors: bool = False
    bare: str | None = None


_LLAMA_LIKE = ConverterRules(normal=True, permuted=True, divisors=True)
_HALF, _NORMAL = ConverterRules(), ConverterRules(normal=True)

FAMILIES: dict[str, ConverterRules] = {
    "deepseek_v2": _NORMAL,
    "deepseek_v3": _NORMAL,
    "gemma3_text": _HALF,
    "glm4": _NORMAL,
    "gpt_neox": ConverterRules(bare=_NEOX_FILE),
    "gpt_oss": _HALF,
    "llama": _LLAMA_LIKE,
    "mistral": _LLAMA_LIKE,
    "mixtral": _LLAMA_LIKE,
    "phi": ConverterRules(bare=_PHI),
    "phi3": _HALF,
    "qwen2": _HALF,
    "qwen2_moe": _HALF,
    "qwen3": _HALF,
    "qwen3_moe": _HALF,
    "smollm3": _LLAMA_LIKE,
}


def read(case: ConfiguredLayers) -> FrameworkReading:
    kind = case.model_type
    family = FAMILIES.get(kind)
    if family is None:
        return make_unknown(f"what the converter does with {quote(kind)} was not read")
    if kind == "gemma3_text" and case.group.window is not None:
        return make_unknown("the scaling factor of sliding layers was not found")
    remarks: list[Remark] = []
    options, at, softmax = case.options, None, case.group.softmax_scale
    if family.bare is not None:
        if options.pop("scaling", None) is not None or options.get("base") != 10_000:
            remarks.append(Remark("neither base nor scaling is written: 10000, none", family.bare))
        options["base"] = 10_000.0
        return FrameworkReading(options, None, 1.0, "half", tuple(remarks))
    own = options.get("scaling")
    if isinstance(own, YaRN):
        options["scaling"], softmax = _read_yarn(case, own, remarks)
    elif isinstance(own, Llama3):
        if not family.divisors:
            return make_unknown(
                "whether the converter of this family writes the divisors of Llama 3"
            )
        options["scaling"] = _read_llama3(case, own, remarks)
    elif isinstance(own, LongRoPE):
        if kind != "phi3":
            return make_unknown("what the converter of this family does with LongRoPE")
        options["scaling"], at = _read_longrope(case, own, remarks), case.context
    elif case.kind == "dynamic":
        options.pop("scaling", None)
        remarks.append(Remark("'dynamic' is not written to the file: no scaling", _BASE))
    elif case.kind not in ("default", "linear"):
        return make_unknown(f"what the converter does with rope_type {quote(case.kind)}")
    if family.permuted:
        remarks.append(Remark("the converter reorders q and k to the interleaved layout", _LLAMA))
    interleaved = family.normal and not family.permuted
    return FrameworkReading(
        options, at, softmax, "interleaved" if interleaved else "half", tuple(remarks)
    )


def _read_yarn(case: ConfiguredLayers, own: YaRN, remarks: list[Remark]) -> tuple[YaRN, float]:
    given: dict[str, Any] = dict(case.parameters)
    if own.attention_factor is not None:
        text = "attention_factor is overwritten: 0.1 ln s + 1, or the ratio of two mscales"
        remarks.append(Remark(text, _CONTEXT))
    if not own.truncate:
        remarks.append(
            Remark("truncate is not read: the ends of the ramp are always rounded", _BASE)
        )
    scaling = replace(own, attention_factor=None, mscale=None, mscale_all_dim=None, truncate=True)
    wide = given.get("mscale_all_dim")
    deep = case.model_type in ("deepseek_v2", "deepseek_v3")
    if not deep or not wide:
        if given.get("mscale") and wide:
            remarks.append(Remark("mscale and mscale_all_dim are not read: 0.1 ln s + 1", _BASE))
        if not deep:
            return scaling, 1.0
        remarks.append(
            Remark("without mscale_all_dim the softmax scale has (0.1 ln s + 1)^2", _GRAPH)
        )
        return scaling, compute_mscale(own.factor, 1.0) ** 2
    # llama-context.cpp uses mscale_all_dim in place of mscale.
    if given.get("mscale", 1.0) != wide:
        remarks.append(Remark(f"mscale counts as {wide:g}", _CONTEXT))
    remarks.append(
        Remark("the softmax scale includes the square of mscale_all_dim's factor", _DEEPSEEK)
    )
    return replace(scaling, mscale=wide, mscale_all_dim=wide), compute_mscale(own.factor, wide) ** 2


def _read_llama3(case: ConfiguredLayers, own: Llama3, remarks: list[Remark]) -> Llama3:
    trained = case.data.get("original_max_position_embeddings", 8192)
    if trained != own.original_context:
        text = f"original_max_position_embeddings is read at the top level only: {trained} here"
        remarks.append(Remark(text, _LLAMA))
    return replace(own, original_context=trained)


def _read_longrope(case: ConfiguredLayers, own: LongRoPE, remarks: list[Remark]) -> LongRoPE:
    text = "the context size at start chooses long or short factors for all texts"
    remarks.append(Remark(text, f"{_MODEL}, get_rope_factors"))
    factor = case.context / own.original_context
    if own.attention_factor is not None or own.long_attention_factor is not None:
        remarks.append(Remark("the attention scale follows from the two lengths alone", _PHI))
    return LongRoPE(own.short_factors, own.long_factors, own.original_context, factor=factor)
