"""ALiBi: the paper's slopes, a bias that never rewards, and slopes that stay slopes in training."""

import copy
import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.encodings import ALiBi

from .distances import (
    check_dtypes,
    check_halves_refused,
    check_no_distance,
    check_vector_serves_all,
)

HEADS = st.integers(1, 70)
KINDS: tuple[Literal["fixed", "trained"], ...] = ("fixed", "trained")


def paper(heads: int) -> list[float]:
    """The recursion of the paper's own code, for max_bias = 8."""
    if heads & (heads - 1) == 0:
        start = 2 ** (-8 / heads)
        return [start * start**i for i in range(heads)]
    below = 2 ** math.floor(math.log2(heads))
    return paper(below) + paper(2 * below)[0::2][: heads - below]


@given(heads=HEADS)
def test_slopes_are_those_of_the_paper(heads: int) -> None:
    want = torch.tensor(paper(heads), dtype=torch.float64)
    torch.testing.assert_close(ALiBi(heads).slopes(), want, rtol=1e-13, atol=0)


def test_slopes_printed_in_the_paper() -> None:
    assert ALiBi(8).slopes().tolist() == [2.0**-n for n in range(1, 9)]
    assert ALiBi(16).slopes()[1::2].tolist() == [2.0**-n for n in range(1, 9)]


@given(
    heads=HEADS,
    max_bias=st.floats(0.5, 20.0),
    slope_scale=st.floats(0.01, 4.0),
    distances=st.lists(st.integers(-(10**6), 10**6), max_size=6),
)
def test_bias_is_the_definition_and_never_above_0(
    heads: int, max_bias: float, slope_scale: float, distances: list[int]
) -> None:
    alibi = ALiBi(heads, max_bias=max_bias, slope_scale=slope_scale)
    bias = alibi.distance_bias(torch.tensor(distances, dtype=torch.int64))
    assert bias.shape == (heads, len(distances))
    assert not bool((bias > 0).any())
    for h, slope in enumerate(alibi.slopes().tolist()):
        for n, distance in enumerate(distances):
            exact = -slope * abs(distance)
            assert abs(float(bias[h, n]) - exact) <= 2.0**-24 * abs(exact)  # rounded once


@given(positions=st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=5), shift=st.floats(-9, 9))
def test_fractions_depend_on_difference_only(positions: list[float], shift: float) -> None:
    at = torch.tensor(positions, dtype=torch.float64)
    alibi = ALiBi(3)
    here = alibi.distance_bias(at[:, None] - at[None, :])
    there = alibi.distance_bias((at + shift)[:, None] - (at + shift)[None, :])
    torch.testing.assert_close(here, there, rtol=0, atol=1e-9)
    assert torch.equal(here, here.mT)  # symmetric


@pytest.mark.parametrize("slopes", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (5, 5), (1, 8), (7, 3)])
def test_one_vector_per_head_serves(slopes: Any, size: tuple[int, int]) -> None:
    check_vector_serves_all(ALiBi(6, slopes=slopes), *size)


@given(heads=HEADS)
def test_trained_slopes_start_exactly_at_the_fixed_ones(heads: int) -> None:
    fixed, trained = ALiBi(heads), ALiBi(heads, slopes="trained")
    assert torch.equal(fixed.slopes(), trained.slopes())
    distance = torch.arange(-50, 3000)
    assert torch.equal(fixed.distance_bias(distance), trained.distance_bias(distance))


@given(alpha=st.floats(-80.0, 80.0))
def test_trained_slopes_stay_positive(alpha: float) -> None:
    alibi = ALiBi(5, slopes="trained")
    torch.nn.init.constant_(alibi.alpha, alpha)
    assert bool((alibi.slopes() > 0).all())
    assert not bool((alibi.distance_bias(torch.arange(-9, 9)) > 0).any())


def test_gradient_of_a_slope_adds_up_over_distances() -> None:
    alibi = ALiBi(3, slopes="trained")
    distance = torch.tensor([[0, 4, 4], [-4, 1, 0]])
    alibi.distance_bias(distance).sum().backward()
    assert alibi.alpha.grad is not None
    want = -13 * ALiBi(3).slopes()
    torch.testing.assert_close(alibi.alpha.grad.double(), want, rtol=1e-6, atol=0)


def test_reset_takes_slopes_back() -> None:
    alibi = ALiBi(6, slopes="trained")
    with torch.device("meta"):
        hollow = ALiBi(6, slopes="trained")
    hollow.to_empty(device="cpu").reset_parameters()
    for spoilt in (copy.deepcopy(alibi), hollow):
        torch.nn.init.constant_(spoilt.alpha, 2.0)
        spoilt.reset_parameters()
        assert torch.equal(spoilt.slopes(), alibi.slopes())
    ALiBi(6).reset_parameters()  # nothing to do


@pytest.mark.parametrize("slopes", KINDS)
def test_dtypes(slopes: Any) -> None:
    check_dtypes(ALiBi(6, slopes=slopes))


def test_bad_distances() -> None:
    check_no_distance(ALiBi(2))
    check_halves_refused(ALiBi(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, r"ALiBi: num_heads must be an int >= 1; got 0\."),
        ({"num_heads": 8.0}, r"num_heads must be an int >= 1; got 8\.0"),
        ({"num_heads": True}, r"num_heads must be an int >= 1; got True"),
        ({"max_bias": 0}, r"max_bias must be a finite number above 0; got 0"),
        ({"max_bias": math.inf}, r"max_bias must be a finite number above 0; got inf"),
        ({"max_bias": math.nan}, r"max_bias must be a finite number above 0; got nan"),
        ({"max_bias": "8"}, r"max_bias must be a finite number above 0; got '8'"),
        ({"slope_scale": -1.0}, r"slope_scale must be a finite number above 0; got -1\.0"),
        ({"slope_scale": True}, r"slope_scale must be a finite number above 0; got True"),
        ({"slopes": "learned"}, r"slopes must be 'fixed' or 'trained'; got 'learned'"),
    ],
)
def test_constructor(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ALiBi(**{"num_heads": 4, **options})
