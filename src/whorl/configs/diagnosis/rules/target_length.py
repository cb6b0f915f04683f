"""What happens at the length at which the model is used."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from whorl.configs.diagnosis.engine import Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel, RotaryGroup
from whorl.configs.diagnosis.parts import read_number, read_whole
from whorl.configs.inspection.pairs import measure_angle_error
from whorl.scaling.aliasing import find_alias

from ._examples import build_yarn

__all__: list[str] = []

_BASE_BOUND_PAPER = "https://arxiv.org/abs/2405.14591"
_FLOAT32_COUNTS = 2**24
#: A context this many times longer than the bound is reported even without --length.
_FAR_BEYOND = 16


def _choose_length(model: DiagnosedModel, rotary: RotaryGroup) -> int | None:
    """The length that the caller named, else the context length of the config."""
    return model.length or rotary.context


def _get_frequencies(rotary: RotaryGroup, length: int) -> Tensor:
    """Frequencies of the pairs that rotate."""
    found = rotary.get_frequencies(length)
    return found[found > 0]


def _compute_claimed_context(rotary: RotaryGroup) -> int | None:
    """The longest length that the config claims, by any of its keys.

    None if it claims none, or if the frequencies depend on the length without an upper limit.
    """
    parameters, context = rotary.group.parameters, rotary.context
    kind, factor = parameters.get("rope_type"), read_number(parameters.get("factor")) or 1.0
    original = read_whole(parameters.get("original_max_position_embeddings"))
    if context is None or kind == "dynamic":
        return None
    start = original if original is not None else context
    extended = start * factor if kind in ("linear", "yarn", "llama3") else 0
    return int(min(max(context, extended), 2.0**62))


@rule(
    "beyond-seen",
    "warning",
    what="At this length pairs have angles that they never have within the model's own context.",
    why="A pair whose wavelength is longer than the context has seen only a part of the circle in"
    " training. At a longer length it has out-of-distribution angles, for which attention was"
    " never trained: the text gets worse within a few hundred tokens.",
    remedy="Extend the model: whorl inspect CONFIG --extend yarn --factor F shows what to write.",
    seen=("https://arxiv.org/abs/2306.15595", "https://arxiv.org/abs/2309.00071"),
    trigger=RuleExample({}, length=8192),
    near_miss=RuleExample({"rope_scaling": build_yarn(2.0, 4096)}, length=8192),
)
def check_beyond_seen(model: DiagnosedModel) -> Iterator[Problem]:
    for rotary in model.rotary_groups:
        context, length = _compute_claimed_context(rotary), model.length
        if context is None or length is None or rotary.get_longest_distance(length) <= context:
            continue
        inv_freq = _get_frequencies(rotary, length)
        unfinished = int((inv_freq * context < 2 * torch.pi).sum())
        if unfinished:
            yield Problem(
                rotary.part.path("max_position_embeddings"),
                f"at {length} tokens {unfinished} of {len(inv_freq)} pairs have angles that do not"
                f" occur within {context} tokens; that is a factor of {length / context:.3g}.",
            )


@rule(
    "aliasing",
    "warning",
    what="Tokens far away look as similar as tokens at distance 2: the base is too small for the"
    " length.",
    why="The mean cosine of all pairs says how similar two positions look. With few pairs or a"
    " small base, all pairs return to their start at the same distance, and a token there scores"
    " like a near one. Distances up to 32,768 are searched for 64 pairs, longer ones for fewer"
    " pairs.",
    remedy="Raise rope_theta before training, rotate more channels, or use a shorter context.",
    seen=(_BASE_BOUND_PAPER,),
    trigger={"head_dim": 8, "num_attention_heads": 512, "rope_theta": 10.0},
    near_miss={"head_dim": 64, "num_attention_heads": 64, "rope_theta": 10000.0},
)
def check_aliasing(model: DiagnosedModel) -> Iterator[Problem]:
    for rotary in model.rotary_groups:
        length, rotation = _choose_length(model, rotary), rotary.group.rotation
        if length is None or rotation is None or rotation.encoding != "rope":
            continue  # pairs of different axes have different positions
        inv_freq = _get_frequencies(rotary, length)
        found = find_alias(inv_freq, rotary.get_longest_distance(length))
        if found is not None:
            yield Problem(
                rotary.part.path("rope_theta"),
                f"tokens at distance {found.distance} have a mean cosine of {found.similarity:.2f},"
                f" those at distance 2 have {found.near:.2f}.",
            )


@rule(
    "base-bound",
    "note",
    what="rope_theta is too small to find distant tokens by their content at this length.",
    why="A key that equals the query scores, on average, the mean of cos(distance x frequency)"
    " over all pairs; an unrelated key scores 0. Beyond some distance, which grows with"
    " rope_theta, that mean can fall below 0, so that a match scores worse than no match. Models"
    " that are used at longer distances keep their perplexity and lose retrieval (Men et al."
    " 2024). Most models exceed this distance to some degree; without --length the note is given"
    " only if the context is more than 16 times that distance.",
    remedy="Nothing, if the model need not find text far back. Otherwise use a larger rope_theta"
    " for that length, or a scaling; trained models need further training with it.",
    seen=(_BASE_BOUND_PAPER,),
    trigger=RuleExample({"rope_theta": 10000.0}, length=32768),
    near_miss=RuleExample(
        {"rope_theta": 5000000.0, "max_position_embeddings": 32768}, length=32768
    ),
)
def check_base_bound(model: DiagnosedModel) -> Iterator[Problem]:
    for rotary in model.rotary_groups:
        used = _choose_length(model, rotary)
        if used is None:
            continue
        inv_freq, length = _get_frequencies(rotary, used), rotary.get_longest_distance(used)
        if not 0 < len(inv_freq) <= 4096:
            continue
        first = _find_first_below_zero(inv_freq, length)
        if first is not None and (model.length is not None or length > _FAR_BEYOND * first):
            yield Problem(
                rotary.part.path("rope_theta"),
                "a token that matches the query exactly can score below an unrelated one from a"
                f" distance of about {first} tokens on; distances are up to {length}.",
            )


def _find_first_below_zero(inv_freq: Tensor, length: int) -> int | None:
    """The first distance whose mean cosine is below 0; beyond 16,384 accurate to one per cent."""
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
    what="Angles computed in float32 are wrong by more than 0.02 radians at this length.",
    why="transformers, vLLM and most others multiply a float32 position by a float32 frequency, so"
    " 24 bits hold both the number of rotations and the remaining angle. Scores between distant"
    " tokens contain that error.",
    remedy="whorl computes angles in float64. If the weights were trained with float32 angles at"
    ' that length, precision="float32" computes the same ones.',
    seen=("EleutherAI/gpt-neox/issues/1003", "huggingface/transformers/pull/29285"),
    trigger=RuleExample({"rope_theta": 500000.0}, length=1_048_576),
    near_miss=RuleExample({"rope_theta": 500000.0}, length=131_072),
)
def check_float32_angles(model: DiagnosedModel) -> Iterator[Problem]:
    for rotary in model.rotary_groups:
        length = _choose_length(model, rotary)
        if length is None or length > 2**53:
            continue
        inv_freq = _get_frequencies(rotary, length)
        error = measure_angle_error(inv_freq, length)
        if error > 0.02:
            yield Problem(
                rotary.part.path("max_position_embeddings"),
                f"near {length} tokens float32 angles are wrong by up to {min(error, 3.15):.2g}"
                " radians.",
            )


@rule(
    "uncountable-positions",
    "warning",
    what="More positions than float32 can count.",
    why="Above 16,777,216 two successive integers can have the same float32 value, so neighbouring"
    " tokens get the same position in every framework that converts positions to float32.",
    remedy="Keep positions as integers until they are multiplied, in float64, as whorl does.",
    seen=("NVIDIA/Megatron-LM/issues/535",),
    trigger=RuleExample({"rope_theta": 500000.0}, length=33_554_432),
    near_miss=RuleExample({"rope_theta": 500000.0}, length=16_777_216),
)
def check_uncountable_positions(model: DiagnosedModel) -> Iterator[Problem]:
    for rotary in model.rotary_groups:
        length = _choose_length(model, rotary)
        if length is not None and length > _FLOAT32_COUNTS:
            yield Problem(
                rotary.part.path("max_position_embeddings"),
                f"there are {length} positions; float32 counts up to {_FLOAT32_COUNTS}.",
            )


@rule(
    "half-positions",
    "note",
    what="A rotary model in half precision that has its own code, which may compute positions in"
    " half precision too.",
    why="Many such models build their tables of cosines and sines in the dtype of the model."
    " bfloat16 holds every integer up to 256 and float16 up to 2048; above that, neighbouring"
    " positions are rounded to the same number, and their tokens are rotated by the same angles.",
    remedy="Check the model's own code: its rotary module should compute positions and frequencies"
    " in float32.",
    seen=(
        "EleutherAI/gpt-neox/issues/1003",
        "huggingface/transformers/issues/25681",
        "sgl-project/sglang-jax/issues/1472",
    ),
    trigger={"torch_dtype": "bfloat16", "auto_map": {"AutoModel": "modeling_x.X"}},
    near_miss=RuleExample({"torch_dtype": "bfloat16"}),
)
def check_half_positions(model: DiagnosedModel) -> Iterator[Problem]:
    counts = {"bfloat16": 256, "float16": 2048}
    for part in model.parts:
        name = "dtype" if part.has("dtype") else "torch_dtype"
        given = part.keys.get(name)
        most = counts.get(given) if isinstance(given, str) else None
        length = model.length or part.context_length
        if not part.keys.get("auto_map") or not model.has_rotary_layers(part):
            continue  # learned positions have integer indices; ALiBi has no tables
        if most and length and length > most:
            yield Problem(
                part.path(name),
                f"the model runs in {given}, which is exact for integers up to {most}, and has up"
                f" to {length} positions; whether its own code (auto_map) computes positions in"
                f" {given} is not known.",
            )
