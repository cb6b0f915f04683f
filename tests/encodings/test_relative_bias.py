"""RelativeBias: one trained scalar for each head and clipped distance."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.encodings import RelativeBias

from .distances import (
    check_dtypes,
    check_no_distance,
    check_vector_serves_all,
    check_whole_only,
    square,
)


@given(
    past=st.integers(1, 9),
    future=st.none() | st.integers(0, 9),
    distances=st.lists(st.integers(-20, 20) | st.integers(-(2**40), 2**40), max_size=8),
)
def test_bias_is_the_definition(past: int, future: int | None, distances: list[int]) -> None:
    bias = RelativeBias(3, max_distance=past, max_future=future, std=1.0)
    after = past if future is None else future
    assert bias.weight.shape == (after + 1 + past, 3)
    got = bias.distance_bias(torch.tensor(distances, dtype=torch.int64))
    for n, distance in enumerate(distances):
        row = max(-after, min(past, distance)) + after
        assert torch.equal(got[:, n], bias.weight[row])


def test_every_distance_up_to_the_clips_has_a_bias_of_its_own() -> None:
    bias = RelativeBias(2, max_distance=4, max_future=2, std=1.0)
    row = bias.distance_bias(torch.arange(-5, 8))[0].tolist()
    assert len(set(row)) == 7
    assert row[:3] == [row[3]] * 3
    assert row[-3:] == [row[-4]] * 3


@given(first=st.integers(0, 10**6))
def test_only_differences_of_positions_matter(first: int) -> None:
    bias = RelativeBias(2, max_distance=3)
    at = torch.arange(6) + first
    got = bias.distance_bias(at[:, None] - at[None, :])
    assert torch.equal(got, bias.distance_bias(square(6)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_adds_up_over_repeated_distances(dtype: torch.dtype) -> None:
    bias = RelativeBias(2, max_distance=1, std=0.0).to(dtype)
    cotangent = torch.randint(1, 5, (2, 40, 40), generator=torch.Generator().manual_seed(0))
    (bias.distance_bias(square(40)) * cotangent).sum().backward()
    assert bias.weight.grad is not None
    for row, seen in enumerate((square(40) < 0, square(40) == 0, square(40) > 0)):
        want = (cotangent * seen).sum((1, 2)).to(dtype)  # bfloat16 would lose it on the way
        assert torch.equal(bias.weight.grad[row], want)


def test_initialisation() -> None:
    torch.manual_seed(0)
    assert float(RelativeBias(64).weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert float(RelativeBias(64, std=0.5).weight.detach().std()) == pytest.approx(0.5, 0.05)
    assert not RelativeBias(4, std=0.0).weight.any()
    with torch.device("meta"):
        hollow = RelativeBias(64)
    hollow.to_empty(device="cpu").reset_parameters()
    assert float(hollow.weight.detach().std()) == pytest.approx(0.02, rel=0.05)


def test_distances() -> None:
    bias = RelativeBias(3, max_distance=4)
    check_vector_serves_all(bias, 9, 6)
    check_no_distance(bias)
    check_whole_only(bias)
    check_dtypes(bias)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, r"RelativeBias: num_heads must be an int >= 1; got 0\."),
        ({"max_distance": -1}, r"max_distance must be an int >= 0; got -1"),
        ({"max_distance": 4.0}, r"max_distance must be an int >= 0; got 4\.0"),
        ({"max_future": -1}, r"max_future must be an int >= 0; got -1"),
        ({"std": -0.1}, r"std must be a finite number >= 0; got -0\.1"),
        ({"max_distance": 0}, r"max_distance \+ max_future must be at least 1, because one bias"),
    ],
)
def test_constructor(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RelativeBias(**{"num_heads": 4, **options})
