"""What happens at the length that the model is to be used at."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from whorl.configs.diagnosis.engine import Case, Symptom, rule
from whorl.configs.diagnosis.patient import Patient, number, whole
from whorl.configs.diagnosis.turning import Turning
from whorl.configs.inspection.pairs import measure_angle_error
from whorl.scaling.aliasing import alike

__all__: list[str] = []

_BOUND = "https://arxiv.org/abs/2405.14591"
_FLOAT32_COUNTS = 2**24
#: Contexts this many times the bound are noted unasked.
_FAR_BEYOND = 16


def _length(patient: Patient, turned: Turning) -> int | None:
    return patient.length or turned.model.context


def _frequencies(turned: Turning, length: int) -> Tensor:
    """Of the pairs that turn."""
    found = turned.frequencies(length)
    return found[found > 0]


def _claimed_context(turned: Turning) -> int | None:
    """The length that the model says it is good for, whichever of its keys says so.

    None where it does not say, or where the frequencies follow the length without end.
    """
    parameters, context = turned.group.parameters, turned.model.context
    kind, factor = parameters.get("rope_type"), number(parameters.get("factor")) or 1.0
    original = whole(parameters.get("original_max_position_embeddings"))
    if context is None or kind == "dynamic":
        return None
    start = original if original is not None else context
    stretched = start * factor if kind in ("linear", "yarn", "llama3") else 0
    return int(min(max(context, stretched), 2.0**62))


@rule(
    "beyond-seen",
    "warning",
    what="Pairs come to angles that they never took within the model's own context.",
    why="A pair that does not complete a turn within the context has seen only part of the circle."
    " At a longer length it comes to new angles, for which attention was never trained: text gets"
    " worse within a few hundred tokens.",
    remedy="Extend the model: whorl inspect CONFIG --extend yarn --factor F shows what to write.",
    seen=("https://arxiv.org/abs/2306.15595", "https://arxiv.org/abs/2309.00071"),
    trigger=Case({}, length=8192),
    near_miss=Case(
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 2.0,
                "original_max_position_embeddings": 4096,
            }
        },
        length=8192,
    ),
)
def beyond_seen(patient: Patient) -> Iterator[Symptom]:
    for turned in patient.turning:
        context, length = _claimed_context(turned), patient.length
        if context is None or length is None or turned.reach(length) <= context:
            continue
        inv_freq = _frequencies(turned, length)
        unfinished = int((inv_freq * context < 2 * torch.pi).sum())
        if unfinished:
            yield Symptom(
                turned.path("max_position_embeddings"),
                f"at {length} tokens {unfinished} of {len(inv_freq)} pairs come to angles that"
                f" {context} tokens never showed; that is a factor of {length / context:.3g}.",
            )


@rule(
    "aliasing",
    "warning",
    what="Far tokens look as near as tokens two apart: the base is too small for the length.",
    why="The mean cosine of all pairs says how alike two positions look. With few pairs or a small"
    " base they all come back to their start together, and a far token then scores like a near"
    " one. Looked for within 32,768 tokens for 64 pairs, farther for fewer.",
    remedy="Raise rope_theta before training, rotate more channels, or use a shorter context.",
    seen=(_BOUND,),
    trigger=Case({"head_dim": 8, "num_attention_heads": 512, "rope_theta": 10.0}),
    near_miss=Case({"head_dim": 64, "num_attention_heads": 64, "rope_theta": 10000.0}),
)
def aliasing(patient: Patient) -> Iterator[Symptom]:
    for turned in patient.turning:
        length, rotation = _length(patient, turned), turned.group.rotation
        if length is None or rotation is None or rotation.encoding != "rope":
            continue  # pairs of different axes do not move together
        inv_freq = _frequencies(turned, length)
        found = alike(inv_freq, turned.reach(length))
        if found is not None:
            yield Symptom(
                turned.path("rope_theta"),
                f"tokens {found.distance} apart look {found.similarity:.2f} alike, those 2 apart"
                f" {found.near:.2f}.",
            )


@rule(
    "base-bound",
    "note",
    what="rope_theta is too small to find far tokens by what they say, at this length.",
    why="A key that equals the query scores, on average, the mean of cos(distance x frequency) over"
    " all pairs; an unrelated key scores 0. Beyond some distance, which grows with rope_theta, that"
    " mean can fall below 0, so that a match scores worse than no match. Models used at longer"
    " distances keep their perplexity and lose retrieval (Men et al. 2024). Most models are"
    " somewhat beyond; without --length it is said of those whose context is more than 16 times"
    " that distance.",
    remedy="Nothing, where text far back need not be found again. Else a larger rope_theta for that"
    " length, or a scaling; trained models need further training with it.",
    seen=(_BOUND,),
    trigger=Case({"rope_theta": 10000.0}, length=32768),
    near_miss=Case({"rope_theta": 5000000.0, "max_position_embeddings": 32768}, length=32768),
)
def base_bound(patient: Patient) -> Iterator[Symptom]:
    for turned in patient.turning:
        asked = _length(patient, turned)
        if asked is None:
            continue
        inv_freq, length = _frequencies(turned, asked), turned.reach(asked)
        if not 0 < len(inv_freq) <= 4096:
            continue
        first = _first_below_zero(inv_freq, length)
        if first is not None and (patient.length is not None or length > _FAR_BEYOND * first):
            yield Symptom(
                turned.path("rope_theta"),
                "a token that matches the query exactly can score below an unrelated one from about"
                f" {first} tokens away on; texts have up to {length}.",
            )


def _first_below_zero(inv_freq: Tensor, length: int) -> int | None:
    """The first distance whose mean cosine is below 0: exact up to 16,384, to a per cent beyond."""
    near = torch.arange(1, min(length, 16_384) + 1, dtype=torch.float64)
    far = torch.arange(math.log(16_384), max(math.log(length), 9.71), 0.01, dtype=torch.float64)
    for distance in (*torch.split(near, 1024), far.exp().round().clamp(max=length)):
        below = (torch.cos(distance[:, None] * inv_freq).mean(-1) < 0).nonzero()
        if len(below):
            return int(distance[int(below[0])])
    return None


@rule(
    "float32-angles",
    "note",
    what="Angles formed in float32 are off by more than 0.02 radians at this length.",
    why="transformers, vLLM and most others multiply a float32 position by a float32 frequency: 24"
    " bits for the whole turns and the rest together. Scores between far tokens carry that error.",
    remedy="whorl forms angles in float64; where weights were trained in float32 at that length,"
    ' precision="float32" repeats what they saw.',
    seen=(
        "https://github.com/EleutherAI/gpt-neox/issues/1003",
        "https://github.com/huggingface/transformers/pull/29285",
    ),
    trigger=Case({"rope_theta": 500000.0}, length=1_048_576),
    near_miss=Case({"rope_theta": 500000.0}, length=131_072),
)
def float32_angles(patient: Patient) -> Iterator[Symptom]:
    for turned in patient.turning:
        length = _length(patient, turned)
        if length is None or length > 2**53:
            continue
        inv_freq = _frequencies(turned, length)
        error = measure_angle_error(inv_freq, length)
        if error > 0.02:
            yield Symptom(
                turned.path("max_position_embeddings"),
                f"near {length} tokens float32 angles are off by up to {min(error, 3.15):.2g}"
                " radians.",
            )


@rule(
    "uncountable-positions",
    "warning",
    what="More positions than float32 can count.",
    why="Above 16,777,216 neighbouring whole numbers share one float32, so that tokens next to each"
    " other get the same position in every framework that converts positions to float32.",
    remedy="Keep positions whole until they are multiplied, in float64, as whorl does.",
    seen=("https://github.com/NVIDIA/Megatron-LM/issues/535",),
    trigger=Case({"rope_theta": 500000.0}, length=33_554_432),
    near_miss=Case({"rope_theta": 500000.0}, length=16_777_216),
)
def uncountable_positions(patient: Patient) -> Iterator[Symptom]:
    for turned in patient.turning:
        length = _length(patient, turned)
        if length is not None and length > _FLOAT32_COUNTS:
            yield Symptom(
                turned.path("max_position_embeddings"),
                f"{length} positions; float32 counts to {_FLOAT32_COUNTS}.",
            )


@rule(
    "half-positions",
    "note",
    what="A rotary model in half precision that brings code of its own, which may compute positions"
    " in half precision too.",
    why="Many such models build their tables of cosines and sines in the dtype of the model."
    " bfloat16 holds every whole number up to 256 and float16 up to 2048; above that neighbouring"
    " positions are rounded to the same number, and their tokens are rotated alike.",
    remedy="Look into the model's own code: its rotary module should compute positions and"
    " frequencies in float32.",
    seen=(
        "https://github.com/EleutherAI/gpt-neox/issues/1003",
        "https://github.com/huggingface/transformers/issues/25681",
        "https://github.com/sgl-project/sglang-jax/issues/1472",
    ),
    trigger=Case({"torch_dtype": "bfloat16", "auto_map": {"AutoModel": "modeling_x.X"}}),
    near_miss=Case({"torch_dtype": "bfloat16"}),
)
def half_positions(patient: Patient) -> Iterator[Symptom]:
    counts = {"bfloat16": 256, "float16": 2048}
    for tower in patient.towers:
        name = "dtype" if tower.config.get("dtype") is not None else "torch_dtype"
        given = tower.config.get(name)
        most = counts.get(given) if isinstance(given, str) else None
        length = patient.length or tower.context
        if not tower.config.get("auto_map") or not patient.rotates(tower):
            continue  # indices of learned positions are integers; ALiBi has no tables
        if most and length and length > most:
            yield Symptom(
                tower.path(name),
                f"the model runs in {given}, which is exact for whole numbers up to {most}, and has"
                f" up to {length} positions; whether its own code (auto_map) computes positions in"
                f" {given} is not known.",
            )
