"""Vision encoders, whose pairs rotate by the row or the column of a patch: AxialRoPE.

By default the first half of the pairs rotates by rows and the second half by columns; each has its
own frequencies over half of the head, in the half layout. Source: transformers 5.22.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from whorl.configs._values import MOST_CHANNELS, Keys
from whorl.configs.model import LayerGroup, Note

from ._sizes import (
    build_axial,
    compute_power,
    divide_among_heads,
    list_layers,
    read_head_dim,
    read_rope_parameters,
    read_size,
)

__all__ = ["VISION_ENCODERS", "VisionEncoder", "read_vision_encoder"]

_NOTES = {
    "merged": Note(
        "merged-patches",
        "Tokens come in blocks of spatial_merge_size x spatial_merge_size patches, which are merged"
        " later, not row by row.",
    ),
    "frames": Note("frames-alike", "All frames of a video have the same positions."),
    "windows": Note(
        "windows",
        "Tokens are sorted by windows of attention, and their positions with them.",
    ),
    "class": Note(
        "learned-class-angles",
        "The class token, which comes first, rotates by trained angles (class_pos_emb) that are not"
        " in the config.",
    ),
    "memory": Note(
        "memory-keys",
        "Keys of every remembered frame repeat the grid of the queries, and object pointers, which"
        " come last, are not rotated.",
    ),
    "small memory": Note(
        "memory-keys",
        "In cross-attention keys have a grid of their own, memory_attention_rope_k_sizes, that"
        " every remembered frame repeats; other tokens of the memory are not rotated.",
    ),
}


@dataclass(frozen=True)
class VisionEncoder:
    """How one vision encoder treats positions.

    coordinates: what each axis of AxialRoPE stands for.
    first: the smallest coordinate.
    share: "each" axis has frequencies over its own channels; "one" list of frequencies over the
        whole head alternates between the axes (Pixtral).
    base: the default.
    widths: keys for the channels of all heads together.
    across: default numbers of layers that attend to the whole image, if others have windows.
    options: more options of AxialRoPE.
    notes: ids in _NOTES.
    """

    coordinates: tuple[str, ...] = ("row", "column")
    first: int = 0
    share: Literal["each", "one"] = "each"
    base: float = 10_000.0
    widths: tuple[str, ...] = ("hidden_size",)
    across: tuple[int, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


_COLUMN_FIRST = ("column", "row")
_MERGED = VisionEncoder(notes=("merged", "frames"))
_WINDOWS = VisionEncoder(notes=("merged", "frames", "windows"))
_MUSE = VisionEncoder(_COLUMN_FIRST, first=1, notes=("merged", "frames", "windows"))
_MEMORY = VisionEncoder(_COLUMN_FIRST, options={"layout": "interleaved"}, notes=("memory",))

#: Model types that are read alike.
_ALIKE: tuple[tuple[VisionEncoder, str], ...] = (
    (
        _MERGED,
        "cohere_compass_vision ernie4_5_vl_moe_vision glm4v_moe_vision glm4v_vision "
        "glm5_next_vision glm_ocr_vision qwen3_5_moe_vision qwen3_5_vision "
        "qwen3_omni_moe_vision_encoder qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision "
        "video_llama_3_vision",
    ),
    (_WINDOWS, "exaone4_5_vision qwen2_5_omni_vision_encoder qwen2_5_vl_vision"),
    (_MUSE, "muse_glimmer_vision muse_spark_vision"),
    (_MEMORY, "sam2_video sam3_tracker_video"),
)

VISION_ENCODERS: dict[str, VisionEncoder] = {
    **{name: alike for alike, names in _ALIKE for name in names.split()},
    "edgetam_video": VisionEncoder(
        _COLUMN_FIRST, options={"layout": "interleaved"}, notes=("small memory",)
    ),
    "gemma4_vision": VisionEncoder(_COLUMN_FIRST, base=100.0, options={"within": "axis"}),
    "kimi_k25_vision": VisionEncoder(
        _COLUMN_FIRST, options={"order": "alternating"}, notes=("frames",)
    ),
    "minimax_m3_vl_vision": VisionEncoder(("frame", "row", "column"), notes=("merged",)),
    "mlcd_vision_model": VisionEncoder(notes=("class",)),
    "paddleocr_vl_vision": VisionEncoder(notes=("frames",)),
    "pixtral": VisionEncoder(share="one"),
    "qwen2_vl_vision": VisionEncoder(widths=("embed_dim",), notes=("merged", "frames")),
    "sam3_vit_model": VisionEncoder(
        _COLUMN_FIRST, options={"layout": "interleaved"}, across=(7, 15, 23, 31)
    ),
    "step3p5_vision": VisionEncoder(widths=("width", "hidden_size")),
}


def read_vision_encoder(keys: Keys, encoder: VisionEncoder) -> tuple[LayerGroup, ...]:
    """The groups of layers of a vision encoder."""
    rope = read_rope_parameters(keys, encoder.base)
    memory = "memory_attention_hidden_size" in keys
    head = _read_memory_head_dim(keys) if memory else read_head_dim(keys, *encoder.widths)
    options: dict[str, Any] = {"head_dim": head, "base": rope["rope_theta"], **encoder.options}
    if len(encoder.coordinates) == 3:
        share = 2 * (head // 3 // 2)
        options |= {"axes": 3, "rotary_dim": 3 * share}
    if encoder.share == "one":
        options["fastest"] = (1.0, compute_power(rope["rope_theta"], -2 / head))
    rotation = build_axial(**options)
    layers = list_layers(keys, *(["memory_attention_num_layers"] if memory else []))
    notes = (_describe_coordinates(encoder), *(_NOTES[name] for name in encoder.notes))
    group = LayerGroup(None, layers, rotation, notes=notes, parameters=rope)
    return (
        (group,)
        if encoder.across is None
        else _split_window_and_global(keys, group, encoder.across)
    )


def _describe_coordinates(encoder: VisionEncoder) -> Note:
    axes = ", ".join(encoder.coordinates)
    return Note("coordinates", f"Positions are ({axes}) of a patch, counted from {encoder.first}.")


def _read_memory_head_dim(keys: Keys) -> int:
    heads = read_size(keys, "memory_attention_num_attention_heads")
    share = keys.read_int("memory_attention_downsample_rate", most=MOST_CHANNELS) or 1
    return divide_among_heads(read_size(keys, "memory_attention_hidden_size"), share * heads)


def _split_window_and_global(
    keys: Keys, group: LayerGroup, usual: tuple[int, ...]
) -> tuple[LayerGroup, ...]:
    """The layers of SAM 3 in two groups: those with windows, and those for the whole image."""
    given = keys.read_list("global_attn_indexes", int, "layer numbers")
    across = set(usual if given is None else given)
    stretched = Note(
        "fractional-positions",
        "Positions are those of a patch times window_size and divided by the patches of a row, so"
        " that the image spans as much as one window; they are fractions.",
    )
    inside = tuple(n for n in group.layers if n not in across)
    whole = tuple(n for n in group.layers if n in across)
    found = (
        replace(group, name="window", layers=inside),
        replace(group, name="global", layers=whole, notes=(*group.notes, stretched)),
    )
    return tuple(part for part in found if part.layers) or found[:1]
