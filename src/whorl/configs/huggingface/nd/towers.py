"""Vision towers: pairs turn by the row or the column of a patch; AxialRoPE.

The plain tower gives rows the first half of the pairs and columns the second, each a ladder of its
own over half of the head, in the half layout. Facts: transformers 5.22.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from whorl.configs._values import MOST_CHANNELS, Keys
from whorl.configs.model import LayerGroup, Note

from ._sizes import axial, head_of, layers_of, power, rope_of, shared, size

__all__ = ["TOWERS", "Tower", "read_tower"]

_NOTES = {
    "merged": Note(
        "merged-patches",
        "Tokens come in blocks of spatial_merge_size x spatial_merge_size patches, which are merged"
        " later, not row by row.",
    ),
    "frames": Note("frames-alike", "Every frame of a video has the positions of the first."),
    "windows": Note(
        "windows",
        "Tokens are sorted by windows of attention, and their positions with them.",
    ),
    "class": Note(
        "learned-class-angles",
        "The class token, which comes first, turns by trained angles (class_pos_emb) that no config"
        " holds.",
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
class Tower:
    """What one tower does.

    coordinates: what each axis of AxialRoPE is.
    first: the smallest coordinate.
    share: how the ladder is cut: "each" axis has one over its channels; "one" ladder over the whole
        head is dealt out to the axes in turn (Pixtral).
    base: where the config gives none.
    widths: the keys of all heads' channels.
    across: layers that attend to the whole image where others have windows, by default.
    options: of AxialRoPE.
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
_MERGED = Tower(notes=("merged", "frames"))
_WINDOWS = Tower(notes=("merged", "frames", "windows"))
_MUSE = Tower(_COLUMN_FIRST, first=1, notes=("merged", "frames", "windows"))
_MEMORY = Tower(_COLUMN_FIRST, options={"layout": "interleaved"}, notes=("memory",))

TOWERS: dict[str, Tower] = {
    "cohere_compass_vision": _MERGED,
    "edgetam_video": Tower(
        _COLUMN_FIRST, options={"layout": "interleaved"}, notes=("small memory",)
    ),
    "ernie4_5_vl_moe_vision": _MERGED,
    "exaone4_5_vision": _WINDOWS,
    "gemma4_vision": Tower(_COLUMN_FIRST, base=100.0, options={"within": "axis"}),
    "glm4v_moe_vision": _MERGED,
    "glm4v_vision": _MERGED,
    "glm5_next_vision": _MERGED,
    "glm_ocr_vision": _MERGED,
    "kimi_k25_vision": Tower(_COLUMN_FIRST, options={"order": "alternating"}, notes=("frames",)),
    "minimax_m3_vl_vision": Tower(("frame", "row", "column"), notes=("merged",)),
    "mlcd_vision_model": Tower(notes=("class",)),
    "muse_glimmer_vision": _MUSE,
    "muse_spark_vision": _MUSE,
    "paddleocr_vl_vision": Tower(notes=("frames",)),
    "pixtral": Tower(share="one"),
    "qwen2_5_omni_vision_encoder": _WINDOWS,
    "qwen2_5_vl_vision": _WINDOWS,
    "qwen2_vl_vision": Tower(widths=("embed_dim",), notes=("merged", "frames")),
    "qwen3_5_moe_vision": _MERGED,
    "qwen3_5_vision": _MERGED,
    "qwen3_omni_moe_vision_encoder": _MERGED,
    "qwen3_vl_moe_vision": _MERGED,
    "qwen3_vl_vision": _MERGED,
    "qwen4_exp_vision": _MERGED,
    "sam2_video": _MEMORY,
    "sam3_tracker_video": _MEMORY,
    "sam3_vit_model": Tower(
        _COLUMN_FIRST, options={"layout": "interleaved"}, across=(7, 15, 23, 31)
    ),
    "step3p5_vision": Tower(widths=("width", "hidden_size")),
    "video_llama_3_vision": _MERGED,
}


def read_tower(keys: Keys, tower: Tower) -> tuple[LayerGroup, ...]:
    """The layers of a tower."""
    rope = rope_of(keys, tower.base)
    memory = "memory_attention_hidden_size" in keys
    head = _memory_head(keys) if memory else head_of(keys, *tower.widths)
    options: dict[str, Any] = {"head_dim": head, "base": rope["rope_theta"], **tower.options}
    if len(tower.coordinates) == 3:
        share = 2 * (head // 3 // 2)
        options |= {"axes": 3, "rotary_dim": 3 * share}
    if tower.share == "one":
        options["fastest"] = (1.0, power(rope["rope_theta"], -2 / head))
    rotation = axial(**options)
    layers = layers_of(keys, *(["memory_attention_num_layers"] if memory else []))
    notes = (_coordinates(tower), *(_NOTES[name] for name in tower.notes))
    group = LayerGroup(None, layers, rotation, notes=notes, parameters=rope)
    return (group,) if tower.across is None else _windows_and_whole(keys, group, tower.across)


def _coordinates(tower: Tower) -> Note:
    axes = ", ".join(tower.coordinates)
    return Note("coordinates", f"Positions are ({axes}) of a patch, from {tower.first} on.")


def _memory_head(keys: Keys) -> int:
    heads = size(keys, "memory_attention_num_attention_heads")
    share = keys.whole("memory_attention_downsample_rate", most=MOST_CHANNELS) or 1
    return shared(size(keys, "memory_attention_hidden_size"), share * heads)


def _windows_and_whole(
    keys: Keys, group: LayerGroup, usual: tuple[int, ...]
) -> tuple[LayerGroup, ...]:
    """Layers of SAM 3: inside windows, where positions count patches, and across the image."""
    given = keys.items("global_attn_indexes", int, "layer numbers")
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
