"""Linear, NTK and DynamicNTK: formulas, invariants, bad options."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whorl
from whorl.scaling import base

TEXT: Any = "4"
FACTORS = st.floats(1.0, 64.0)


def inv_freq(rope: whorl.RoPE, context_length: Any = None) -> torch.Tensor:
    return rope.frequencies(context_length).inv_freq


@given(factor=FACTORS, pairs=st.integers(1, 64), theta=st.floats(2.0, 1e7))
def test_linear_divides_every_frequency(factor: float, pairs: int, theta: float) -> None:
    plain = whorl.RoPE(2 * pairs, base=theta, table_length=0)
    scaled = whorl.RoPE(2 * pairs, base=theta, table_length=0, scaling=whorl.Linear(factor))
    torch.testing.assert_close(inv_freq(scaled), inv_freq(plain) / factor, rtol=1e-15, atol=0)


@given(factor=FACTORS, pairs=st.integers(2, 64), theta=st.floats(2.0, 1e7))
def test_ntk_keeps_the_fastest_pair_and_slows_the_last_by_the_factor(
    factor: float, pairs: int, theta: float
) -> None:
    plain = inv_freq(whorl.RoPE(2 * pairs, base=theta, table_length=0))
    scaled = inv_freq(whorl.RoPE(2 * pairs, base=theta, table_length=0, scaling=whorl.NTK(factor)))
    assert float(scaled[0]) == 1.0
    assert float(plain[-1] / scaled[-1]) == pytest.approx(factor, rel=1e-9)
    raised = theta * factor ** (2 * pairs / (2 * pairs - 2))
    again = inv_freq(whorl.RoPE(2 * pairs, base=raised, table_length=0))
    torch.testing.assert_close(scaled, again, rtol=1e-12, atol=0)


def test_ntk_on_a_single_pair_changes_nothing() -> None:
    assert inv_freq(whorl.RoPE(2, scaling=whorl.NTK(8.0))).tolist() == [1.0]
    dynamic = whorl.RoPE(2, scaling=whorl.DynamicNTK(8.0, 4))
    assert inv_freq(dynamic, torch.tensor([9, 90])).tolist() == [[1.0], [1.0]]


def test_ntk_stretches_frequencies_of_your_own_alike() -> None:
    ladder = whorl.RoPE(16).frequencies().inv_freq
    own = whorl.RoPE(16, inv_freq=ladder, scaling=whorl.NTK(3.0))
    torch.testing.assert_close(inv_freq(own), inv_freq(whorl.RoPE(16, scaling=whorl.NTK(3.0))))
    by_row = whorl.RoPE(16, inv_freq=ladder, scaling=whorl.DynamicNTK(3.0, 8))
    want = whorl.RoPE(16, scaling=whorl.DynamicNTK(3.0, 8))
    lengths = torch.tensor([4, 8, 50])
    torch.testing.assert_close(inv_freq(by_row, lengths), inv_freq(want, lengths))


@given(now=st.integers(1, 5000), trained=st.integers(1, 2000), factor=FACTORS)
def test_dynamic_ntk_follows_the_length(now: int, trained: int, factor: float) -> None:
    rope = whorl.RoPE(32, table_length=0, scaling=whorl.DynamicNTK(factor, trained))
    stretch = max(1.0, factor * now / trained - (factor - 1.0))
    want = inv_freq(whorl.RoPE(32, table_length=0, scaling=whorl.NTK(stretch)))
    torch.testing.assert_close(inv_freq(rope, now), want, rtol=1e-12, atol=0)
    rows = inv_freq(rope, torch.tensor([now, 1]))
    assert rows.shape == (2, 16)
    torch.testing.assert_close(rows[0], want, rtol=1e-12, atol=0)
    torch.testing.assert_close(rows[1], inv_freq(whorl.RoPE(32, table_length=0)), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: whorl.Linear(0.0), r"Linear: factor must be a finite number above 0; got 0\.0"),
        (lambda: whorl.Linear(float("nan")), r"factor must be a finite number above 0; got nan"),
        (lambda: whorl.NTK(-2), r"NTK: factor must be a finite number above 0; got -2"),
        (lambda: whorl.NTK(TEXT), r"factor must be a finite number above 0; got '4'"),
        (lambda: whorl.DynamicNTK(0.5, 8), r"DynamicNTK: factor must be a finite number >= 1; got"),
        (
            lambda: whorl.DynamicNTK(2.0, 0),
            r"original_context must be a positive int, the length that .*; got 0",
        ),
        (
            lambda: whorl.DynamicNTK(2.0, True),
            r"original_context must be a positive int.*; got True",
        ),
    ],
)
def test_bad_options(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_dictionaries_round_trip_and_refuse_the_unknown() -> None:
    for scaling in (whorl.Linear(4.0), whorl.NTK(2.0), whorl.DynamicNTK(2.0, 4096)):
        assert base.from_dict(scaling.to_dict()) == scaling
    with pytest.raises(
        ValueError, match=r"unknown scaling 'yarm'\. Known: dynamic_ntk, linear, ntk"
    ):
        base.from_dict({"name": "yarm"})
    with pytest.raises(TypeError, match=r"scaling 'linear' has no option 'fact'; it has: factor"):
        base.from_dict({"name": "linear", "fact": 2.0})
    with pytest.raises(ValueError, match=r"scaling 'linear' is registered already"):
        base.register("linear")(whorl.NTK)
