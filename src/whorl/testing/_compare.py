"""What the checks share: comparing results of ``run_hooks``, and building an encoding again."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from whorl.encodings import Composition, Encoding, from_dict, names

from .inputs import EncodingInputs

__all__ = [
    "FROM_POSITIONS",
    "add_batch_axis",
    "build_copy",
    "build_from_dict",
    "check_close",
    "check_equal",
    "get_expected_shapes",
    "is_registered",
    "select_row",
]

#: Results that depend on positions alone, so their dtype does not follow from that of an input.
FROM_POSITIONS = ("distance_bias", "query_scale", "softmax_scale")
_EXACT = ("embed", "q", "k", "softmax_scale")


def check_equal(
    got: dict[str, Tensor], want: dict[str, Tensor], complaint: str, tolerance: float = 0.0
) -> None:
    """Raise AssertionError if hooks or shapes differ, or numbers by more than the tolerance."""
    check_close(got, want, complaint, tolerance, relative=0.0)


def check_close(
    got: dict[str, Tensor],
    want: dict[str, Tensor],
    complaint: str,
    tolerance: float = 0.0,
    relative: float = 1e-5,
) -> None:
    """Raise as ``check_equal``, but allow for inputs that come in another shape.

    Sums, products and vectorized functions may then change by ``relative`` of the largest result;
    embeddings, queries and keys may not.
    """
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
        allowed = tolerance
        if name not in _EXACT:
            allowed += relative * max(1.0, float(exact.abs().max()))
        assert error <= allowed, f"{complaint}: {name} by {error:.2g}"


def get_expected_shapes(inputs: EncodingInputs) -> dict[str, torch.Size]:
    """The shape of every possible result of ``run_hooks`` with positions [T]."""
    return {
        "embed": inputs.x.shape,
        "q": inputs.q.shape,
        "k": inputs.k.shape,
        "content_score": inputs.weights.shape,
        "distance_bias": inputs.weights.shape[1:],
        "value_term": inputs.q.shape,
        "query_scale": inputs.q.shape[2:3],
        "softmax_scale": torch.Size(),
    }


def select_row(results: dict[str, Tensor], index: int, batch: int) -> dict[str, Tensor]:
    """One batch row of all results of ``run_hooks`` with positions [B, T]."""
    return {name: _move_batch_first(name, t, batch)[index] for name, t in results.items()}


def add_batch_axis(results: dict[str, Tensor], batch: int) -> dict[str, Tensor]:
    """All results of ``run_hooks``, with a batch axis even if positions had none."""
    first = {name: _move_batch_first(name, t, batch) for name, t in results.items()}
    return {name: t.expand(batch, *t.shape[1:]) for name, t in first.items()}


def _move_batch_first(name: str, t: Tensor, batch: int) -> Tensor:
    if name == "softmax_scale":
        return t.expand(batch)
    if name == "distance_bias":  # [H, (B,) T, S]
        return t.movedim(0, -3) if t.dim() == 4 else t.unsqueeze(0)
    return t if name != "query_scale" or t.dim() == 2 else t.unsqueeze(0)


def is_registered(options: dict[str, Any]) -> bool:
    """Whether ``from_dict`` knows the encoding of these options, and all parts of a composition."""
    if options.get("name") == Composition.name:
        return all(map(is_registered, options.get("parts", ())))
    return options.get("name") in names()


def build_from_dict(encoding: Encoding, options: dict[str, Any]) -> Encoding:
    """An encoding from options of ``to_dict``, by the registry, or by its class if unregistered."""
    if is_registered(options):
        return from_dict(options)
    if isinstance(encoding, Composition):
        parts = zip(encoding.parts, options["parts"], strict=True)
        return Composition(*(build_from_dict(part, own) for part, own in parts))
    rest = {key: value for key, value in options.items() if key != "name"}
    return type(encoding)(**rest)


def build_copy(encoding: Encoding) -> Encoding:
    """A new instance from the same options, without ``to_dict``, which has its own check."""
    if isinstance(encoding, Composition):
        return Composition(*map(build_copy, encoding.parts))
    options = {
        f.name: getattr(encoding.config, f.name) for f in dataclasses.fields(encoding.config)
    }
    return type(encoding)(**options)
