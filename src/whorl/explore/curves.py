"""The numbers of the charts: one group of layers, under the config's scaling and under others.

A curve is a scaling with a base. Of each, pair by pair: wavelength, status, the angle between two
tokens so many positions apart; and by distance: the likeness mean_i cos(m theta_i), whose returns
are aliasing, and the envelope f(m) of ``whorl.analysis.decay``. Scores are those of the curve in
focus, the first that is not the config's.
"""

import dataclasses
import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from whorl.analysis.decay import complex_pairs
from whorl.analysis.record import places
from whorl.configs import ConfigError
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

from ._checks import plainly
from .choices import METHODS, Choice, changed, note
from .state import Subject

__all__ = ["LONGEST", "MOST_CURVES", "view"]

LONGEST = 2**24
MOST_CURVES = 8
_LEAN = {"table": "on_the_fly", "table_length": 0}
_SAMPLES = 64
_PLACES = 257
_SLACK = 1 + 1e-9
_TOO_LARGE = "the attention scale makes them too large for a number of 64 bits."


@torch.no_grad()
def view(
    subject: Subject,
    *,
    group: int | None = None,
    length: int | None = None,
    distance: int = 1,
    trained: int | None = None,
    choices: tuple[Choice, ...] = (),
    q: Tensor | None = None,
    k: Tensor | None = None,
) -> dict[str, Any]:
    """What all charts of the first page show."""
    index, layers = subject.group(group)
    model = subject.model
    assert model is not None
    assert layers.rotation is not None
    length = length or model.context or model.trained_context or 4096
    length = min(length, LONGEST)
    tokens = find_trained_context(model, layers, trained)
    curves, ropes = [], []
    for choice in (Choice(), *choices):
        try:
            found, rope = _curve(subject, index, choice, trained, length, distance)
        except ConfigError as error:
            found, rope = {"label": choice.label, "error": plainly(error)}, None
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
        **_by_distance(ropes, limit_by_window(length, layers.window) or length, q, k),
    }


def _curve(
    subject: Subject, index: int, choice: Choice, trained: int | None, length: int, distance: int
) -> tuple[dict[str, Any], RoPE | None]:
    assert subject.model is not None
    group = changed(subject, index, choice, trained)
    assert group.rotation is not None
    rope, text = _built(subject, index, choice, trained)
    grid = text is None
    inv_freq: Tensor = rope.frequencies(None if grid else length).inv_freq.double().flatten()
    turned = distance * inv_freq
    start = find_trained_context if choice.method in METHODS else find_extension_start
    tokens = None if grid else start(subject.model, subject.groups[index], trained)
    description = None if grid else describe_scaling(rope, length, tokens, group.window)
    wrapped = torch.remainder(turned + math.pi, math.tau) - math.pi
    pairs = () if description is None else description.pairs
    return {
        "label": choice.label,
        "note": note(subject, index, choice, trained),
        "method": choice.method,
        "factor": choice.factor,
        "base": choice.base,
        "inv_freq": inv_freq.tolist(),
        "wavelengths": compute_wavelengths(inv_freq),
        "statuses": [pair.status for pair in pairs],
        "factors": [pair.factor for pair in pairs],
        "new": _new(description, tokens, group.window, length),
        "angles": _short(wrapped.rad2deg(), 3),
        "likeness": float(turned.cos().mean()),
        "attention_scale": 1.0 if description is None else description.attention_scale,
        "reach": None if description is None else description.reach,
        "follows": bool(getattr(group.rotation.options.get("scaling"), "follows_length", False)),
        "counts": {} if description is None else dict(description.counts),
    }, text


@lru_cache(maxsize=64)
def _built(
    subject: Subject, index: int, choice: Choice, trained: int | None
) -> tuple[Any, RoPE | None]:
    """The encoding, and its RoPE for text, where all axes of a token count alike; None for grids.

    Kept, because a slider that moves asks for the same ones again.
    """
    rotation = changed(subject, index, choice, trained).rotation
    assert rotation is not None
    try:
        rope = rotation.build(**_LEAN)
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(f"explore: it does not fit these layers: {plainly(error)}") from None
    if isinstance(rope, RoPE) or rotation.encoding == "axial_rope":
        return rope, rope if isinstance(rope, RoPE) else None
    names = {field.name for field in dataclasses.fields(RoPEConfig)}
    options = {name: value for name, value in rotation.options.items() if name in names}
    return rope, RoPE(**{**options, **_LEAN})


def _new(
    description: Description | None, trained: int | None, window: int | None, length: int
) -> list[bool]:
    """Which pairs meet an angle at this length that they never took in training."""
    seen, far = limit_by_window(trained, window), limit_by_window(length, window)
    if description is None or seen is None or far is None:
        return []
    return [
        bool(
            pair.factor
            and pair.wavelength
            and pair.wavelength > seen
            and far > seen * pair.factor * _SLACK
        )
        for pair in description.pairs
    ]


def _by_distance(
    ropes: list[RoPE | None], far: int, q: Tensor | None, k: Tensor | None
) -> dict[str, Any]:
    known = [n for n, rope in enumerate(ropes) if rope is not None]
    if not known:
        why = "these positions are places in an image, which have no single distance."
        empty: dict[str, Any] = {"distances": [], "likeness": [], "envelopes": [], "scores": []}
        return {**empty, "why": why, "why_no_scores": why}
    focus = 1 if 1 in known else known[0]
    at = places(far + 1, _PLACES)
    distances = torch.tensor(at, dtype=torch.float64)
    found: list[tuple[list[float], list[float]] | None] = []
    scores: list[dict[str, Any]] = []
    for n, rope in enumerate(ropes):
        if rope is None:
            found.append(None)
            continue
        turns = rope.frequencies(far + 1)
        inv_freq = turns.inv_freq.detach().double()
        turned = distances.unsqueeze(-1) * inv_freq
        phases = torch.polar(torch.ones_like(turned), turned)  # [distances, P]
        fall = envelope(inv_freq, distances)
        found.append((_short(phases.real.mean(-1), 5), _short(fall, 4)))
        if n == focus:
            scores = _scores(rope, phases, float(turns.attention_scale), q, k)
    return {
        "distances": list(at),
        "likeness": [one and one[0] for one in found],
        "envelopes": [one and one[1] for one in found],
        "scores": scores,
        "why_no_scores": None if scores else _TOO_LARGE,
        "focus": focus,
    }


def _scores(
    rope: RoPE, phases: Tensor, scale: float, q: Tensor | None, k: Tensor | None
) -> list[dict[str, Any]]:
    """Re sum_i q_i conj(k_i) exp(i m theta_i) / (|q| |k|), means over some q and k.

    None at all where the attention scale makes one of them too large for a float64.
    """
    source, D = torch.Generator().manual_seed(0), rope.config.head_dim
    random = [torch.randn(_SAMPLES, D, generator=source, dtype=torch.float64) for _ in range(2)]
    cases = [("random, q = k", random[0], random[0]), ("random q and k", random[0], random[1])]
    if q is not None or k is not None:
        cases.append(("your q and k", *_given(q, k, D)))
    rows = []
    for name, queries, keys in cases:
        a, b = complex_pairs(queries, rope), complex_pairs(keys, rope)
        norm = a.norm(dim=-1) * b.norm(dim=-1)
        score = (phases @ (a * b.conj()).T).real * scale * scale / norm
        if not bool(score.abs().sum(-1).isfinite().all()):
            return []
        row = {"mean": _short(score.mean(-1), 5), "size": _short(score.abs().mean(-1), 5)}
        rows.append({"name": name, "count": len(queries), **row})
    return rows


def _given(q: Tensor | None, k: Tensor | None, head_dim: int) -> tuple[Tensor, Tensor]:
    if q is None or k is None or q.shape != k.shape:
        raise ConfigError("explore: q and k go together; give as many numbers of both.")
    if q.shape[-1] != head_dim:
        raise ConfigError(
            f"explore: q and k must have {head_dim} numbers each, the width of a head; got"
            f" {q.shape[-1]}."
        )
    if not bool((q.norm(dim=-1) > 0).all() and (k.norm(dim=-1) > 0).all()):
        raise ConfigError("explore: q and k must not be 0, because scores are divided by |q| |k|.")
    return q, k


def _short(values: Tensor, digits: int) -> list[float]:
    """Numbers with so many digits after the point: what a chart shows, and no more to send."""
    return [round(value, digits) for value in values.double().tolist()]
