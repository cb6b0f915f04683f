"""Lengths and factors that contradict each other.

An extended model works up to factor times original_max_position_embeddings, its trained length.
max_position_embeddings is this extended length in some configs (DeepSeek-V3, gpt-oss) and the
trained length in others (Qwen2.5); both conventions are in use.
"""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Edit, Problem, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import RopeDictionary, format_value
from whorl.configs.limits import MOST_TOKENS

from ._disagreement import find_disagreements
from ._examples import build_extended
from ._vocabulary import ORIGINAL

__all__: list[str] = []

_TWO_CONVENTIONS = "NVIDIA/Megatron-LM/issues/1418"
_EXTENDING_TYPES = ("linear", "yarn", "longrope")


def _read_lengths(rope: RopeDictionary) -> tuple[int, int, float] | None:
    """Context length, trained length and factor of an extension; None if one of them is missing."""
    context, original, factor = (
        rope.part.context_length,
        rope.trained_length,
        rope.get_number("factor"),
    )
    if rope.rope_type not in (*_EXTENDING_TYPES, "llama3") or context is None or original is None:
        return None
    if factor is None or factor < 1 or factor * original > MOST_TOKENS:
        return None  # factor-below-one and impossible-value report it
    return context, original, factor


@rule(
    "factor-mismatch",
    "warning",
    what="factor is not the ratio of the two lengths.",
    why="max_position_embeddings is between the trained length and factor times the trained"
    " length. transformers 4.52 to 4.55 ignored factor and used the ratio; later versions use"
    " factor; servers use one or the other as the longest request. For llama3 only equal lengths"
    " are a contradiction, because its published configs have other ratios.",
    remedy="Set max_position_embeddings to factor times original_max_position_embeddings.",
    seen=("huggingface/transformers/issues/38224", "QwenLM/Qwen3/issues/1424"),
    trigger=build_extended(40960, 32768),
    near_miss={"max_position_embeddings": 131072},
)
def check_factor_mismatch(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        found = _read_lengths(rope)
        if found and rope.rope_type == "llama3":
            context, original, factor = found
            if context == original and factor > 1:
                yield Problem(
                    rope.path("factor"),
                    f"factor is {format_value(factor)}, which extends the model, but"
                    " max_position_embeddings and original_max_position_embeddings are both"
                    f" {original}, as in a model without an extension.",
                    remedy="Write the max_position_embeddings of the published config (Llama 3.1:"
                    " 131072), or remove the scaling.",
                )
        elif found and found[1] < found[0] < 0.99 * found[1] * found[2]:
            context, original, factor = found
            yield Problem(
                rope.path("factor"),
                f"factor is {format_value(factor)}, but {context} / {original} ="
                f" {context / original:.4g}: max_position_embeddings is neither the trained length"
                f" nor factor times that, {factor * original:.0f}.",
            )


@rule(
    "beyond-factor",
    "warning",
    what="max_position_embeddings is longer than factor times the trained length.",
    why="Slow pairs rotate at 1/factor of their speed, so they stay within the angles of training"
    " up to factor times the trained length. Beyond that length they have out-of-distribution"
    " angles, which the scaling should prevent.",
    remedy="Raise factor to the ratio of the lengths, or lower max_position_embeddings.",
    seen=(_TWO_CONVENTIONS, "vllm-project/vllm/issues/10293"),
    trigger=build_extended(32768, 4096),
    near_miss=build_extended(32768, 4096, factor=8.0),
)
def check_beyond_factor(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        # llama3 works beyond factor times the trained length.
        found = _read_lengths(rope) if rope.rope_type != "llama3" else None
        if found and found[0] > 1.01 * found[1] * found[2]:
            context, original, factor = found
            yield Problem(
                rope.path("factor"),
                f"factor {format_value(factor)} extends {original} tokens to"
                f" {factor * original:.0f}; max_position_embeddings is {context}.",
            )


@rule(
    "max-is-trained",
    "note",
    what="max_position_embeddings is the trained length, not the extended one.",
    why="Both conventions are in use. Software that takes it for the longest request cuts requests"
    " off, or warns, at the trained length; vLLM multiplies it by factor; other software takes it"
    " for the length that the scaling starts from.",
    remedy="Nothing to do if your software multiplies; otherwise set max_position_embeddings to"
    " factor times original_max_position_embeddings.",
    seen=(_TWO_CONVENTIONS, "jquesnelle/yarn/issues/34"),
    trigger=build_extended(32768, 32768),
    near_miss={"max_position_embeddings": 131072},
)
def check_max_is_trained(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        found = _read_lengths(rope)
        if found and found[0] == found[1] and found[2] > 1 and rope.rope_type in ("linear", "yarn"):
            context, original, factor = found
            yield Problem(
                rope.part.path("max_position_embeddings"),
                f"it is {context}, the trained length; factor {format_value(factor)} extends it to"
                f" {factor * original:.0f}.",
            )


@rule(
    "original-missing",
    "warning",
    what="The scaling needs the trained length, original_max_position_embeddings, and it is"
    " missing.",
    why="Without original_max_position_embeddings all software uses max_position_embeddings in its"
    " place. If that is the extended length, YaRN and Llama 3 do not slow pairs that they should"
    " slow, and LongRoPE never changes to the long factors.",
    remedy="Add original_max_position_embeddings, the length before the extension.",
    seen=(
        "microsoft/onnxruntime-genai/pull/2311",
        "NVIDIA-NeMo/Speech/issues/14686",
        "jquesnelle/yarn/issues/40",
    ),
    trigger={
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    },
    near_miss={
        "model_type": "phi3",
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0] * 64,
            "long_factor": [1.0] * 16 + [32.0] * 48,
        },
    },
)
def check_original_missing(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        context = rope.part.context_length
        if model.reading is not None and rope.part.reading is None:
            continue  # beside-the-text reports it
        given = rope.keys.get(ORIGINAL), rope.part.keys.get(ORIGINAL)
        absent = all(value is None for value in given)  # other rules report a wrong value
        if rope.rope_type in ("yarn", "longrope", "llama3") and absent:
            said = "" if context is None else f", {context},"
            yield Problem(
                rope.path("original_max_position_embeddings"),
                f"{rope.rope_type} starts from it; without it max_position_embeddings{said} is used"
                " as the trained length.",
            )


@rule(
    "original-beyond-max",
    "warning",
    what="The trained length is longer than the length that the model may be used with.",
    why="original_max_position_embeddings is larger than max_position_embeddings. Either the two"
    " are swapped, or someone lowered max_position_embeddings to save memory. That also changes"
    " what LongRoPE computes, and what is computed for a missing factor.",
    remedy="Keep the published lengths, and limit the length in the software that serves the"
    " model.",
    seen=("huggingface/optimum-habana/pull/1923",),
    trigger=build_extended(4096, 32768),
    near_miss={"max_position_embeddings": 32768},
)
def check_original_beyond_max(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        context, original = rope.part.context_length, rope.trained_length
        if (
            context is None
            or original is None
            or rope.rope_type not in (*_EXTENDING_TYPES, "llama3")
        ):
            continue
        if original > context:
            factor = rope.get_number("factor") or 1.0
            more = (
                f", although factor {format_value(factor)} extends the model" if factor > 1 else ""
            )
            yield Problem(
                rope.path("original_max_position_embeddings"),
                f"it is {original}, and max_position_embeddings is {context}{more}.",
            )


@rule(
    "original-disagrees",
    "warning",
    what="original_max_position_embeddings is there twice, inside and beside the rope parameters,"
    " with different values.",
    why="transformers 5 uses the one beside the parameters, unlike for rope_theta and"
    " partial_rotary_factor; most other software uses the one inside. YaRN's ramp and the length"
    " at which LongRoPE changes to the long factors depend on it.",
    remedy="Remove the wrong one.",
    seen=("huggingface/transformers/pull/42513",),
    trigger={"original_max_position_embeddings": 8192, **build_extended(16384, 4096)},
    near_miss={"original_max_position_embeddings": 4096},
)
def check_original_disagrees(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        if any(rope.rope_type in ("yarn", "longrope", "llama3") for rope in part.used_parameters):
            yield from find_disagreements(part, ORIGINAL)


@rule(
    "factor-below-one",
    "error",
    what="A factor below 1.",
    why="The factor says how many times longer the context gets. Some tools use the inverse"
    " (llama.cpp's --rope-freq-scale 0.25 is a factor of 4). As a factor, 0.25 rotates every pair"
    " four times faster than in training.",
    remedy="Write the new length divided by the old length, which is above 1.",
    seen=("jquesnelle/yarn/issues/6", "axolotl-ai-cloud/axolotl/issues/342"),
    trigger={"rope_scaling": {"rope_type": "linear", "factor": 0.25}},
    near_miss={"rope_scaling": {"rope_type": "linear", "factor": 4}},
)
def check_factor_below_one(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.written_parameters:
        factor = rope.get_number("factor")
        if factor is not None and factor < 1 and rope.rope_type not in ("default", "axial"):
            inverse = f"; did you mean {1 / factor:.6g}?" if factor > 1e-6 else "."
            yield Problem(rope.path("factor"), f"factor is {format_value(factor)}{inverse}")


@rule(
    "factor-missing",
    "warning",
    what="YaRN with a factor of null.",
    why="transformers then uses max_position_embeddings / original_max_position_embeddings; other"
    " software stops.",
    remedy="Write that ratio.",
    seen=("huggingface/transformers/issues/38224",),
    trigger=build_extended(131072, 32768, factor=None),
    near_miss=build_extended(131072, 32768),
)
def check_factor_missing(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        if rope.rope_type != "yarn" or "factor" not in rope.keys or rope.has("factor"):
            continue
        context, original = rope.part.context_length, rope.trained_length
        edits: tuple[Edit, ...] = ()
        if context and original and context > original:
            edits = (Edit("set", (*rope.where, "factor"), context / original),)
        yield Problem(rope.path("factor"), "factor is null.", edits=edits)
