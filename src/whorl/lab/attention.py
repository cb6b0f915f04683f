"""What the attention of a trained run looks at: its queries, keys and weights on held-out text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl import RoPE
from whorl.analysis.record import check_int, check_memory
from whorl.analysis.scores import compute_scores
from whorl.encodings import Encoding

from .data import open_source
from .encodings import title_of
from .model import Model
from .runs import Run

__all__ = ["Layer", "attention_of", "queries_and_keys", "rope_of"]


@dataclass(frozen=True, eq=False)
class Layer:
    """Queries [B, H, T, D] and keys [B, G, T, D] before any rotation, and weights [B, H, T, T]."""

    encoding: Encoding
    q: Tensor
    k: Tensor
    weights: Tensor


@torch.no_grad()
def attention_of(
    folder: str | Path, *, length: int | None = None, windows: int = 4
) -> tuple[str, list[Layer]]:
    """The run's name, and every layer's attention on some windows of its evaluation.

    length: tokens of a window, the training length by default.
    """
    run = Run(folder)
    config = run.config()
    length = config.training.length if length is None else length
    check_int(length, "length", "attention_of", 2, config.longest)
    check_int(windows, "windows", "attention_of")
    if config.model.attention != "softmax":
        raise ValueError(
            f"attention_of: {str(folder)!r} was trained with linear attention, which has no"
            " weights; train one with softmax attention."
        )
    model = run.load_model()
    check_memory(
        32 * windows * config.model.heads * config.model.layers * length**2, length, "attention_of"
    )
    tokens = open_source(config).evaluation(length).tokens[:windows]
    made: list[Tensor] = []
    hooks = [
        block.qkv.register_forward_hook(lambda module, inputs, out: made.append(out))  # type: ignore[union-attr]
        for block in model.blocks
    ]
    model.eval()(tokens)
    for hook in hooks:
        hook.remove()
    own = model.layer_encodings
    encodings = [own[n - 1] if own and n else model.encoding for n in range(len(made))]
    layers = [_layer(model, encoding, out) for encoding, out in zip(encodings, made, strict=True)]
    return f"{title_of(config.model.encoding)} in {Path(folder).name}", layers


def rope_of(layers: list[Layer]) -> RoPE:
    """The RoPE that the run was trained with."""
    found = [part for part in layers[0].encoding.parts if isinstance(part, RoPE)]
    if not found:
        raise ValueError(
            f"the run was trained with {layers[0].encoding!r}, which holds no RoPE; name a run of"
            " whorl train --encoding rope."
        )
    return found[0]


def queries_and_keys(layers: list[Layer]) -> tuple[Tensor, Tensor]:
    """Pairs of vectors of all layers and heads: queries of the second half, keys of the first."""
    half = layers[0].q.shape[2] // 2
    found = []
    for layer in layers:
        k = layer.k.repeat_interleave(layer.q.shape[1] // layer.k.shape[1], 1)
        found.append((layer.q[:, :, -half:], k[:, :, :half]))
    return torch.stack([q for q, _ in found]), torch.stack([k for _, k in found])


def _layer(model: Model, encoding: Any, made: Tensor) -> Layer:
    config = model.config
    H, G = config.heads, config.key_heads
    parts = torch.split(torch.unflatten(made, -1, (H + 2 * G, config.head_dim)), [H, G, G], dim=2)
    q, k = (part.transpose(1, 2).contiguous() for part in parts[:2])
    at = torch.arange(made.shape[1])
    logits = compute_scores(encoding, q, k, at, at)
    if config.kind == "decoder":
        logits = logits.masked_fill(at.unsqueeze(-1) < at, float("-inf"))
    return Layer(encoding, q, k, logits.softmax(-1))
