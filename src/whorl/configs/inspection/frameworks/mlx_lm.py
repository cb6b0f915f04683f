"""How mlx-lm 0.32.2 reads a config: models/rope_utils.py, and what each model file passes to it.

    initialize   the file calls ``initialize_rope`` with its ``rope_scaling``
    plain        the file builds ``nn.RoPE`` and reads no scaling
    phi3         the file has its own rule

A config for transformers 5 has no ``rope_theta`` and no ``rope_scaling``; a file that does not read
``rope_parameters`` then uses its default base and no scaling, without a warning. The tests build
the models of this table with the installed mlx-lm and compare.
"""

from dataclasses import dataclass
from typing import Any, Literal

from whorl._support.words import quote
from whorl.scaling import DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN

from .base import ConfiguredLayers, FrameworkReading, Remark, make_refusal, make_unknown

__all__ = ["BASIS", "FAMILIES", "NAME", "VERSION", "ModelFileRules", "read"]

NAME, VERSION, BASIS = "mlx-lm", "0.32.2", "executed in tests"

_UTILS = "mlx-lm 0.32.2, models/rope_utils.py"


@dataclass(frozen=True)
class ModelFileRules:
    """How one model file of mlx-lm reads a config.

    base: the default; None if it refuses a config without rope_theta.
    traditional: interleaved layout, as mlx-lm calls it. switch: whether it reads rope_traditional.
    current: whether it reads ``rope_parameters``.
    partial: the key for the rotated share of a head; None if the whole head rotates.
    share: the default of that key.
    """

    rule: Literal["initialize", "plain", "phi3"] = "initialize"
    base: float | None = 10_000.0
    traditional: bool = False
    switch: bool = False
    current: bool = False
    partial: str | None = None
    share: float = 1.0
    file: str | None = None


FAMILIES: dict[str, ModelFileRules] = {
    "cohere": ModelFileRules("plain", 8e6, traditional=True),
    "cohere2": ModelFileRules("plain", 50_000.0, traditional=True),
    "deepseek_v3": ModelFileRules(traditional=True),
    "gemma": ModelFileRules("plain", switch=True),
    "gemma2": ModelFileRules("plain", switch=True),
    "gemma3_text": ModelFileRules(base=1e6),
    "glm4": ModelFileRules(
        "plain", None, traditional=True, switch=True, partial="partial_rotary_factor"
    ),
    "gpt_neox": ModelFileRules("plain", None, partial="rotary_pct"),
    "gpt_oss": ModelFileRules(base=150_000.0),
    "granite": ModelFileRules(base=None),
    "llama": ModelFileRules(switch=True),
    "mistral": ModelFileRules(switch=True, file="llama"),
    "mixtral": ModelFileRules("plain", 1e6, switch=True),
    "olmo2": ModelFileRules(switch=True),
    "phi": ModelFileRules("plain", partial="partial_rotary_factor", share=0.4),
    "phi3": ModelFileRules("phi3", switch=True, partial="partial_rotary_factor"),
    "qwen2": ModelFileRules(base=1e6, switch=True),
    "qwen3": ModelFileRules(base=None, current=True),
    "qwen3_moe": ModelFileRules("plain", None),
    "seed_oss": ModelFileRules(switch=True),
    "smollm3": ModelFileRules(switch=True, file="smollm3"),
    "stablelm": ModelFileRules("plain", None, partial="partial_rotary_factor"),
    "starcoder2": ModelFileRules("plain", 100_000.0),
}


def read(case: ConfiguredLayers) -> FrameworkReading:
    family = FAMILIES.get(case.model_type)
    if family is None:
        return make_unknown(f"the model file of {quote(case.model_type)} was not read")
    name = family.file or case.model_type
    file = f"mlx-lm 0.32.2, models/{name}.py"
    options, remarks = case.options, list[Remark]()
    options.pop("scaling", None)
    base = _find_base(case, family)
    if "rope_theta" in case.data and case.data["rope_theta"] is None:
        return make_unknown("what it does with a rope_theta of null was not tested")
    if base is None:
        if family.base is None:
            looked = "rope_parameters has none" if family.current else "rope_parameters is not read"
            return make_refusal(f"the base is required, and {looked}", file)
        base = family.base
        if base != case.options.get("base"):
            remarks.append(Remark(f"a missing rope_theta counts as {base:g}", file))
    if not _is_tested(case, family):
        return make_unknown("configs in this form were not tested with it")
    options["base"] = base
    _set_rotated_width(case, family, options, remarks, file)
    if _is_local(case):
        options["base"] = float(case.data.get("rope_local_base_freq", 10_000.0))
        return _build_reading(case, family, options, None, [])
    if case.current_schema and not family.current and not case.data.get("rope_scaling"):
        remarks.append(Remark("rope_parameters is not read: no scaling, without a warning", file))
        return _build_reading(case, family, options, None, remarks)
    given = case.data.get("rope_scaling") or case.data.get("rope_parameters")
    if case.kind == "default" or not isinstance(given, dict):
        return _build_reading(case, family, options, None, remarks)
    if family.rule == "plain":
        remarks.append(Remark("rope_scaling is not read: no scaling", file))
        return _build_reading(case, family, options, None, remarks)
    if family.rule == "phi3":
        return _read_phi3(case, family, options, dict(given), file)
    return _read_initialize_rope(case, family, options, _select_parameters(case, given))


def _set_rotated_width(
    case: ConfiguredLayers,
    family: ModelFileRules,
    options: dict[str, Any],
    remarks: list[Remark],
    file: str,
) -> None:
    share = case.data.get(family.partial, family.share) if family.partial else 1.0
    width = int(options["head_dim"] * share)
    if width != (options.get("rotary_dim") or options["head_dim"]):
        options["rotary_dim"] = width
        remarks.append(Remark(f"{width} channels of a head rotate", file))


def _find_base(case: ConfiguredLayers, family: ModelFileRules) -> float | None:
    """The base under the key that the model file reads; None if it is missing."""
    name = "rotary_emb_base" if case.model_type == "gpt_neox" else "rope_theta"
    found, new = case.data.get(name), case.data.get("rope_parameters")
    if found is None and family.current and isinstance(new, dict):
        found = new.get("rope_theta")
    return None if found is None else float(found)


def _is_tested(case: ConfiguredLayers, family: ModelFileRules) -> bool:
    """Whether the tests run the model file on configs in this form."""
    given = [case.data.get("rope_scaling")]
    given += [case.data.get("rope_parameters")] if family.current else []
    inside = [value for rope in given if isinstance(rope, dict) for value in rope.values()]
    return (
        not any(isinstance(value, dict) for value in inside) and len(list(filter(None, given))) < 2
    )


def _is_local(case: ConfiguredLayers) -> bool:
    """Whether these are sliding layers of Gemma 3, which have another base and no scaling."""
    return case.model_type == "gemma3_text" and case.group.name == "sliding_attention"


def _select_parameters(case: ConfiguredLayers, given: dict[str, Any]) -> dict[str, Any]:
    inner = given.get(case.group.name or "")
    return dict(inner) if isinstance(inner, dict) else dict(given)


def _build_reading(
    case: ConfiguredLayers,
    family: ModelFileRules,
    options: dict[str, Any],
    at: int | None,
    remarks: list[Remark],
) -> FrameworkReading:
    softmax = case.group.softmax_scale if "scaling" in options else 1.0
    said = case.data.get("rope_traditional") if family.switch else None
    traditional = family.traditional if said is None else bool(said)
    layout: Literal["half", "interleaved"] = "interleaved" if traditional else "half"
    return FrameworkReading(options, at, softmax, layout, tuple(remarks))


def _read_phi3(
    case: ConfiguredLayers,
    family: ModelFileRules,
    options: dict[str, Any],
    given: dict[str, Any],
    file: str,
) -> FrameworkReading:
    kind = given.get("type")
    if kind is None or "long_factor" not in given:
        return make_refusal("rope_scaling must have 'type' and 'long_factor'", file)
    if kind not in ("longrope", "su", "linear"):
        dropped = Remark(
            f"type {quote(kind)} is printed as a warning and dropped: no scaling", file
        )
        return _build_reading(case, family, options, None, [dropped])
    known = "linear" if kind == "linear" else "longrope"
    return _read_initialize_rope(case, family, options, {**given, "type": known})


def _read_initialize_rope(
    case: ConfiguredLayers, family: ModelFileRules, options: dict[str, Any], given: dict[str, Any]
) -> FrameworkReading:
    """The reading by ``initialize_rope``, where ``type`` comes before ``rope_type``."""
    kind = given.get("type") or given.get("rope_type", "default")
    remarks: list[Remark] = []
    at = None
    own = case.options.get("scaling")
    if kind == "linear":
        options["scaling"] = Linear(given["factor"])
    elif kind == "dynamic":
        if case.model_type == "gpt_oss":
            return make_refusal(
                "'dynamic' gets no length there and fails on the first text", _UTILS
            )
        options["scaling"] = DynamicNTK(given["factor"], case.context)
        text = "every call uses the base for its length; keys cached before keep the old one"
        remarks.append(Remark(text, f"{_UTILS}, DynamicNTKScalingRoPE"))
    elif kind == "llama3":
        options["scaling"] = _read_llama3(given, remarks)
    elif kind in ("yarn", "deepseek_yarn", "telechat3-yarn"):
        options["scaling"] = _read_yarn(given, remarks)
    elif kind == "longrope" and isinstance(own, LongRoPE):
        options["scaling"], at = _read_longrope(case, own, given, remarks), own.original_context + 1
    elif kind == "proportional":
        share = given.get("partial_rotary_factor", 1.0)
        options["scaling"] = Proportional(share, given.get("factor", 1.0))
    elif kind not in ("default", "mrope"):
        return make_refusal(f"rope type {quote(kind)} is an error", _UTILS)
    return _build_reading(case, family, options, at, remarks)


def _read_llama3(given: dict[str, Any], remarks: list[Remark]) -> Llama3:
    if "original_max_position_embeddings" not in given:
        text = "a missing original_max_position_embeddings counts as 8192"
        remarks.append(Remark(text, f"{_UTILS}, Llama3RoPE"))
    return Llama3(
        given["factor"],
        given.get("original_max_position_embeddings", 8192),
        given.get("low_freq_factor", 1.0),
        given.get("high_freq_factor", 4.0),
    )


def _read_yarn(given: dict[str, Any], remarks: list[Remark]) -> YaRN:
    where = f"{_UTILS}, YarnRoPE"
    for key, meaning in (
        ("attention_factor", "attention_factor is not read"),
        ("truncate", "truncate is not read: the ends of the ramp are always rounded"),
    ):
        if given.get(key) is not None:
            remarks.append(Remark(meaning, where))
    if bool(given.get("mscale")) != bool(given.get("mscale_all_dim")):
        remarks.append(Remark("mscale or mscale_all_dim alone is applied", where))
    if "original_max_position_embeddings" not in given:
        remarks.append(Remark("a missing original length counts as 4096", where))
    return YaRN(
        given["factor"],
        given.get("original_max_position_embeddings", 4096),
        beta_fast=given.get("beta_fast", 32),
        beta_slow=given.get("beta_slow", 1),
        mscale=given.get("mscale", 1),
        mscale_all_dim=given.get("mscale_all_dim", 0),
        mscale_rule="each",
    )


def _read_longrope(
    case: ConfiguredLayers, own: LongRoPE, given: dict[str, Any], remarks: list[Remark]
) -> LongRoPE:
    where = f"{_UTILS}, SuScaledRoPE"
    remarks.append(Remark("the long factors are used at every length, in short texts too", where))
    for key in ("attention_factor", "short_mscale", "long_mscale"):
        if given.get(key) is not None:
            remarks.append(Remark(f"{key} is not read", where))
    factor = case.context / own.original_context
    return LongRoPE(own.short_factors, own.long_factors, own.original_context, factor=factor)
