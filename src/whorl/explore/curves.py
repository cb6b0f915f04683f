"""The numbers of the charts: one layer group, with the config's scaling and with others.

A curve is a scaling with a base. It has, for each pair, the wavelength, the status, and the angle
between two tokens at a distance; and by distance the similarity mean_i cos(m theta_i), whose peaks
are aliasing, and the envelope f(m) of ``whorl.analysis.decay``. Scores are computed for the focus,
which is the first curve that is not the config's, if there is one; heat maps for it and the config.
"""

import dataclasses
import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from whorl.analysis.decay import convert_to_complex
from whorl.analysis.record import sample_positions
from whorl.configs import ConfigError, Rotation
from whorl.configs.inspection.extension import describe_scaling
from whorl.configs.inspection.lengths import (
    find_extension_start,
    find_trained_context,
    limit_by_window,
)
from whorl.configs.inspection.pairs import compute_wavelengths
from whorl.encodings import RoPE
from whorl.encodings.rope import RoPEConfig
from whorl.scaling import Description
from whorl.scaling.envelope import envelope

from ._checks import format_error
from .choices import METHODS, Choice, apply_choice, describe_method
from .heat import build_heat_map
from .state import ExploredConfig

__all__ = ["CURVE_LIMIT", "LENGTH_LIMIT", "build_view"]

LENGTH_LIMIT = 2**24
CURVE_LIMIT = 8
_SAMPLES = 64
_DISTANCE_COUNT = 257
#: Results by distance that each curve has; only the first and the focus have a heat map.
_BY_DISTANCE = ("likeness", "envelopes", "heat")
_SLACK = 1 + 1e-9
_TOO_LARGE = "the attention scale makes the scores too large for 64-bit numbers."


@torch.no_grad()
def build_view(
    explored: ExploredConfig,
    *,
    group: int | None = None,
    length: int | None = None,
    distance: int = 1,
    trained: int | None = None,
    choices: tuple[Choice, ...] = (),
    q: Tensor | None = None,
    k: Tensor | None = None,
) -> dict[str, Any]:
    """The numbers of all charts of the first page."""
    index, layers = explored.select_group(group)
    model = explored.model
    assert model is not None
    assert layers.rotation is not None
    length = length or model.context or model.trained_context or 4096
    length = min(length, LENGTH_LIMIT)
    tokens = find_trained_context(model, layers, trained)
    curves, ropes = [], []
    for choice in (Choice(), *choices):
        try:
            found, rope = _build_curve(explored, index, choice, trained, length, distance)
        except ConfigError as error:
            found, rope = {"label": choice.label, "error": format_error(error)}, None
        curves.append(found)
        ropes.append(rope)
    if "error" in curves[0]:
        raise ConfigError(curves[0]["error"])
    return {
        "group": index,
        "length": length,
        "trained": tokens,
        "claimed": model.context,
        "window": layers.window,
        "distance": distance,
        "curves": curves,
        **_compute_by_distance(ropes, limit_by_window(length, layers.window) or length, q, k),
    }


def _build_curve(
    explored: ExploredConfig,
    index: int,
    choice: Choice,
    trained: int | None,
    length: int,
    distance: int,
) -> tuple[dict[str, Any], RoPE | None]:
    assert explored.model is not None
    group = apply_choice(explored, index, choice, trained)
    assert group.rotation is not None
    rope, text = _build_encoding(explored, index, choice, trained)
    grid = text is None
    inv_freq: Tensor = rope.frequencies(None if grid else length).inv_freq.double().flatten()
    angles = distance * inv_freq
    start = find_trained_context if choice.method in METHODS else find_extension_start
    tokens = None if grid else start(explored.model, explored.groups[index], trained)
    description = None if grid else describe_scaling(rope, length, tokens, group.window)
    wrapped = torch.remainder(angles + math.pi, math.tau) - math.pi
    pairs = () if description is None else description.pairs
    return {
        "label": choice.label,
        "note": describe_method(explored, index, choice, trained),
        "method": choice.method,
        "factor": choice.factor,
        "base": choice.base,
        "inv_freq": inv_freq.tolist(),
        "wavelengths": compute_wavelengths(inv_freq),
        "statuses": [pair.status for pair in pairs],
        "factors": [pair.factor for pair in pairs],
        "new": _find_new_angles(description, tokens, group.window, length),
        "angles": _round_values(wrapped.rad2deg(), 3),
        "likeness": float(angles.cos().mean()),
        "attention_scale": 1.0 if description is None else description.attention_scale,
        "reach": None if description is None else description.effective_context,
        "follows": bool(getattr(group.rotation.options.get("scaling"), "follows_length", False)),
        "counts": {} if description is None else dict(description.counts),
    }, text


@lru_cache(maxsize=64)
def _build_encoding(
    explored: ExploredConfig, index: int, choice: Choice, trained: int | None
) -> tuple[Any, RoPE | None]:
    """The encoding, and its RoPE for text, where all axes have equal positions; None for grids.

    Cached, because a slider that moves asks for the same encodings again.
    """
    rotation = apply_choice(explored, index, choice, trained).rotation
    assert rotation is not None
    try:
        rope: Any = rotation.build_without_tables()
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(
            f"explore: this choice does not fit these layers: {format_error(error)}"
        ) from None
    if isinstance(rope, RoPE) or rotation.encoding == "axial_rope":
        return rope, rope if isinstance(rope, RoPE) else None
    names = {field.name for field in dataclasses.fields(RoPEConfig)}
    options = {name: value for name, value in rotation.options.items() if name in names}
    text: Any = Rotation("rope", options).build_without_tables()
    return rope, text


def _find_new_angles(
    description: Description | None, trained: int | None, window: int | None, length: int
) -> list[bool]:
    """Which pairs have an out-of-distribution angle at this length."""
    known, far = limit_by_window(trained, window), limit_by_window(length, window)
    if description is None or known is None or far is None:
        return []
    return [
        bool(
            pair.factor
            and pair.wavelength
            and pair.wavelength > known
            and far > known * pair.factor * _SLACK
        )
        for pair in description.pairs
    ]


def _compute_by_distance(
    ropes: list[RoPE | None], far: int, q: Tensor | None, k: Tensor | None
) -> dict[str, Any]:
    known = [n for n, rope in enumerate(ropes) if rope is not None]
    if not known:
        why = "these positions are coordinates in an image, which have no single distance."
        empty: dict[str, Any] = {name: [] for name in ("distances", *_BY_DISTANCE, "scores")}
        return {**empty, "why": why, "why_no_scores": why}
    focus = 1 if 1 in known else known[0]
    at = sample_positions(far + 1, _DISTANCE_COUNT)
    distances = torch.tensor(at, dtype=torch.float64)
    rows: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for n, rope in enumerate(ropes):
        if rope is None:
            rows.append({})
            continue
        used = rope.frequencies(far + 1)
        inv_freq = used.inv_freq.detach().double()
        angles = distances.unsqueeze(-1) * inv_freq
        phases = torch.polar(torch.ones_like(angles), angles)  # [distances, P]
        rows.append(
            {
                "likeness": _round_values(phases.real.mean(-1), 5),
                "envelopes": _round_values(envelope(inv_freq, distances), 4),
                "heat": build_heat_map(inv_freq, far) if n in (known[0], focus) else None,
            }
        )
        if n == focus:
            scores = _compute_scores(rope, phases, float(used.attention_scale), q, k)
    return {
        "distances": list(at),
        **{name: [row.get(name) for row in rows] for name in _BY_DISTANCE},
        "scores": scores,
        "why_no_scores": None if scores else _TOO_LARGE,
        "focus": focus,
    }


def _compute_scores(
    rope: RoPE, phases: Tensor, scale: float, q: Tensor | None, k: Tensor | None
) -> list[dict[str, Any]]:
    """Scores Re sum_i q_i conj(k_i) exp(i m theta_i) / (|q| |k|), means over some q and k.

    An empty list if the attention scale makes one of them too large for a float64.
    """
    source, D = torch.Generator().manual_seed(0), rope.config.head_dim
    random = [torch.randn(_SAMPLES, D, generator=source, dtype=torch.float64) for _ in range(2)]
    cases = [("random, q = k", random[0], random[0]), ("random q and k", random[0], random[1])]
    if q is not None or k is not None:
        cases.append(("your q and k", *_check_vectors(q, k, D)))
    rows = []
    for name, queries, keys in cases:
        a, b = convert_to_complex(queries, rope), convert_to_complex(keys, rope)
        norm = a.norm(dim=-1) * b.norm(dim=-1)
        score = (phases @ (a * b.conj()).T).real * scale * scale / norm
        if not bool(score.abs().sum(-1).isfinite().all()):
            return []
        row = {
            "mean": _round_values(score.mean(-1), 5),
            "size": _round_values(score.abs().mean(-1), 5),
        }
        rows.append({"name": name, "count": len(queries), **row})
    return rows


def _check_vectors(q: Tensor | None, k: Tensor | None, head_dim: int) -> tuple[Tensor, Tensor]:
    if q is None or k is None or q.shape != k.shape:
        raise ConfigError("explore: q and k must be given together, with equally many numbers.")
    if q.shape[-1] != head_dim:
        raise ConfigError(
            f"explore: q and k must have {head_dim} numbers each, the width of a head; got"
            f" {q.shape[-1]}."
        )
    if not bool((q.norm(dim=-1) > 0).all() and (k.norm(dim=-1) > 0).all()):
        raise ConfigError("explore: q and k must not be 0, because scores are divided by |q| |k|.")
    return q, k


def _round_values(values: Tensor, digits: int) -> list[float]:
    """Numbers rounded to so many digits after the point, which is enough for a chart."""
    return [round(value, digits) for value in values.double().tolist()]
