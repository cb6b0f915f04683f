"""What config.json says about the layout, and how it says the other one.

Hardly any reader asks: the layout is part of a family's code. There are two keys, and the one that
fits is written, into the part of the config that describes the text:

    rope_interleave     transformers, in the families of DeepSeek-V3's kind
    rope_traditional    mlx-lm, in nearly all families; ``read_config`` goes by it too

A family that has the wanted layout anyway gets neither.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from whorl.configs import ConfigError, LayerGroup, parse, read_config
from whorl.types import Layout

from .safetensors_file import open_regular
from .sizes import find_family, read_part

__all__ = ["find_layout", "is_ignored_by_transformers", "read_stated_layout", "write_layout"]

_SWITCHED = ("deepseek_v3", "axk1", "glm4_moe_lite", "youtu")
_SWITCH, _OTHERWISE = "rope_interleave", "rope_traditional"


def read_stated_layout(config: Any) -> Layout | None:
    """The layout that a config stands for, by its family and its keys; None if it has none."""
    try:
        return find_layout(read_config(config).groups)
    except ConfigError:
        return None


def find_layout(groups: Iterable[LayerGroup]) -> Layout | None:
    """The layout that all rotating layer groups have; None if they have several, or none."""
    found = {g.rotation.options.get("layout", "half") for g in groups if g.rotation is not None}
    return found.pop() if len(found) == 1 else None


def is_ignored_by_transformers(path: Path) -> bool:
    """Whether a config says the layout by a key that transformers passes over."""
    return _OTHERWISE in read_part(path)[1].keys


def write_layout(path: Path, to: Layout) -> bytes:
    """The text of config.json with the layout ``to``."""
    with open_regular(path) as file:
        config = parse(file.read().decode("utf-8-sig"), str(path))
    read = read_part(config)[1]
    part = config
    for name in filter(None, read.where.split(".")):
        part = part.get(name, part)  # old configs have the keys of the text beside the parts
    for one in (config, part):
        one.pop(_OTHERWISE, None)
    if find_family(read) in _SWITCHED:
        part[_SWITCH] = to == "interleaved"
    if read_stated_layout(config) != to:
        part[_OTHERWISE] = to == "interleaved"
    if read_stated_layout(config) != to:
        fixed = read_stated_layout(config) or "of no one layout"
        raise ValueError(
            f"convert: {str(path)!r} cannot be made to say the {to} layout, because what it"
            f" describes is {fixed} whatever keys it has. Put it elsewhere and state sizes by"
            " stated=Stated(head_dim=...) (--head-dim)."
        )
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
