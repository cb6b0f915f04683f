"""Queries, keys and attention weights of a trained run on held-out text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl import RoPE
from whorl._support.words import quote
from whorl.analysis.record import check_int, check_memory
from whorl.analysis.scores import compute_scores
from whorl.encodings import Encoding

from .data import open_data_source
from .encodings import format_title
from .model import Model
from .runs import Run

__all__ = ["LayerAttention", "collect_queries_and_keys", "compute_attention", "get_rope"]


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """Attention of one layer.

    q, k: queries [B, H, T, D] and keys [B, G, T, D] before the rotation, normalized if the model
    does that. weights: [B, H, T, T].
    """

    encoding: Encoding
    q: Tensor
    k: Tensor
    weights: Tensor


@torch.no_grad()
def compute_attention(
    folder: str | Path, *, length: int | None = None, windows: int = 4
) -> tuple[str, list[LayerAttention]]:
    """The name of a run, and the attention of its layers on held-out text.

    Args:
        folder: the folder of the run.
        length: tokens of a window, by default the trained length.
        windows: how many of the windows of the evaluation are used.
    """
    run = Run(folder)
    config = run.load_config()
    length = config.training.length if length is None else length
    check_int(length, "length", "attention_of", 2, config.longest)
    check_int(windows, "windows", "attention_of")
    if config.model.attention != "softmax":
        raise ValueError(
            f"{str(folder)!r} was trained with linear attention, which has no weights; choose a run"
            " with softmax attention."
        )
    model = run.load_model()
    if not isinstance(model, Model):
        raise ValueError(
            f"{str(folder)!r} was trained with architecture {quote(config.model.architecture)},"
            " whose attention cannot be shown; choose a run with architecture = 'llama'."
        )
    check_memory(
        32 * windows * config.model.heads * config.model.layers * length**2, length, "attention_of"
    )
    tokens = open_data_source(config).get_evaluation(length).tokens[:windows]
    projections: list[Tensor] = []
    hooks = [
        block.qkv.register_forward_hook(lambda module, inputs, out: projections.append(out))  # type: ignore[union-attr]
        for block in model.blocks
    ]
    model.eval()(tokens)
    for hook in hooks:
        hook.remove()
    layers = [
        _compute_layer(block, model.get_layer_encoding(n), out)
        for n, (block, out) in enumerate(zip(model.blocks, projections, strict=True))
    ]
    return f"{format_title(config.model.encoding)} in {Path(folder).name}", layers


def get_rope(layers: list[LayerAttention]) -> RoPE:
    """The RoPE of the first layer; ValueError if the run was trained without one."""
    found = [part for part in layers[0].encoding.parts if isinstance(part, RoPE)]
    if not found:
        raise ValueError(
            f"the run was trained with {quote(layers[0].encoding)}, which contains no RoPE; choose"
            " a run whose encoding is rope."
        )
    return found[0]


def collect_queries_and_keys(layers: list[LayerAttention]) -> tuple[Tensor, Tensor]:
    """Queries of the second half of each window, and keys of the first, of all layers."""
    half = layers[0].q.shape[2] // 2
    found = []
    for layer in layers:
        k = layer.k.repeat_interleave(layer.q.shape[1] // layer.k.shape[1], 1)
        found.append((layer.q[:, :, -half:], k[:, :, :half]))
    return torch.stack([q for q, _ in found]), torch.stack([k for _, k in found])


def _compute_layer(block: Any, encoding: Any, projection: Tensor) -> LayerAttention:
    """Attention of a layer from its projection [B, T, (H + 2 G) D] to queries, keys and values."""
    q, k, _, weight = block.split_heads(projection)
    q, k = q.contiguous(), k.contiguous()
    positions = torch.arange(projection.shape[1])
    logits = compute_scores(encoding, q, k, positions, positions, weight)
    if block.config.kind == "decoder":
        logits = logits.masked_fill(positions.unsqueeze(-1) < positions, float("-inf"))
    return LayerAttention(encoding, q, k, logits.softmax(-1))
