"""The definition of an alias against loops."""

import math

import pytest
import torch

from whorl.scaling.aliasing import alike
from whorl.scaling.base import ladder


def test_no_aliasing() -> None:
    assert alike(ladder(64, 10_000.0), 40_000) is None
    assert alike(torch.zeros(4, dtype=torch.float64), 40_000) is None
    assert alike(ladder(8, 10.0), 3) is None


@pytest.mark.parametrize("base", [10.0, 30.0, 100.0])
def test_the_first_distance_that_looks_near_is_found(base: float) -> None:
    inv_freq = ladder(8, base)

    def similarity(distance: int) -> float:
        return sum(math.cos(distance * w) for w in inv_freq.tolist()) / 4

    near = similarity(2)
    start = next(d for d in range(3, 9000) if similarity(d) <= near / 2)
    first = next((d for d in range(start, 9000) if similarity(d) >= near), None)
    assert first is not None
    found = alike(torch.cat((inv_freq, torch.zeros(3, dtype=torch.float64))), 9000)
    assert found is not None
    assert found.distance == first
    assert (found.similarity, found.near) == pytest.approx((similarity(first), near))
    assert alike(inv_freq, first) is None
    assert alike(inv_freq, first + 1) == found


def test_a_search_has_an_end_unless_told_otherwise() -> None:
    inv_freq = ladder(8, 10.0)
    found = alike(inv_freq, 10**5)
    assert found is not None
    assert alike(inv_freq, 10**5, most=4 * found.distance) is None
    assert alike(inv_freq, 10**5, most=None) == found
    assert alike(inv_freq, 10**5, most=4 * 127) is None
