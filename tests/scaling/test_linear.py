"""Linear and DynamicLinear: the definition, transformers, bad options."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whorl
from whorl.scaling import DynamicLinear, Ladder, Linear

from .hugging_face import PRECISIONS, Head, check, heads, theirs


@given(head=heads(2), factor=st.floats(1.0, 64.0), precision=st.sampled_from(PRECISIONS))
def test_linear_is_transformers_linear(
    head: Head, factor: float, precision: whorl.Precision
) -> None:
    check(Linear(factor), head, precision, theirs("linear", head, precision, factor=factor))


@given(factor=st.floats(0.1, 64.0), pairs=st.integers(1, 64), theta=st.floats(2.0, 1e7))
def test_linear_divides_every_frequency(factor: float, pairs: int, theta: float) -> None:
    ladder = Ladder.of(2 * pairs, theta)
    got = Linear(factor).frequencies(ladder, None)
    torch.testing.assert_close(got.inv_freq, ladder.inv_freq / factor, rtol=1e-15, atol=0)
    assert got.attention_scale == 1.0


@given(now=st.integers(1, 5000), trained=st.integers(1, 2000))
def test_dynamic_linear_is_linear_with_the_factor_of_the_moment(now: int, trained: int) -> None:
    ladder = Ladder.of(32)
    got = DynamicLinear(trained).frequencies(ladder, now)
    want = Linear(max(1.0, now / trained)).frequencies(ladder, None)
    assert torch.equal(got.inv_freq, want.inv_freq)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear(0.0), r"Linear: factor must be a finite number above 0; got 0\.0"),
        (lambda: Linear(float("nan")), r"factor must be a finite number above 0; got nan"),
        (lambda: Linear(float("inf")), r"factor must be a finite number above 0; got inf"),
        (lambda: Linear(10**400), r"factor must be a finite number above 0; got 1000"),
        (lambda: Linear(True), r"factor must be a finite number above 0; got True"),
        (
            lambda: DynamicLinear(0),
            r"DynamicLinear: original_context must be a positive int, the length that the model"
            r" was trained for; got 0\.",
        ),
    ],
)
def test_bad_options(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
