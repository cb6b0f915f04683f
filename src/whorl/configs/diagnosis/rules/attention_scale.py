"""YaRN's factor on the attention scores, which frameworks read from different keys."""

import math
from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Edit, Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import RopeDictionary, format_value
from whorl.scaling.yarn import compute_mscale

from ._examples import LAYER_TYPES, build_yarn

__all__: list[str] = []


def _compute_default_factor(rope: RopeDictionary) -> float | None:
    """The attention factor of software that does not read attention_factor."""
    factor = rope.get_number("factor")
    context, original = rope.part.context_length, rope.trained_length
    if factor is None and context and original:
        factor = context / original
    if factor is None or factor <= 0:
        return None
    if rope.rope_type == "yarn":
        both = rope.get_number("mscale"), rope.get_number("mscale_all_dim")
        if both[0] and both[1]:
            bottom = compute_mscale(factor, both[1])
            return None if bottom == 0 else compute_mscale(factor, both[0]) / bottom
        return compute_mscale(factor, 1.0)
    if original is None or original < 2 or factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))


@rule(
    "attention-factor-dropped",
    "warning",
    what="An attention_factor that some frameworks do not read.",
    why="transformers multiplies queries and keys by it. vLLM used to compute its own value from"
    " factor and mscale (0.32 still does so for gpt-oss and DeepSeek), and so did mlx-lm;"
    " llama.cpp has a third rule. The scores differ by the square of the ratio.",
    remedy="Check that your software reads it (whorl inspect shows what each does), or leave it"
    " out if the computed value is good enough.",
    seen=(
        "vllm-project/vllm/pull/48351",
        "ml-explore/mlx-lm/pull/1507",
        "sgl-project/sglang/pull/33558",
    ),
    trigger={"rope_scaling": build_yarn(attention_factor=1.0)},
    near_miss={"rope_scaling": build_yarn(attention_factor=1.138629)},
)
def check_attention_factor_dropped(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        given = rope.get_number("attention_factor")
        if rope.rope_type not in ("yarn", "longrope") or given is None or given <= 0:
            continue
        implied = _compute_default_factor(rope)
        if given == rope.part.get_class_default("attention_factor"):
            continue  # software that runs this family reads it
        if implied is not None and abs(given - implied) > 1e-3 * abs(implied):
            yield Problem(
                rope.path("attention_factor"),
                f"attention_factor is {format_value(given)}; software that does not read it uses"
                f" {format_value(implied)}.",
            )


@rule(
    "attention-factor-whole",
    "note",
    what="An attention_factor without a decimal point.",
    why="transformers expects a float and warns about an integer each time it loads the config;"
    " the result is the same.",
    remedy="Write 1.0 instead of 1.",
    seen=("huggingface/transformers/pull/37139",),
    trigger={"rope_scaling": build_yarn(attention_factor=1)},
    near_miss={"rope_scaling": build_yarn(attention_factor=1.0)},
)
def check_attention_factor_whole(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        given = rope.keys.get("attention_factor")
        if rope.rope_type == "yarn" and type(given) is int and abs(given) < 2**53:
            yield Problem(
                rope.path("attention_factor"),
                f"attention_factor is {given}, not {given}.0.",
                edits=(Edit("set", (*rope.where, "attention_factor"), float(given)),),
            )


@rule(
    "mscale-alone",
    "warning",
    what="Only one of mscale and mscale_all_dim is there, or one of them is 0.",
    why="transformers divides one by the other if both are there and not 0, and otherwise ignores"
    " both: an mscale alone does nothing. DeepSeek's own code and vLLM use 1 for a missing mscale"
    " and 0 for a missing mscale_all_dim, and get another scale. In models with latent attention"
    " mscale_all_dim also scales the softmax: without it, the scores of the unrotated channels of"
    " DeepSeek-V3 are too low by a factor of 1.9.",
    remedy="Give both the same value, as DeepSeek-V2 (0.707) and DeepSeek-V3 (1.0) do, or remove"
    " both.",
    seen=(
        "turboderp-org/exllamav3/issues/259",
        "NVIDIA/Megatron-LM/issues/1429",
        "huggingface/transformers/pull/47435",
    ),
    trigger={"rope_scaling": build_yarn(mscale=0.707)},
    near_miss={"rope_scaling": build_yarn(mscale=0.707, mscale_all_dim=0.707)},
)
def check_mscale_alone(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        given = {name: rope.get_number(name) for name in ("mscale", "mscale_all_dim")}
        there = [name for name, value in given.items() if value]
        if rope.rope_type == "yarn" and len(there) == 1 and not rope.has("attention_factor"):
            (name,) = there
            (other,) = set(given) - set(there)
            latent = other == "mscale_all_dim" and _is_mla(rope)
            if name == "mscale" and given[name] == 1 and not latent:
                continue  # as without it, whoever reads
            weight = given[name] or 1.0
            scale = compute_mscale(rope.get_number("factor") or 1.0, weight)
            lost = scale * scale  # infinite where ** 2 would raise
            more = (
                ", so latent attention does not scale its softmax; with mscale_all_dim"
                f" {format_value(weight)} it would scale it by {lost:.4g}"
            )
            yield Problem(
                rope.path(name),
                f"{name} is {format_value(given[name])} and {other} is"
                f" {format_value(rope.keys.get(other)) if other in rope.keys else 'missing'}"
                f"{more if latent and lost > 1 else ''}.",
                remedy=f"Add {other} {weight:g} if the model was trained like this (DeepSeek-V2 and"
                f" -V3 have two equal values); otherwise remove {name}.",
            )


@rule(
    "mscale-without-mla",
    "note",
    what="mscale_all_dim in a model whose attention does not scale its softmax by it.",
    why="If mscale equals mscale_all_dim, the rotation itself is not scaled, because DeepSeek's"
    " attention (MLA) scales the softmax by mscale_all_dim instead. Other attention does not do"
    " that, so YaRN's temperature is lost completely; some engines add it again.",
    remedy="Nothing to do if the model was trained like this; otherwise remove both, which gives"
    " 0.1 ln factor + 1.",
    seen=("ggml-org/llama.cpp/pull/17945", "sgl-project/sglang/pull/33558"),
    trigger={"rope_scaling": build_yarn(mscale=1.0, mscale_all_dim=1.0)},
    near_miss={"rope_scaling": build_yarn()},
)
def check_mscale_without_mla(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        implied, factor = _compute_default_factor(rope), rope.get_number("factor")
        plain = None if factor is None else compute_mscale(factor, 1.0)
        if (
            rope.rope_type != "yarn"
            or rope.has("attention_factor")
            or not rope.has("mscale_all_dim")
        ):
            continue
        if _is_mla(rope) or implied is None or plain is None or abs(implied - plain) < 1e-6:
            continue
        yield Problem(
            rope.path("mscale_all_dim"),
            f"the attention scale is {format_value(implied)}; YaRN alone would use"
            f" {format_value(plain)}.",
        )


def _is_mla(rope: RopeDictionary) -> bool:
    """Whether the model has latent attention, by its keys or by the keys of its class."""
    known = rope.part.class_entry.get("keys", {})
    return any(keys.get("qk_rope_head_dim") is not None for keys in (rope.part.keys, known))


@rule(
    "truncate-nested",
    "warning",
    what="truncate is false inside the parameters of one layer type.",
    why="transformers 5 reads truncate from the outer dictionary, even if there are parameters for"
    " each layer type. The inner one is ignored and the ends of the ramp are rounded: frequencies"
    " differ by up to 43 % (measured with transformers 5.22.2).",
    remedy='Add "truncate": false to the outer dictionary too.',
    seen=("vllm-project/vllm/issues/27722",),
    trigger={
        "model_type": "olmo3",
        "layer_types": LAYER_TYPES,
        "rope_parameters": {
            "full_attention": build_yarn(truncate=False, rope_theta=500000.0),
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        },
    },
    near_miss=RuleExample({"rope_scaling": build_yarn(truncate=False)}),
)
def check_truncate_nested(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        if (
            rope.layer_type is None
            or rope.rope_type != "yarn"
            or rope.keys.get("truncate") is not False
        ):
            continue
        outer = rope.part.keys[rope.part.used_key or ""]
        if outer.get("truncate") is not False:
            yield Problem(
                rope.path("truncate"),
                "transformers reads truncate from the outer dictionary, where it is not false.",
                edits=(Edit("set", (*rope.where[:-1], "truncate"), False),),
            )


@rule(
    "truncate-dropped",
    "note",
    what="truncate is false, and not every framework reads it.",
    why="gpt-oss does not round the ends of YaRN's ramp. In software that rounds them, frequencies"
    " in the middle of the ramp are wrong by several per cent.",
    remedy="Nothing in the config: check that your software reads truncate (whorl inspect).",
    seen=(
        "vllm-project/vllm/issues/27722",
        "keras-team/keras-hub/pull/2981",
        "apache/tvm/pull/18576",
    ),
    trigger={"rope_scaling": build_yarn(truncate=False)},
    near_miss={"rope_scaling": build_yarn(truncate=True)},
)
def check_truncate_dropped(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        if rope.rope_type == "yarn" and rope.keys.get("truncate") is False:
            yield Problem(
                rope.path("truncate"), "software that does not read it rounds the ends of the ramp."
            )
