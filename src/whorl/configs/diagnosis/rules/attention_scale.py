"""YaRN's second half, a factor on the scores, which every framework reads from other keys."""

import math
from collections.abc import Iterator
from typing import Any

from whorl.configs.diagnosis.engine import Case, Edit, Symptom, rule
from whorl.configs.diagnosis.model import Patient
from whorl.configs.diagnosis.parts import Block, shown
from whorl.scaling.yarn import mscale

__all__: list[str] = []


def _yarn(**more: object) -> dict[str, Any]:
    return {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        **more,
    }


def _implied(block: Block) -> float | None:
    """The attention factor of a reader that does not know the key."""
    factor = block.number("factor")
    context, original = block.tower.context, block.original
    if factor is None and context and original:
        factor = context / original
    if factor is None or factor <= 0:
        return None
    if block.kind == "yarn":
        both = block.number("mscale"), block.number("mscale_all_dim")
        if both[0] and both[1]:
            bottom = mscale(factor, both[1])
            return None if bottom == 0 else mscale(factor, both[0]) / bottom
        return mscale(factor, 1.0)
    if original is None or original < 2 or factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))


@rule(
    "attention-factor-dropped",
    "warning",
    what="An attention_factor that some frameworks do not read.",
    why="transformers multiplies queries and keys by it. vLLM long computed its own from factor and"
    " mscale (0.32 still does for gpt-oss and DeepSeek), mlx-lm did so too, and llama.cpp has a"
    " third rule: scores differ by the square of the ratio.",
    remedy="Check that your software reads it (whorl inspect shows what each does), or leave it out"
    " if the implied value will do.",
    seen=(
        "https://github.com/vllm-project/vllm/pull/48351",
        "https://github.com/ml-explore/mlx-lm/pull/1507",
        "https://github.com/sgl-project/sglang/pull/33558",
    ),
    trigger=Case({"rope_scaling": _yarn(attention_factor=1.0)}),
    near_miss=Case({"rope_scaling": _yarn(attention_factor=1.138629)}),
)
def attention_factor_dropped(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        given = block.number("attention_factor")
        if block.kind not in ("yarn", "longrope") or given is None or given <= 0:
            continue
        implied = _implied(block)
        if given == block.tower.class_default("attention_factor"):
            continue  # software that runs this family knows it
        if implied is not None and abs(given - implied) > 1e-3 * abs(implied):
            yield Symptom(
                block.path("attention_factor"),
                f"attention_factor is {shown(given)}; a reader that drops it computes"
                f" {shown(implied)}.",
            )


@rule(
    "attention-factor-whole",
    "note",
    what="An attention_factor without a decimal point.",
    why="transformers asks for a float and warns about a whole number each time it loads; the"
    " result is the same.",
    remedy="Write 1.0 for 1.",
    seen=("https://github.com/huggingface/transformers/pull/37139",),
    trigger=Case({"rope_scaling": _yarn(attention_factor=1)}),
    near_miss=Case({"rope_scaling": _yarn(attention_factor=1.0)}),
)
def attention_factor_whole(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        given = block.keys.get("attention_factor")
        if block.kind == "yarn" and type(given) is int and abs(given) < 2**53:
            yield Symptom(
                block.path("attention_factor"),
                f"attention_factor is {given}, not {given}.0.",
                edits=(Edit("set", (*block.where, "attention_factor"), float(given)),),
            )


@rule(
    "mscale-alone",
    "warning",
    what="Only one of mscale and mscale_all_dim is there, or one of them is 0.",
    why="transformers divides one by the other if both are there and not 0, and otherwise ignores"
    " both: an mscale on its own does nothing. DeepSeek's own code and vLLM put 1 and 0 for the"
    " missing one and so get another scale. In models with latent attention mscale_all_dim is also"
    " what the softmax is scaled by: without it DeepSeek-V3 scores unrotated channels 1.9 times too"
    " low.",
    remedy="Give both the same value, as DeepSeek-V2 (0.707) and DeepSeek-V3 (1.0) do, or neither.",
    seen=(
        "https://github.com/turboderp-org/exllamav3/issues/259",
        "https://github.com/NVIDIA/Megatron-LM/issues/1429",
        "https://github.com/huggingface/transformers/pull/47435",
    ),
    trigger=Case({"rope_scaling": _yarn(mscale=0.707)}),
    near_miss=Case({"rope_scaling": _yarn(mscale=0.707, mscale_all_dim=0.707)}),
)
def mscale_alone(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        given = {name: block.number(name) for name in ("mscale", "mscale_all_dim")}
        there = [name for name, value in given.items() if value]
        if block.kind == "yarn" and len(there) == 1 and not block.has("attention_factor"):
            (name,) = there
            (other,) = set(given) - set(there)
            latent = other == "mscale_all_dim" and _is_mla(block)
            if name == "mscale" and given[name] == 1 and not latent:
                continue  # as without it, whoever reads
            weight = given[name] or 1.0
            scale = mscale(block.number("factor") or 1.0, weight)
            lost = scale * scale  # infinite where ** 2 would raise
            more = (
                ", so that latent attention does not scale its softmax; with mscale_all_dim"
                f" {shown(weight)} it would, by {lost:.4g}"
            )
            yield Symptom(
                block.path(name),
                f"{name} is {shown(given[name])} and {other} is"
                f" {shown(block.keys.get(other)) if other in block.keys else 'missing'}"
                f"{more if latent and lost > 1 else ''}.",
                remedy=f"Write {other} {weight:g} too if the model was trained so (DeepSeek-V2 and"
                f" -V3 have two equal values); else remove {name}.",
            )


@rule(
    "mscale-without-mla",
    "note",
    what="mscale_all_dim in a model whose softmax is not corrected by it.",
    why="With mscale equal to mscale_all_dim the rotation itself is not scaled, because DeepSeek's"
    " attention (MLA) scales the softmax by mscale_all_dim instead. Other attention does not, so"
    " YaRN's temperature is left out altogether; some engines put it back.",
    remedy="Nothing to do if the model was trained so; else leave both out, for 0.1 ln factor + 1.",
    seen=(
        "https://github.com/ggml-org/llama.cpp/pull/17945",
        "https://github.com/sgl-project/sglang/pull/33558",
    ),
    trigger=Case({"rope_scaling": _yarn(mscale=1.0, mscale_all_dim=1.0)}),
    near_miss=Case({"rope_scaling": _yarn()}),
)
def mscale_without_mla(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        implied, factor = _implied(block), block.number("factor")
        plain = None if factor is None else mscale(factor, 1.0)
        if block.kind != "yarn" or block.has("attention_factor") or not block.has("mscale_all_dim"):
            continue
        if _is_mla(block) or implied is None or plain is None or abs(implied - plain) < 1e-6:
            continue
        yield Symptom(
            block.path("mscale_all_dim"),
            f"the attention scale is {shown(implied)}, where YaRN alone has {shown(plain)}.",
        )


def _is_mla(block: Block) -> bool:
    """Whether the model has latent attention, by its keys or by those of its class."""
    known = block.tower.class_entry.get("keys", {})
    return any(keys.get("qk_rope_head_dim") is not None for keys in (block.tower.config, known))


@rule(
    "truncate-nested",
    "warning",
    what="truncate false inside the parameters of one layer type.",
    why="transformers 5 reads truncate from the outer dictionary even when parameters are per layer"
    " type, so the inner one is ignored and the ramp is rounded: frequencies differ by up to 43 %"
    " (measured, transformers 5.22.2).",
    remedy='Add "truncate": false to the outer dictionary too.',
    seen=("https://github.com/vllm-project/vllm/issues/27722",),
    trigger=Case(
        {
            "model_type": "olmo3",
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": _yarn(truncate=False, rope_theta=500000.0),
                "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
            },
        }
    ),
    near_miss=Case({"rope_scaling": _yarn(truncate=False)}),
)
def truncate_nested(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        if block.label is None or block.kind != "yarn" or block.keys.get("truncate") is not False:
            continue
        outer = block.tower.config[block.tower.source or ""]
        if outer.get("truncate") is not False:
            yield Symptom(
                block.path("truncate"),
                "transformers reads truncate from the outer dictionary, where it is not false.",
                edits=(Edit("set", (*block.where[:-1], "truncate"), False),),
            )


@rule(
    "truncate-dropped",
    "note",
    what="truncate false, which not every framework knows.",
    why="gpt-oss keeps the ends of YaRN's ramp unrounded. A reader that rounds them gets"
    " frequencies that are off by several per cent in the middle of the ramp.",
    remedy="Nothing in the config: check that your software reads truncate (whorl inspect).",
    seen=(
        "https://github.com/vllm-project/vllm/issues/27722",
        "https://github.com/keras-team/keras-hub/pull/2981",
        "https://github.com/apache/tvm/pull/18576",
    ),
    trigger=Case({"rope_scaling": _yarn(truncate=False)}),
    near_miss=Case({"rope_scaling": _yarn(truncate=True)}),
)
def truncate_dropped(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        if block.kind == "yarn" and block.keys.get("truncate") is False:
            yield Symptom(block.path("truncate"), "software that does not know it rounds the ramp.")
