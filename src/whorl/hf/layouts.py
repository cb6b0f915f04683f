"""The layout that the weights of a loaded model were trained in, against the one it rotates in.

``whorl.weights`` detects the layout in files; here the same evidence is read from the parameters of
a model in memory.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whorl.configs import read_config
from whorl.weights.config_file import find_layout
from whorl.weights.detect import Detection, detect_layers
from whorl.weights.layers import group_layers
from whorl.weights.plan import RowMove, plan_moves
from whorl.weights.safetensors_file import FileHeader, TensorEntry
from whorl.weights.shards import WeightFiles
from whorl.weights.sizes import Stated, find_sizes

__all__ = ["detect_model_layout", "find_layout_problem"]

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


def find_layout_problem(model: PreTrainedModel, most_layers: int | None = None) -> str | None:
    """How the layout of the weights differs from that of the config; None if nothing shows that.

    most_layers: how many layers to judge, spread over the depth; None for all.
    """
    try:
        config = model.config.get_text_config()
        stated = find_layout(read_config(config).groups)
        found = detect_model_layout(model, most_layers) if stated is not None else None
    except ValueError:  # a family whose q and k are not read
        return None
    if found is None:
        return None
    if found.mixed or found.crossed:
        return (
            f"the weights of q and k have different layouts ({found.in_words()}), and the model"
            f" rotates all of them in the {stated} layout"
        )
    if found.layout in (None, stated):
        return None
    return (
        f"the weights of q and k were trained in the {found.layout} layout (confidence"
        f" {found.confidence:.0%}), and the model rotates in the {stated} layout"
    )


def detect_model_layout(model: PreTrainedModel, most_layers: int | None = None) -> Detection | None:
    """What the weights of q and k show; None for a model that has no layer with both."""
    weights = {
        name: weight.detach()
        for name, weight in model.named_parameters()
        if weight.dtype in _NAMES and weight.device.type != "meta"
    }
    entries = {
        name: TensorEntry(name, _NAMES[weight.dtype], tuple(weight.shape), 0, 0)
        for name, weight in weights.items()
    }
    header = FileHeader(Path(type(model).__name__), entries, 0, 0)
    files = WeightFiles(header.path, header.path, (header,))
    config: Any = model.config.get_text_config()

    def read_rows(move: RowMove, index: int) -> Tensor:
        start = sum(head.rows for head in move.heads[:index]) + move.heads[index].start
        rows: Tensor = weights[move.entry.name][start : start + move.heads[index].width]
        return rows.cpu()

    layers = group_layers(plan_moves(files, find_sizes(config, Stated())), read_rows)
    if most_layers is not None and len(layers) > most_layers:
        step = (len(layers) - 1) / max(1, most_layers - 1)
        layers = [layers[round(n * step)] for n in range(most_layers)]
    return detect_layers(layers) if layers else None
