"""Configs of mlx-lm: those of Hugging Face, with ``rope_traditional`` and some other names.

    rope_traditional     true for the interleaved layout; if it is missing, the layout is that of
                         the family. The key in the text part comes before the key at the top.
                         transformers does not read it
    rope_scaling.type    read before rope_type; "deepseek_yarn" and "telechat3-yarn" are YaRN, and
                         "mrope" is unscaled for text

A model should run as it was trained, so scalings are read as transformers reads them. Where mlx-lm
0.32.2 (models/rope_utils.py, initialize_rope) treats the same keys differently, a note says so.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from . import huggingface
from ._values import Keys
from .model import LayerGroup, ModelPositions, Note, Parity
from .source import Document

__all__ = ["read"]

_TYPES = {"deepseek_yarn": "yarn", "telechat3-yarn": "yarn", "mrope": "default"}
_SCALINGS = ("rope_scaling", "rope_parameters")

_TRUNCATE = "mlx-lm rounds the corners of YaRN's ramp although truncate is false."
_FACTOR = "mlx-lm does not read attention_factor; it uses the default formula."
_LONE = "mlx-lm applies mscale or mscale_all_dim alone; transformers needs both."
_LONG = "mlx-lm uses the long factors at every length."
_UNREAD = (
    "transformers does not read rope_traditional: it uses the layout of the family, but these"
    " weights are in the other layout."
)
_FIRST = "mlx-lm reads type, transformers reads rope_type, and their values differ here."


def read(document: Document, parity: Parity | None = None) -> ModelPositions:
    """What the model does with positions; notes say where mlx-lm differs."""
    keys = Keys(document.data)
    data = {name: v for name, v in document.data.items() if name != "rope_traditional"}
    notes: list[Note] = []
    for name in _SCALINGS:
        given = keys.read_object(name)
        if given is not None:
            data[name] = _normalize_type(given)
            notes += _note_differences(given)
    found = huggingface.read(replace(document, data=data), parity)
    part = found.part
    inner = keys if part is None else Keys(part.keys, part.where)
    said = next((one for one in (inner, keys) if "rope_traditional" in one), None)
    if said is not None and parity is None:
        layout = "interleaved" if said.read_flag("rope_traditional") else "half"
        usual = {g.rotation.options.get("layout", "half") for g in found.groups if g.rotation}
        if usual - {layout}:
            notes.append(Note("layout-unread", _UNREAD))
        found = _set_layout(found, layout)
    if part is not None and not part.where:  # the keys as mlx-lm sees them
        part = replace(part, keys=document.data)
    notes = [*found.notes, *notes]
    return replace(found, kind="mlx", notes=tuple(notes), part=part)


def _normalize_type(rope: Keys) -> dict[str, Any]:
    """The dictionary with its type under "rope_type", by the name that transformers has."""
    kind = rope.read_text("type") or rope.read_text("rope_type")
    rest = {name: value for name, value in rope.data.items() if name not in ("type", "rope_type")}
    return rest if kind is None else {**rest, "rope_type": _TYPES.get(kind, kind)}


def _note_differences(rope: Keys) -> list[Note]:
    kind = rope.read_text("type") or rope.read_text("rope_type") or "default"
    kind = _TYPES.get(kind, kind)
    notes = []
    if rope.read_text("type") and rope.read_text("rope_type") not in (None, rope.read_text("type")):
        notes.append(Note("mlx-type-first", _FIRST))
    if kind in ("yarn", "longrope") and "attention_factor" in rope:
        notes.append(Note("mlx-attention-factor", _FACTOR))
    if kind == "yarn" and not rope.read_flag("truncate", default=True):
        notes.append(Note("mlx-truncate", _TRUNCATE))
    if kind == "yarn" and bool(rope.read_number("mscale")) != bool(
        rope.read_number("mscale_all_dim")
    ):
        notes.append(Note("mlx-mscale", _LONE))
    if kind == "longrope":
        notes.append(Note("mlx-long-factors", _LONG))
    return notes


def _set_layout(found: ModelPositions, layout: str) -> ModelPositions:
    """The model with all groups in one layout; also in its text part."""
    groups = tuple(_set_group_layout(group, layout) for group in found.groups)
    parts = {
        name: _set_layout(part, layout) if part.part is found.part else part
        for name, part in found.parts.items()
    }
    return replace(found, groups=groups, parts=parts)


def _set_group_layout(group: LayerGroup, layout: str) -> LayerGroup:
    if group.rotation is None:
        return group
    options: Mapping[str, Any] = group.rotation.options
    others = {name: value for name, value in options.items() if name != "out_layout"}
    return replace(group, rotation=replace(group.rotation, options={**others, "layout": layout}))
