"""Which share of a head rotates: partial, proportional, and the sections of M-RoPE."""

from collections.abc import Iterator
from typing import Any

from whorl.configs.diagnosis.engine import Problem, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import RopeDictionary, format_value, read_number, read_whole

from ._disagreement import find_disagreements
from ._examples import LAYER_TYPES
from ._vocabulary import SHARE_KEYS

__all__: list[str] = []

#: Families whose layers with full attention were trained with rope_type proportional.
_PROPORTIONAL = ("gemma4_text", "gemma4_unified_text", "diffusion_gemma_text")
_QUARTER = {"rope_theta": 1000000.0, "partial_rotary_factor": 0.25}
_SLIDING = {"rope_type": "default", "rope_theta": 10000.0}


@rule(
    "partial-ignored",
    "warning",
    what="A partial_rotary_factor that the class of the model ignores.",
    why="Half of the classes of transformers rotate the whole head if rope_type is default,"
    " whatever partial_rotary_factor says, and only a part of it with any other type.",
    remedy="Remove partial_rotary_factor if the model was trained with the whole head.",
    seen=("huggingface/transformers/pull/48652", "ml-explore/mlx-lm/pull/1698"),
    trigger={"partial_rotary_factor": 0.5, "rope_theta": 10000.0},
    near_miss={"model_type": "stablelm", "partial_rotary_factor": 0.25},
)
def check_partial_ignored(model: DiagnosedModel) -> Iterator[Problem]:
    for part, reading, theirs in model.compared_readings:
        key = next((key for key in SHARE_KEYS if key in part.keys), SHARE_KEYS[0])
        for mine, other in zip(reading.groups, theirs, strict=False):
            if mine.rotation is None or other.rotation is None:
                continue
            one, two = (_read_width(r.options) for r in (mine.rotation, other.rotation))
            if one is not None and two is not None and one != two:
                yield Problem(
                    part.path(key),
                    f"the config asks for {one} rotated channels; transformers'"
                    f" {reading.model_type} rotates {two}.",
                    remedy=f"Remove {key} if the model was trained with the whole head.",
                )
                break


def _read_width(options: Any) -> int | None:
    """Rotated channels of a rotation with these options."""
    return read_whole(options.get("rotary_dim") or options.get("head_dim"))


@rule(
    "share-disagrees",
    "error",
    what="partial_rotary_factor is there twice, inside and beside the rope parameters, with"
    " different values.",
    why="transformers 5 uses the one inside. Software that reads config.partial_rotary_factor, as"
    " all code for version 4 does, uses the other one and rotates another number of channels.",
    remedy="Remove the wrong one.",
    seen=("chrishayuk/larql/pull/404", "vllm-project/vllm/pull/29966"),
    trigger={
        "model_type": "stablelm",
        "partial_rotary_factor": 0.5,
        "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    },
    near_miss={"partial_rotary_factor": 0.25},
)
def check_share_disagrees(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        yield from find_disagreements(part, "partial_rotary_factor")


@rule(
    "proportional-whole",
    "warning",
    what="rope_type is proportional, and partial_rotary_factor is missing.",
    why="Proportional RoPE rotates a share of the pairs and leaves the others as they are. Without"
    " the share it rotates all of them, which is plain RoPE.",
    remedy="Write the partial_rotary_factor that the model was trained with (Gemma 4: 0.25).",
    seen=("NVIDIA-NeMo/Megatron-Bridge/issues/4195", "apple/coreai-models/issues/66"),
    trigger={"rope_parameters": {"rope_type": "proportional", "rope_theta": 1000000.0}},
    near_miss={"rope_parameters": {"rope_type": "proportional", **_QUARTER}},
)
def check_proportional_whole(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        key = "partial_rotary_factor"
        given = rope.has(key) or rope.part.keys.get(key)
        if rope.rope_type == "proportional" and not given:
            yield Problem(rope.path(key), "it is missing, so every pair rotates.")


@rule(
    "partial-for-proportional",
    "warning",
    what="partial_rotary_factor with another rope_type, in a family that was trained with"
    " proportional.",
    why="Both rotate the same share of channels, but proportional uses the frequencies of the"
    " whole head and forms other pairs: the two agree at position 0 and differ more and more with"
    " the distance.",
    remedy="Set rope_type to proportional for these layers.",
    seen=(
        "NVIDIA-NeMo/Megatron-Bridge/issues/4195",
        "pie-project/pie/pull/603",
        "jagmarques/nexusquant/pull/12",
    ),
    trigger={
        "model_type": "gemma4_text",
        "layer_types": LAYER_TYPES,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", **_QUARTER},
            "sliding_attention": _SLIDING,
        },
    },
    near_miss={
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", **_QUARTER},
            "sliding_attention": _SLIDING,
        }
    },
)
def check_partial_for_proportional(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        share = rope.get_number("partial_rotary_factor")
        partial = rope.part.family in _PROPORTIONAL and share is not None and share < 1
        if partial and rope.rope_type != "proportional":
            path = rope.path("rope_type")
            yield Problem(path, f"it is {rope.rope_type}, and partial_rotary_factor is {share:g}.")


@rule(
    "sections",
    "error",
    what="The sections of M-RoPE do not add up to the number of pairs.",
    why="mrope_section says how many pairs rotate by time, height and width. If the sum is not the"
    " number of rotated pairs, splitting them fails, or some pairs are left over.",
    remedy="Make the sections add up to half of the rotated channels.",
    seen=("pytorch/torchtitan/pull/4286", "vllm-project/vllm-gaudi/pull/1437"),
    trigger={
        "model_type": "qwen2_vl_text",
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 32]},
    },
    near_miss={"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
)
def check_sections(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        pairs = _count_pairs(rope)
        for name in ("mrope_section", "xdrope_section"):
            given = rope.keys.get(name)
            if not isinstance(given, (list, tuple)) or pairs is None:
                continue
            counts = [found for value in given if (found := read_number(value)) is not None]
            if len(counts) == len(given) and sum(counts) != pairs:
                total = f"{format_value(list(given))} adds up to {format_value(sum(counts))}"
                yield Problem(rope.path(name), f"{total}; there are {pairs} pairs.")


_SECTIONS = {"rope_type": "default", "mrope_section": [24, 20, 20]}


@rule(
    "section-order",
    "error",
    what="mrope_interleaved names another order of the sections than the class uses.",
    why="The classes of transformers do not read mrope_interleaved: Qwen3-VL assigns pairs to"
    " time, height and width in alternation, Qwen2-VL gives each of them one block of pairs. vLLM"
    " and others read it.",
    remedy="Write the order that the weights were trained with, and use the family that has this"
    " order.",
    seen=("alibaba/MNN/pull/4133", "Blaizzy/mlx-vlm/pull/576"),
    trigger={
        "model_type": "qwen3_vl_text",
        "head_dim": 128,
        "rope_scaling": {**_SECTIONS, "mrope_interleaved": False},
    },
    near_miss={"rope_scaling": {**_SECTIONS, "mrope_interleaved": True}},
)
def check_section_order(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        said = rope.keys.get("mrope_interleaved")
        orders = {
            group.rotation.options.get("order", "chunked")
            for group in rope.layer_groups
            if group.rotation is not None and group.rotation.encoding == "mrope"
        }
        if isinstance(said, bool) and orders and ("interleaved" in orders) != said:
            yield Problem(
                rope.path("mrope_interleaved"),
                f"it is {format_value(said).lower()}; {rope.part.family} ignores it and assigns"
                f" pairs {'in alternation' if 'interleaved' in orders else 'in another order'}.",
            )


def _count_pairs(rope: RopeDictionary) -> int | None:
    """The number of rotated pairs, as it was read or else as the keys say it."""
    for group in rope.layer_groups:
        if group.rotation is not None and (width := _read_width(group.rotation.options)):
            return width // 2
    width = rope.rotated_channels
    return None if width is None else width // 2
