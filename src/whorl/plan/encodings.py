"""What an encoding and a kind of attention add to a model: parameters, cache and operations."""

import inspect
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from whorl._support.options import check_choice
from whorl._support.words import quote
from whorl.encodings import Encoding, make
from whorl.encodings.base import get_classes

from .model import ModelSize

__all__ = ["AttentionKind", "ModelAttention", "build_attention"]

AttentionKind = Literal["softmax", "linear"]
_STORED_SCORES = 1 << 24  # by content, kept for gradients in each layer (docs/attention.md)


@dataclass(frozen=True)
class ModelAttention:
    """The attention of a model with an encoding, at a length.

    layer_parameters: of the encoding in each layer; model_parameters: once, in the embedding.
    score_rows: vectors of distances that each query is multiplied with; -1: one for each key.
    """

    encoding: str
    kind: AttentionKind
    size: ModelSize
    length: int
    layer_parameters: int
    model_parameters: int
    score_rows: int

    @property
    def parameters(self) -> int:
        """Trained numbers of the encoding in the whole model."""
        return self.size.layers * self.layer_parameters + self.model_parameters

    def count_visible(self) -> float:
        """Keys that a query sees under a causal mask, on average, added up over the layers."""
        return sum(_average_visible(self.length, w) for w in self.size.windows)

    def count_operations(self) -> float:
        """Operations of one token in the attention of all layers, without its projections."""
        size = self.size
        wide = size.heads * size.head_dim
        if self.kind == "linear":
            return 4.0 * wide * size.head_dim * size.layers
        rows = 2 * self.length if self.score_rows < 0 else self.score_rows
        return 4 * wide * self.count_visible() + 2 * wide * rows * size.layers

    def count_decoding(self) -> float:
        """Operations of the token after ``length`` others, in the attention of all layers."""
        size = self.size
        wide = size.heads * size.head_dim
        if self.kind == "linear":
            return 4.0 * wide * size.head_dim * size.layers
        seen = sum(min(self.length, w or self.length) for w in size.windows)
        rows = self.length if self.score_rows < 0 else self.score_rows
        return 4.0 * wide * seen + 2 * wide * rows * size.layers

    def count_cache(self, width: int) -> float:
        """Bytes of the cache of one sequence, with numbers of ``width`` bytes."""
        size = self.size
        if self.kind == "linear":  # sums of products, float32
            return 4.0 * size.layers * size.heads * size.head_dim * (size.head_dim + 1)
        held = sum(min(self.length, w or self.length) for w in size.windows)
        return 2.0 * size.kv_heads * size.head_dim * width * held

    def count_scores(self, batch: int) -> float:
        """Bytes of scores by content that a layer keeps for gradients."""
        pairs = batch * self.size.heads * self.length**2
        return 4.0 * pairs if self.score_rows and pairs <= _STORED_SCORES else 0.0


def build_attention(
    encoding: str, kind: AttentionKind, size: ModelSize, length: int
) -> ModelAttention:
    """The attention of a model with an encoding by name, or several joined by +."""
    check_choice(kind, ("softmax", "linear"), "attention", "plan")
    if not isinstance(encoding, str):
        raise ValueError(f"encoding must be a name such as 'rope'; got {quote(encoding)}.")
    parts = [_build_part(name.strip(), size, length) for name in encoding.split("+")]
    if kind == "linear":
        for part in parts:
            if part.card is not None and part.card.linear_attention == "no":
                raise ValueError(
                    f"attention must be 'softmax' with {quote(part.name)}, whose scores linear"
                    " attention cannot form; got 'linear'."
                )
    counts = {True: 0, False: 0}
    for part in parts:
        counts[part.acts("embed")] += sum(p.numel() for p in part.parameters())
    rows = [_count_rows(part) for part in parts]
    total = -1 if -1 in rows else sum(rows)
    return ModelAttention(encoding, kind, size, length, counts[False], counts[True], total)


def _build_part(name: str, size: ModelSize, length: int) -> Encoding:
    """An encoding for the model, without memory."""
    if name not in get_classes():
        return make(name)  # raises, and lists the known names
    sizes: dict[str, Any] = {"num_heads": size.heads, "head_dim": size.head_dim}
    sizes |= {"dim": size.width, "max_length": length}
    parameters = inspect.signature(get_classes()[name]).parameters
    wanted = {n: sizes[n] for n, p in parameters.items() if p.default is p.empty and n in sizes}
    if name == "mrope":  # Qwen2-VL's quarter of the pairs for time, the rest for rows and columns
        across = (size.head_dim // 2 - size.head_dim // 8) // 2
        wanted["sections"] = (size.head_dim // 2 - 2 * across, across, across)
    if "table_length" in parameters:
        wanted["table_length"] = 0
    with torch.device("meta"):
        return make(name, **wanted)


def _count_rows(encoding: Encoding) -> int:
    """Vectors of distances that a query is multiplied with; -1 for one of each distance."""
    if not encoding.acts("content_score"):
        return 0
    rows = getattr(encoding.config, "rows", None)  # Shaw
    if isinstance(rows, int):
        return rows
    span, terms = getattr(encoding.config, "span", None), getattr(encoding.config, "terms", ())
    return 2 * span * len(terms) if isinstance(span, int) else -1  # DeBERTa; Transformer-XL


def _average_visible(length: int, window: int | None) -> float:
    """Keys that one of ``length`` queries sees on average, itself included."""
    w = min(length, window or length)
    return w - math.comb(w, 2) / length if length else 0.0
