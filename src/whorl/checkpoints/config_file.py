"""What config.json says about the layout, and how it says the other one.

Hardly any reader asks: the layout is part of a family's code. There are two keys, and the one that
fits is written:

    rope_interleave     transformers, in the families of DeepSeek-V3's kind
    rope_traditional    mlx-lm, in nearly all families; ``read_config`` goes by it too

A family that has the wanted layout anyway gets neither.
"""

import json
from pathlib import Path
from typing import Any

from whorl.configs import ConfigError, read_config
from whorl.configs.source import parse
from whorl.kernels.ops import Layout

from .safetensors_file import open_regular
from .sizes import text_of

__all__ = ["in_layout", "layout_said"]

_SWITCHED = ("deepseek_v3", "axk1", "glm4_moe_lite", "youtu")
_SWITCH, _OTHERWISE = "rope_interleave", "rope_traditional"


def layout_said(config: Any) -> Layout | None:
    """The layout that a config stands for, by its family and its keys; None if it has none."""
    try:
        groups = read_config(config).groups
    except ConfigError:
        return None
    found = {g.rotation.options.get("layout", "half") for g in groups if g.rotation is not None}
    return found.pop() if len(found) == 1 else None


def in_layout(path: Path, to: Layout) -> bytes:
    """The text of config.json with the layout ``to``."""
    with open_regular(path) as file:
        config = parse(file.read().decode("utf-8-sig"), str(path))
    part = text_of(config)
    if part.get("model_type") in _SWITCHED:
        part[_SWITCH] = to == "interleaved"
    else:
        part.pop(_OTHERWISE, None)
        if layout_said(part) != to:
            part[_OTHERWISE] = to == "interleaved"
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()
