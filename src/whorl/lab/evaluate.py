"""A trained model on held-out questions of every length.

By length: mean loss in nats per judged token, the mean of each window (for intervals), and the
share of tokens that were right. By position, at the longest length: mean loss of tokens around it.

A scaling can be put into the model's rotation for the evaluation alone. Those with a factor get the
one of the config at every length, as one would set it for a trained model; dynamic ones follow the
length.
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

from whorl._support.words import suggest_name
from whorl.encodings import base

from .config import ModelConfig, RunConfig
from .data import Questions, Source
from .encodings import parts_of
from .model import Model

__all__ = ["SCALINGS", "evaluate", "with_scaling"]

Progress = Callable[[int, int], None]

# Tokens of one forward pass: enough to fill the matrices, few enough for the cache.
_TOKENS = 4096

#: Scalings that stretch a trained rotation as it is, and the options that each needs.
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
    model: Model, source: Source, config: RunConfig, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Results at every length of ``config``, as plain values."""
    model.eval()
    by_length: dict[str, Any] = {}
    by_position: dict[str, Any] | None = None
    windows = len(source.evaluation(config.lengths[0]).tokens)
    total = sum(config.lengths) * windows
    done = 0
    for length in config.lengths:
        questions = source.evaluation(length)
        start = time.perf_counter()
        parts = []
        for first in range(0, len(questions.tokens), rows := max(1, _TOKENS // length)):
            parts.append(_answers(model, questions, first, first + rows, length))
            done += parts[-1][0].numel()
            if progress is not None:
                progress(min(done, total), total)
        losses, right = (torch.cat(column) for column in zip(*parts, strict=True))
        by_length[str(length)] = _summary(losses, right, questions.judged)
        by_length[str(length)]["seconds"] = time.perf_counter() - start
        if length == config.longest:
            by_position = _profile(losses, questions.targets, config)
    return {"by_length": by_length, "by_position": by_position}


def with_scaling(config: RunConfig, name: str | None) -> ModelConfig:
    """The model's config with scaling ``name`` in its rotation; None leaves it as it is.

    >>> with_scaling(RunConfig(), "linear").encoding
    [{'name': 'rope', 'scaling': {'name': 'linear', 'factor': 4.0}}]
    """
    if name is None:
        return config.model
    if name not in SCALINGS:
        known = ", ".join(SCALINGS)
        raise ValueError(
            f"--scalings: {name!r} cannot be put into a trained model{suggest_name(name, SCALINGS)}"
            f" Known: {known}. (LongRoPE's factors come from a search, and proportional rotation"
            " must be trained.)"
        )
    # DynamicNTK's factor 1 follows the length itself.
    factor = 1.0 if name == "dynamic_ntk" else config.evaluation.factor
    values = {"factor": factor, "original_context": config.training.length}
    options = {"name": name, **{option: values[option] for option in SCALINGS[name]}}
    parts = parts_of(config.model.encoding)
    for part in parts:
        if takes_scaling(part["name"]) and "scaling" not in part:
            part["scaling"] = options
            return replace(config.model, encoding=parts)
    raise ValueError(
        f"the scaling {name!r} needs a rotation without one, such as rope; the encoding is"
        f" {config.model.encoding!r}."
    )


def takes_scaling(name: str) -> bool:
    """Whether an encoding of that name has frequencies that a scaling can change."""
    cls = base.get_classes().get(name)
    return cls is not None and "scaling" in inspect.signature(cls).parameters


@torch.no_grad()
def _answers(
    model: Model, questions: Questions, first: int, last: int, length: int
) -> tuple[Tensor, Tensor]:
    """Loss and whether it was right of every token of some windows, [rows, T]; 0 if not asked."""
    tokens, targets = questions.tokens[first:last], questions.targets[first:last]
    logits = model(tokens, context_length=length).float()
    asked = targets >= 0
    losses = F.cross_entropy(logits.mT, targets, ignore_index=-1, reduction="none")
    return losses, (logits.argmax(-1) == targets) & asked


def _summary(losses: Tensor, right: Tensor, judged: Tensor) -> dict[str, Any]:
    counts = judged.sum(1)
    windows = (losses * judged).double().sum(1) / counts
    hits = (right & judged).sum(1)
    return {
        "loss": float((losses * judged).double().sum() / counts.sum()),
        "accuracy": float(hits.sum() / counts.sum()),
        "windows": [round(x, 6) for x in windows.tolist()],
    }


def _profile(losses: Tensor, targets: Tensor, config: RunConfig) -> dict[str, Any] | None:
    """Mean loss between half octaves of the position, where every token was asked."""
    if bool((targets < 0).any()):
        return None
    edges = _edges(losses.shape[1], (config.training.length, *config.lengths))
    means = [float(losses[:, a:b].double().mean()) for a, b in pairwise(edges)]
    middles = [(a + b - 1) / 2 for a, b in pairwise(edges)]
    return {"position": middles, "start": edges[:-1], "end": edges[1:], "loss": means}


def _edges(length: int, more: Sequence[int]) -> list[int]:
    """0, 1, 2, 3, 4, 6, 8, 12, ... up to ``length``, and the lengths that are judged."""
    halves = (base << n for n in range(length.bit_length()) for base in (2, 3))
    return sorted({n for n in (0, 1, *halves, *more) if n < length} | {length})
