"""Check that transformers reads the lines for config.json as the extension that is shown.

Some classes accept only some types of scaling, and some have their frequencies in code and read no
rope parameters. For the others, the lines are put into the config, which is read as transformers
reads it (``parity="transformers"``); lines that give another rotation are not offered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from whorl._support.words import quote, shorten
from whorl.configs import ConfigError, LayerGroup, ModelPositions, read_config
from whorl.configs.huggingface import defaults

if TYPE_CHECKING:
    from .extension import ModelExtension

__all__ = ["explain_mismatch", "explain_refused_type", "explain_unknown_type", "list_needed_keys"]

#: The rope types that a class accepts, for classes that refuse others.
_TAKEN = {
    "phi3": ("default", "longrope"),
    "phi4_multimodal": ("default", "longrope"),
    "phimoe": ("default", "longrope"),
    "recurrent_gemma": ("default",),
}
#: Classes whose head_dim may be null, with which "yarn" and "dynamic" fail.
_NEED_WIDTH = ("hunyuan_v1_dense", "hunyuan_v1_moe", "minimax", "ministral", "mixtral")
_SAME = 1e-5


def explain_unknown_type(*model_types: object) -> str | None:
    """Why transformers has no code for one of these model types; None if it has all of them."""
    for name in model_types:
        if not isinstance(name, str):
            return "the config names no model type"
        if defaults.get_entry(defaults.get_known_name(name)) is None:
            return f"transformers {defaults.get_version()} has no model type {quote(name[:80])}"
    return None


def explain_refused_type(model: ModelPositions, rope_type: str) -> str | None:
    """Why the class of this model does not accept a rope_type; None if it does."""
    part = model.part
    if part is not None and model.kind in ("transformers", "mlx"):
        why = explain_unknown_type(part.keys.get("model_type", part.model_type))
        if why is not None:
            return f"{why}, so it is not known how its code reads them"
    model_type = model.model_type if part is None else part.model_type
    if model_type == "mistral4":
        return "transformers reads the rotated share of mistral4 from keys that these replace"
    taken = _TAKEN.get(model_type or "", (rope_type,))
    if rope_type in taken:
        return None
    only = " or ".join(map(repr, taken))
    return (
        f"transformers refuses rope_type {quote(rope_type)} in {model_type}, which must be {only}"
    )


def list_needed_keys(
    model_type: str | None, data: Mapping[str, Any], rope_type: str, head_dim: int
) -> dict[str, Any]:
    """Keys to add because the class fails without them."""
    if model_type not in _NEED_WIDTH or rope_type not in ("yarn", "dynamic"):
        return {}
    return {} if data.get("head_dim") else {"head_dim": head_dim}


def explain_mismatch(
    model: ModelPositions, patched: Mapping[str, Any], found: Mapping[int, ModelExtension]
) -> str | None:
    """Why transformers does not read the patched config as shown; None if it does.

    found: extensions by the id() of their group; other groups must not change.
    """
    who = shorten(model.model_type or "this model")
    try:
        theirs = read_config(patched, parity="transformers").groups
    except ConfigError as error:
        return f"{who} does not read them: {str(error).rstrip('.')}"
    if [group.layers for group in theirs] != [group.layers for group in model.groups]:
        return f"with them the layers of {who} form other groups"
    wanted = [(group, found.get(id(group))) for group in model.groups]
    off = [_is_different(*want, read) for want, read in zip(wanted, theirs, strict=True)]
    if not any(off):
        return None
    unread = all(
        extension is None or not _is_different(group, None, read)
        for (group, extension), read in zip(wanted, theirs, strict=True)
    )
    if unread:
        return f"transformers does not read them in {who}, whose layers would rotate as before"
    return f"transformers reads them as another rotation in {who}"


def _is_different(group: LayerGroup, extension: ModelExtension | None, read: LayerGroup) -> bool:
    """Whether ``read`` rotates differently from ``group`` with its extension, if it has one."""
    if group.rotation is None or read.rotation is None:
        return group.rotation is not read.rotation
    scaling = {} if extension is None else {"scaling": extension.scaling}
    softmax = group.softmax_scale if extension is None else extension.softmax_scale
    length = None if extension is None else extension.length
    wanted: Any = group.rotation.build_without_tables(**scaling).frequencies(length)
    got: Any = read.rotation.frequencies(length)
    return (
        wanted.inv_freq.shape != got.inv_freq.shape
        or not torch.allclose(wanted.inv_freq, got.inv_freq, rtol=_SAME, atol=0.0)
        or abs(wanted.attention_scale - got.attention_scale) > _SAME
        or abs(softmax - read.softmax_scale) > _SAME
        or group.query_scale != read.query_scale
    )
