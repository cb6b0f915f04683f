"""Text backbones of multimodal models, whose pairs rotate by time, row or column: MRoPE.

A backbone is first read like a text family, with its scaling and layer types; ``add_axes`` then
assigns its pairs to the axes. Source: transformers 5.22.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from whorl._support.words import quote
from whorl.configs._values import MOST_CHANNELS, Keys
from whorl.configs.huggingface.adaptations import use_fixed_alpha
from whorl.configs.huggingface.families import PLAIN, Family
from whorl.configs.huggingface.layers import (
    FULL,
    LINEAR,
    SLIDING,
    assign_every_nth,
    assign_one_type,
    assign_windows_from_layer,
)
from whorl.configs.huggingface.schema import Ropes, fill_parameters
from whorl.configs.model import ConfigError, LayerGroup, Note, Parity
from whorl.encodings.mrope import Order

from ._sizes import build_mrope

__all__ = ["MROPE", "Backbone", "add_axes"]


@dataclass(frozen=True)
class Backbone:
    """How one family assigns pairs to axes.

    order: as for MRoPE; None for a family whose rule is not a rotation.
    sections: the default of mrope_section; None for equal shares of two axes.
    axes: of the sections, if they are not time, row, column; such a family has no scalings.
    family: how its rope parameters and layers are read.
    """

    order: Order | None
    sections: tuple[int, ...] | None
    axes: tuple[int, ...] | None = None
    family: Family = PLAIN


def _rename_mrope(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    """Rename the type "mrope", which Qwen2-VL wrote for unscaled frequencies."""
    if rope.get("rope_type") == "mrope":
        rope["rope_type"] = "default"


def _adapt_hunyuan(rope: dict[str, Any], keys: Keys, parity: Parity | None) -> None:
    if rope.get("rope_type") == "xdrope":
        rope["rope_type"] = "dynamic"
    use_fixed_alpha(rope, keys, parity)


def _read_neomme(keys: Keys, labels: Sequence[str], parity: Parity | None) -> Ropes:
    """Rope parameters of NeoMME: a base and a share for each layer type."""
    given, ropes = keys.read_object("rope_parameters"), Ropes()
    for label, base, share in ((FULL, 1e6, 0.25), (SLIDING, 1e4, 1.0)):
        inside = None if given is None else given.read_object(label)
        rope = {"partial_rotary_factor": share, **({} if inside is None else inside.data)}
        own = keys.read_number("rope_theta", above=0) or base
        ropes[label] = fill_parameters(
            rope, keys, f"rope_parameters.{label}", base=own, nested=True
        )
    return ropes


_QWEN2 = Backbone(
    "chunked", (16, 24, 24), family=Family(types=assign_windows_from_layer, adapt=_rename_mrope)
)
_QWEN3 = Backbone("interleaved", (24, 20, 20), family=Family(adapt=_rename_mrope))
_QWEN3_5 = Backbone(
    "interleaved",
    (11, 11, 10),
    family=Family(
        partial="aware",
        share=("partial_rotary_factor", 0.25),
        types=assign_every_nth(4, "full_attention_interval", miss=LINEAR),
    ),
)
_GLM_HALF = Backbone("chunked", (8, 12, 12), family=Family(partial="aware"))
_GLM = Backbone("chunked", (8, 12, 12), family=Family(partial="aware", layout="interleaved"))

#: Model types that are read alike.
_ALIKE: tuple[tuple[Backbone, str], ...] = (
    (
        _QWEN3,
        "cosmos3_edge_text qwen3_omni_moe_talker_text qwen3_omni_moe_text qwen3_vl_moe_text "
        "qwen3_vl_text",
    ),
    (_GLM, "glm4v_text glm_ocr_text"),
    (_QWEN2, "qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text"),
    (_QWEN3_5, "qwen3_5_moe_text qwen3_5_text"),
)

MROPE: dict[str, Backbone] = {
    **{name: alike for alike, names in _ALIKE for name in names.split()},
    "cohere_compass_text": replace(_QWEN3, family=Family(types=assign_one_type(FULL))),
    "ernie4_5_vl_moe_text": Backbone(
        *("alternating", (22, 22, 20), (1, 2, 0)),
        family=Family(layout="interleaved", notes=("fp32-rotation", "fp32-tables")),
    ),
    "glm4v_moe_text": replace(
        _GLM_HALF, family=Family(partial="aware", share=("partial_rotary_factor", 0.5))
    ),
    "glm_image_text": _GLM_HALF,
    "hunyuan_vl_text": Backbone(
        None, None, family=Family(adapt=_adapt_hunyuan, notes=("qk-norm-after", "fp32-rotation"))
    ),
    "neomme": Backbone(
        *("interleaved", None),
        family=Family(partial="aware", types=assign_every_nth(6, last=FULL), schema=_read_neomme),
    ),
    "paddleocr_vl_text": replace(_QWEN2, family=Family(adapt=_rename_mrope)),
    "qwen4_exp_text": replace(
        _QWEN3_5,
        family=Family(
            partial="aware",
            types=assign_every_nth(
                4, "full_attention_interval", hit="indexed_attention", miss=LINEAR
            ),
            notes=("indexer-front", "window-start-positions"),
        ),
    ),
}

_XD_ROPE = (
    "hunyuan_vl_text uses XD-RoPE, which is not a rotation: mrope_section divides the whole head,"
    " so the two channels of a pair use different coordinates (of four equal sections, channel 0"
    " uses the position and its partner the row), and the length of a vector changes: by up to"
    " 10 % on an image of 16 x 16 tokens. Text, whose coordinates are all equal, is rotated as by"
    " RoPE"
)


def add_axes(group: LayerGroup, model_type: str) -> LayerGroup:
    """The same group, with the axis of each pair; the group was read like one of text."""
    if group.rotation is None:
        return group
    backbone, options = MROPE[model_type], dict(group.rotation.options)
    if backbone.order is None:
        plain = ", ".join(f"{name}={quote(value)}" for name, value in options.items())
        refusal = f"{_XD_ROPE}: RoPE({plain})."
        notes = (*group.notes, Note("not-a-rotation", f"{_XD_ROPE}."))
        return replace(group, rotation=None, refusal=refusal, notes=notes)
    if backbone.axes is not None and options.get("scaling") is not None:
        raise ConfigError(
            f"rope_parameters.rope_type must be 'default', because {model_type} has no"
            f" other frequencies; got {quote(group.parameters.get('rope_type'))}."
        )
    given = Keys(group.parameters, "rope_parameters")
    if "inv_freq" in options:
        raise given.wrong_value(
            "partial_rotary_factor",
            f"a share of {options['head_dim']} channels that is even, because pairs have an axis",
        )
    sections = given.read_list("mrope_section", int, "whole numbers") or backbone.sections
    pairs = (options.get("rotary_dim") or options["head_dim"]) // 2
    dealt, notes = _assign_sections(given, sections, backbone, pairs)
    return replace(group, rotation=build_mrope(**options, **dealt), notes=(*group.notes, *notes))


def _assign_sections(
    given: Keys, asked: tuple[int, ...] | None, backbone: Backbone, pairs: int
) -> tuple[dict[str, Any], tuple[Note, ...]]:
    """The options of MRoPE about axes, and notes on them."""
    options: dict[str, Any] = {"order": backbone.order}
    if asked is None:
        note = Note(
            "coordinates", "Positions are (row, column); for text both are the index of the token."
        )
        return {**options, "sections": (pairs - pairs // 2, pairs // 2)}, (note,)
    if any(isinstance(n, bool) or not 0 <= n <= MOST_CHANNELS for n in asked):
        raise given.wrong_value("mrope_section", "numbers of pairs, 0 or more")
    note = Note(
        "coordinates",
        "Positions are (time, row, column); for text all three are equal:"
        " whorl.positions.from_token_types.",
    )
    if backbone.order == "chunked":
        options["sections"] = (*asked, *[0] * (3 - len(asked)))
        if len(asked) > 3:
            options["axes"] = tuple(n % 3 for n in range(len(asked)))
        return options, (note,)
    if len(asked) != 3:
        raise given.wrong_value("mrope_section", "a list of 3 numbers of pairs")
    if backbone.axes is not None:
        return {**options, "sections": asked, "axes": backbone.axes}, (note,)
    rows, columns = (len(range(k, min(3 * asked[k], pairs), 3)) for k in (1, 2))
    taken = (pairs - rows - columns, rows, columns)
    options["sections"] = taken
    if taken == tuple(asked):
        return options, (note,)
    fits = Note(
        "sections-not-taken",
        f"mrope_section is {list(asked)}, but the model uses {list(taken)} of its {pairs} pairs:"
        " rows and columns every third pair as far as it fits, time the others.",
    )
    return options, (note, fits)
