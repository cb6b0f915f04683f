"""How a training went, from the lines of metrics.jsonl: trained frequencies and gradient norms.

RoPE with frequencies="trained" and AxialRoPE with frequencies="mixed" have frequencies that are
parameters. The first line of a run has those that it began with, and each line with a validation
loss those of its step. Every line has the gradient norm of each part of the model, before clipping.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from torch import nn

from whorl._support.words import quote
from whorl.analysis.record import Record
from whorl.encodings import Encoding

from .encodings import format_title
from .runs import Run

__all__ = [
    "FrequencyHistory",
    "GradientHistory",
    "list_trained_frequencies",
    "read_frequencies",
    "read_gradient_norms",
]

# Most points of a line of a chart; the norms between two of them are averaged.
_MOST_POINTS = 80


@dataclass(frozen=True)
class FrequencyHistory(Record):
    """Frequencies of a run that are trained, in radians per position, at the start and by step.

    Those of pairs that rotate along several axes are the lengths of the vectors of frequencies.
    groups: what has frequencies of its own, such as a layer or a head. start: [group][pair].
    values: [step][group][pair]. length: the trained length.
    """

    name: str
    length: int
    groups: tuple[str, ...]
    start: tuple[tuple[float, ...], ...]
    steps: tuple[int, ...]
    values: tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True)
class GradientHistory(Record):
    """Gradient norms of the parts of a model by step, geometric means of ``per_point`` steps.

    values: [part][point]; None where all gradients are 0. clip: the total norm that a step may
    have; clipped: the share of steps with a larger one, which were scaled down.
    """

    name: str
    per_point: int
    clip: float
    clipped: float
    steps: tuple[float, ...]
    values: dict[str, tuple[float | None, ...]]


def list_trained_frequencies(model: nn.Module) -> dict[str, Any]:
    """Frequencies of a model that are parameters, in six digits; empty if there are none.

    By the name of the encoding, with the number of the layer if each layer has its own: a list
    [pair], or [head, axis, pair] if mixed.
    """
    found: list[Any] = [
        part
        for part in model.modules()
        if isinstance(part, Encoding)
        and getattr(part.config, "frequencies", "fixed") in ("trained", "mixed")
    ]
    several = len(found) > 1
    return {
        f"{part.name}, layer {n}" if several else part.name: _round(
            part.frequencies().inv_freq.tolist()
        )
        for n, part in enumerate(found, start=1)
    }


def read_frequencies(folder: str | Path) -> FrequencyHistory:
    """Trained frequencies of a run by step; ValueError if it has none."""
    run, lines = _read_lines(folder)
    config = run.load_config()
    found = {line["step"]: line["frequencies"] for line in lines if "frequencies" in line}
    if not found or "starting_frequencies" not in lines[0]:
        raise ValueError(
            f"{str(folder)!r} has no frequencies that were trained: its encoding is"
            f" {quote(format_title(config.model.encoding))}. Choose a run of"
            " rope(frequencies=trained), or another one with trained frequencies."
        )
    start = _split_groups(lines[0]["starting_frequencies"])
    return FrequencyHistory(
        name=_name_run(run),
        length=config.training.length,
        groups=tuple(start),
        start=tuple(start.values()),
        steps=tuple(found),
        values=tuple(tuple(_split_groups(each).values()) for each in found.values()),
    )


def read_gradient_norms(folder: str | Path) -> GradientHistory:
    """Gradient norms of the parts of a run's model by step."""
    run, lines = _read_lines(folder)
    clip = run.load_config().training.clip
    width = -(-len(lines) // _MOST_POINTS)
    pieces = [lines[n : n + width] for n in range(0, len(lines), width)]
    parts = lines[0]["gradient_norms"]
    return GradientHistory(
        name=_name_run(run),
        per_point=width,
        clip=clip,
        clipped=fmean(line["gradient_norm"] > clip for line in lines),
        steps=tuple(fmean(line["step"] for line in piece) for piece in pieces),
        values={
            part: tuple(
                _average_norms(line["gradient_norms"][part] for line in piece) for piece in pieces
            )
            for part in parts
        },
    )


def _read_lines(folder: str | Path) -> tuple[Run, list[dict[str, Any]]]:
    """A run whose files are unchanged, and the lines of its metrics."""
    run = Run(folder)
    run.verify()
    lines = run.read_metrics()
    if not lines:
        raise ValueError(f"{str(folder)!r} has no steps yet; train it first.")
    return run, lines


def _name_run(run: Run) -> str:
    return f"{format_title(run.load_config().model.encoding)} in {run.folder.name}"


def _split_groups(found: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Frequencies [pair] of each group; mixed ones have a group for each head."""
    groups = {}
    for name, values in found.items():
        if isinstance(values[0], list):
            for n, axes in enumerate(values):
                groups[f"{name}, head {n}"] = tuple(
                    math.hypot(*column) for column in zip(*axes, strict=True)
                )
        else:
            groups[name] = tuple(map(abs, values))  # negative if the rotation is backward
    return groups


def _average_norms(norms: Iterable[float]) -> float | None:
    """The geometric mean of those that are above 0."""
    logs = [math.log(norm) for norm in norms if norm > 0]
    return math.exp(fmean(logs)) if logs else None


def _round(values: Sequence[Any] | float) -> Any:
    if isinstance(values, float):
        return float(f"{values:.6g}")
    return [_round(value) for value in values]
