"""T5Bias: its buckets, its biases, its softmax scale."""

import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import whorl
from whorl.encodings import T5Bias

from .distances import (
    check_dtypes,
    check_no_distance,
    check_vector_serves_all,
    check_whole_only,
    square,
)

Direction = Literal["bidirectional", "causal"]
DIRECTIONS: tuple[Direction, ...] = ("bidirectional", "causal")


def levels(distance: int, buckets: int, max_distance: int, direction: Direction) -> set[int]:
    """The bucket by the definition in exact numbers; two where rounding may decide."""
    first = 0
    if direction == "bidirectional":
        buckets //= 2
        first = buckets if distance < 0 else 0
        distance = abs(distance)
    distance, exact = max(distance, 0), buckets // 2
    if distance < exact:
        return {first + distance}
    level = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact)
    near = (level - 1e-5, level + 1e-5)  # float32 logarithms, up to 500 buckets
    return {first + min(buckets - 1, exact + math.floor(max(0.0, one))) for one in near}


@given(
    half=st.integers(2, 100),
    max_distance=st.integers(2, 10**6),
    direction=st.sampled_from(DIRECTIONS),
    distances=st.lists(st.integers(-200, 200) | st.integers(-(2**40), 2**40), max_size=20),
)
def test_buckets_are_the_definition(
    half: int, max_distance: int, direction: Direction, distances: list[int]
) -> None:
    assume(max_distance > half)
    bias = T5Bias(1, num_buckets=2 * half, max_distance=max_distance, direction=direction)
    got = bias.buckets(torch.tensor(distances, dtype=torch.int64))
    assert got.dtype == torch.int64
    for bucket, distance in zip(got.tolist(), distances, strict=True):
        assert bucket in levels(distance, 2 * half, max_distance, direction)


@given(
    half=st.integers(2, 40),
    max_distance=st.integers(2, 3000),
    direction=st.sampled_from(DIRECTIONS),
)
def test_buckets_never_go_back_and_end_at_max_distance(
    half: int, max_distance: int, direction: Direction
) -> None:
    assume(max_distance > half)
    bias = T5Bias(1, num_buckets=2 * half, max_distance=max_distance, direction=direction)
    past = bias.buckets(torch.arange(max_distance + 5))
    assert bool((past.diff() >= 0).all())
    last = bias.config.one_way - 1
    assert past[max_distance:].tolist() == [last] * 5
    future = bias.buckets(-torch.arange(1, max_distance + 5))
    if direction == "bidirectional":
        assert torch.equal(future, past[1:] + half)
    else:
        assert not future.any()


def test_first_distance_of_each_bucket_of_t5() -> None:
    near = [*range(8), 8, 12, 16, 23, 32, 46, 64, 91]
    past = T5Bias(1).buckets(torch.arange(0, 200))
    assert [int((past == bucket).nonzero()[0]) for bucket in range(16)] == near
    assert T5Bias(1).buckets(torch.tensor([0, -1, -7, -200])).tolist() == [0, 17, 23, 31]


@pytest.mark.parametrize(("buckets", "max_distance"), [(10, 160), (36, 392), (54, 64)])
def test_buckets_where_float32_logarithms_decide(buckets: int, max_distance: int) -> None:
    """T5's own code takes logarithms in float32; in float64 a distance here changes its bucket."""
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    distance = torch.arange(max_distance + 1)
    theirs = t5._relative_position_bucket(-distance, False, buckets, max_distance)
    bias = T5Bias(1, num_buckets=buckets, max_distance=max_distance, direction="causal")
    assert torch.equal(bias.buckets(distance), theirs)
    exact = buckets // 2
    level = torch.log(distance.double() / exact) / math.log(max_distance / exact)
    precise = (exact + (level * (buckets - exact)).to(torch.int64)).clamp(max=buckets - 1)
    assert not torch.equal(precise[exact:], theirs[exact:])  # so the case is worth its place


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_bias_is_the_row_of_the_bucket(direction: Direction) -> None:
    bias = T5Bias(3, direction=direction)
    distance = torch.arange(-300, 300).view(2, 300)
    got = bias.distance_bias(distance)
    assert got.shape == (3, 2, 300)
    for (i, j), bucket in zip(
        ((i, j) for i in range(2) for j in range(300)),
        bias.buckets(distance).flatten().tolist(),
        strict=True,
    ):
        assert torch.equal(got[:, i, j], bias.weight[bucket])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_adds_up_over_the_distances_of_a_bucket(dtype: torch.dtype) -> None:
    bias = T5Bias(2, direction="causal").to(dtype)
    cotangent = torch.randint(1, 5, (2, 60, 60), generator=torch.Generator().manual_seed(0))
    (bias.distance_bias(square(60)) * cotangent).sum().backward()
    buckets = bias.buckets(square(60))
    assert bias.weight.grad is not None
    for bucket in range(32):
        want = (cotangent * (buckets == bucket)).sum((1, 2)).to(dtype)
        assert torch.equal(bias.weight.grad[bucket], want)


def test_softmax_scale() -> None:
    assert T5Bias(2).softmax_scale(64) == 1.0
    assert T5Bias(2).hooks == {"score", "scale"}
    assert T5Bias(2, scale=0.3).softmax_scale(64) == 0.3
    assert T5Bias(2, scale=None).softmax_scale(64) is None
    assert T5Bias(2, scale=None).hooks == {"score"}
    assert (whorl.RoPE(16) + T5Bias(2)).softmax_scale(16) == 1.0


def test_initialisation() -> None:
    torch.manual_seed(0)

    def std(bias: T5Bias) -> float:
        return float(bias.weight.detach().std())

    assert std(T5Bias(128)) == pytest.approx((64 * 128) ** -0.5, rel=0.05)
    assert std(T5Bias(128, std=0.5)) == pytest.approx(0.5, rel=0.05)
    assert std(T5Bias(128, std=0.0)) == 0.0
    with torch.device("meta"):
        hollow = T5Bias(128, std=0.5)
    hollow.to_empty(device="cpu").reset_parameters()
    assert std(hollow) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_distances(direction: Direction) -> None:
    bias = T5Bias(3, direction=direction, num_buckets=8, max_distance=10)
    check_vector_serves_all(bias, 21, 14)
    check_no_distance(bias)
    check_whole_only(bias)
    check_dtypes(bias)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, r"T5Bias: num_heads must be an int >= 1; got 0\."),
        ({"direction": "both"}, r"direction must be 'bidirectional' or 'causal'; got 'both'"),
        ({"num_buckets": 2}, r"num_buckets must be an int >= 4; got 2"),
        ({"num_buckets": 1, "direction": "causal"}, r"num_buckets must be an int >= 2; got 1"),
        ({"num_buckets": 33}, r"num_buckets must be even where direction is 'bidirectional', bec"),
        ({"max_distance": 0}, r"max_distance must be an int >= 1; got 0"),
        ({"max_distance": 8}, r"must be above 8, because with num_buckets = 32 the distances up"),
        ({"max_distance": 8}, r"up to 7 have a bucket each; got 8\. Raise it, or lower num_buck"),
        ({"scale": 0.0}, r"scale must be a finite number above 0; got 0\.0"),
        ({"std": -1.0}, r"std must be a finite number >= 0; got -1\.0"),
    ],
)
def test_constructor(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        T5Bias(**{"num_heads": 4, **options})
