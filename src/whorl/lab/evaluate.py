"""Evaluation of a trained model on held-out data at every length.

By length: mean loss in nats per token, the mean of each window (for intervals), and the share of
tokens that were predicted correctly. By position, at the longest length: mean loss in intervals of
positions.

A scaling can be applied to the model's rotation for the evaluation only. Scalings with a factor use
that of the config at every length; dynamic ones depend on the length.
"""

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl._support.words import quote, suggest_name
from whorl.encodings import base

from .config import ModelConfig, RunConfig
from .data import DataSource, TokenBatch
from .encodings import split_spec
from .model import LanguageModel

__all__ = ["SCALINGS", "add_scaling", "evaluate"]

EvaluationProgress = Callable[[int, int], None]

# Enough tokens for fast matrix products, few enough for the cache.
_TOKENS_PER_PASS = 4096

#: Scalings that can be applied to a trained model, and the options that each needs.
SCALINGS = {
    "linear": ("factor",),
    "ntk": ("factor",),
    "ntk_by_parts": ("factor", "original_context"),
    "yarn": ("factor", "original_context"),
    "llama3": ("factor", "original_context"),
    "dynamic_linear": ("original_context",),
    "dynamic_ntk": ("factor", "original_context"),
    "dynamic_yarn": ("original_context",),
}


def evaluate(
    model: LanguageModel,
    source: DataSource,
    config: RunConfig,
    *,
    progress: EvaluationProgress | None = None,
) -> dict[str, Any]:
    """Results of ``model`` at every length of ``config``, as plain values."""
    model.eval()
    by_length: dict[str, Any] = {}
    by_position: dict[str, Any] | None = None
    windows = len(source.get_evaluation(config.lengths[0]).tokens)
    total = sum(config.lengths) * windows
    done = 0
    for length in config.lengths:
        questions = source.get_evaluation(length)
        start = time.perf_counter()
        parts = []
        for first in range(0, len(questions.tokens), rows := max(1, _TOKENS_PER_PASS // length)):
            parts.append(_compute_losses(model, questions, first, first + rows, length))
            done += parts[-1][0].numel()
            if progress is not None:
                progress(min(done, total), total)
        losses, right = (torch.cat(column) for column in zip(*parts, strict=True))
        by_length[str(length)] = _summarize_length(losses, right, questions.judged)
        by_length[str(length)]["seconds"] = time.perf_counter() - start
        if length == config.lengths[-1]:
            by_position = _average_by_position(losses, questions.targets, config)
    return {"by_length": by_length, "by_position": by_position}


def add_scaling(config: RunConfig, name: str | None) -> ModelConfig:
    """The model's config with the scaling ``name``; None leaves it as it is.

    >>> add_scaling(RunConfig(), "linear").encoding
    [{'name': 'rope', 'scaling': {'name': 'linear', 'factor': 4.0}}]
    """
    if name is None:
        return config.model
    if name not in SCALINGS:
        known, guess = ", ".join(SCALINGS), suggest_name(name, SCALINGS)
        raise ValueError(
            f"scalings: {quote(name)} cannot be applied to a trained model{guess} Known: {known}."
            " (LongRoPE's factors come from a search, and proportional rotation must be trained.)"
        )
    # With a factor of 1, DynamicNTK extends to exactly the length at hand.
    factor = 1.0 if name == "dynamic_ntk" else config.evaluation.factor
    values = {"factor": factor, "original_context": config.training.length}
    options = {"name": name, **{option: values[option] for option in SCALINGS[name]}}
    parts = split_spec(config.model.encoding)
    for part in parts:
        if supports_scaling(part["name"]) and "scaling" not in part:
            part["scaling"] = options
            return replace(config.model, encoding=parts)
    raise ValueError(
        f"scalings: {quote(name)} needs a rotary encoding without a scaling, such as rope; the"
        f" encoding is {quote(config.model.encoding)}."
    )


def supports_scaling(name: str) -> bool:
    """Whether the encoding ``name`` has frequencies that a scaling can change."""
    cls = base.get_classes().get(name)
    return cls is not None and "scaling" in inspect.signature(cls).parameters


@torch.no_grad()
def _compute_losses(
    model: LanguageModel, questions: TokenBatch, first: int, last: int, length: int
) -> tuple[Tensor, Tensor]:
    """Loss of every token of some windows, and whether it was predicted correctly, [rows, T].

    Both are 0 for tokens without a target.
    """
    tokens, targets = questions.tokens[first:last], questions.targets[first:last]
    logits = model(tokens, context_length=length).float()
    asked = targets >= 0
    losses = F.cross_entropy(logits.mT, targets, ignore_index=-1, reduction="none")
    return losses, (logits.argmax(-1) == targets) & asked


def _summarize_length(losses: Tensor, right: Tensor, judged: Tensor) -> dict[str, Any]:
    counts = judged.sum(1)
    windows = (losses * judged).double().sum(1) / counts
    hits = (right & judged).sum(1)
    return {
        "loss": float((losses * judged).double().sum() / counts.sum()),
        "accuracy": float(hits.sum() / counts.sum()),
        "windows": [round(x, 6) for x in windows.tolist()],
    }


def _average_by_position(
    losses: Tensor, targets: Tensor, config: RunConfig
) -> dict[str, Any] | None:
    """Mean loss in intervals of the position; None unless every token has a target."""
    if bool((targets < 0).any()):
        return None
    edges = _choose_edges(losses.shape[1], (config.training.length, *config.lengths))
    means = [float(losses[:, a:b].double().mean()) for a, b in pairwise(edges)]
    middles = [(a + b - 1) / 2 for a, b in pairwise(edges)]
    return {"position": middles, "start": edges[:-1], "end": edges[1:], "loss": means}


def _choose_edges(length: int, more: Sequence[int]) -> list[int]:
    """Ends of the intervals: 0, 1, 2, 3, 4, 6, 8, 12, ..., ``length``, and those in ``more``."""
    halves = (base << n for n in range(length.bit_length()) for base in (2, 3))
    return sorted({n for n in (0, 1, *halves, *more) if n < length} | {length})
