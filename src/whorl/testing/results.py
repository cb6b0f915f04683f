"""Results of ``run_hooks`` by name: their shapes, their batch rows, and how two of them compare."""

import torch
from torch import Tensor

from .inputs import EncodingInputs

__all__ = [
    "FROM_POSITIONS",
    "add_batch_axis",
    "check_close",
    "check_equal",
    "get_expected_shapes",
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
