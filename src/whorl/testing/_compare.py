"""Comparing what ``observe`` saw, and building an encoding again: what the checks share."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from whorl.encodings import Composition, Encoding, from_dict, names

from .probe import Probe

__all__ = [
    "FROM_POSITIONS",
    "RESHAPED",
    "batched",
    "construct",
    "rebuild",
    "registered",
    "row",
    "same",
    "shapes",
]

#: Results that come from positions alone, so that no dtype of an input explains their rounding.
FROM_POSITIONS = ("distance_bias", "query_scale", "softmax_scale")
#: How far a sum, product or vectorised function may move, relative to the largest result, when
#: the same numbers come in another shape. Embeddings, queries and keys are compared exactly.
RESHAPED = dict.fromkeys(("content_score", "value_term", "distance_bias", "query_scale"), 1e-5)


def same(
    got: dict[str, Tensor],
    want: dict[str, Tensor],
    complaint: str,
    tolerance: float = 0.0,
    relative: dict[str, float] | None = None,
) -> None:
    """Refuse other hooks, other shapes, or numbers further apart than allowed."""
    assert got.keys() == want.keys(), f"{complaint}: hooks {sorted(got)} instead of {sorted(want)}"
    for name, expected in want.items():
        actual = got[name]
        assert actual.shape == expected.shape, (
            f"{complaint}: {name} is {list(actual.shape)} instead of {list(expected.shape)}"
        )
        if not expected.numel():
            continue
        exact = expected.detach().double()
        error = float((actual.detach().double() - exact).abs().max())
        allowed = tolerance + (relative or {}).get(name, 0.0) * max(1.0, float(exact.abs().max()))
        assert error <= allowed, f"{complaint}: {name} by {error:.2g}"


def shapes(probe: Probe) -> dict[str, torch.Size]:
    """The shape of everything that may be observed with positions [T]."""
    return {
        "embed": probe.x.shape,
        "q": probe.q.shape,
        "k": probe.k.shape,
        "content_score": probe.weights.shape,
        "distance_bias": probe.weights.shape[1:],
        "value_term": probe.q.shape,
        "query_scale": probe.q.shape[2:3],
        "softmax_scale": torch.Size(),
    }


def row(seen: dict[str, Tensor], index: int, batch: int) -> dict[str, Tensor]:
    """One batch row of everything observed with positions [B, T]."""
    return {name: _batch_first(name, t, batch)[index] for name, t in seen.items()}


def batched(seen: dict[str, Tensor], batch: int) -> dict[str, Tensor]:
    """Everything observed, with a batch axis even where positions had none."""
    first = {name: _batch_first(name, t, batch) for name, t in seen.items()}
    return {name: t.expand(batch, *t.shape[1:]) for name, t in first.items()}


def _batch_first(name: str, t: Tensor, batch: int) -> Tensor:
    if name == "softmax_scale":
        return t.expand(batch)
    if name == "distance_bias":  # [H, (B,) T, S]
        return t.movedim(0, -3) if t.dim() == 4 else t.unsqueeze(0)
    return t if name != "query_scale" or t.dim() == 2 else t.unsqueeze(0)


def registered(options: dict[str, Any]) -> bool:
    """Whether ``from_dict`` knows what these options name: an encoding, or all parts of several."""
    if options.get("name") == Composition.name:
        return all(map(registered, options.get("parts", ())))
    return options.get("name") in names()


def rebuild(encoding: Encoding, options: dict[str, Any]) -> Encoding:
    """Through the registry, or through its class where a third party has not registered it."""
    if registered(options):
        return from_dict(options)
    if isinstance(encoding, Composition):
        pairs = zip(encoding.parts, options["parts"], strict=True)
        return Composition(*(rebuild(part, its) for part, its in pairs))
    rest = {key: value for key, value in options.items() if key != "name"}
    return type(encoding)(**rest)


def construct(encoding: Encoding) -> Encoding:
    """A new instance from the same options, past ``to_dict``, which has a check of its own."""
    if isinstance(encoding, Composition):
        return Composition(*map(construct, encoding.parts))
    options = {
        f.name: getattr(encoding.config, f.name) for f in dataclasses.fields(encoding.config)
    }
    return type(encoding)(**options)
