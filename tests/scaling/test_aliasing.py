"""The definition of an alias against loops."""

import math

import pytest
import torch

from whorl.scaling.aliasing import find_alias
from whorl.scaling.base import compute_frequencies


def test_no_aliasing() -> None:
    assert find_alias(compute_frequencies(64, 10_000.0), 40_000) is None
    assert find_alias(torch.zeros(4, dtype=torch.float64), 40_000) is None
    assert find_alias(compute_frequencies(8, 10.0), 3) is None


@pytest.mark.parametrize("base", [10.0, 30.0, 100.0])
def test_the_first_distance_that_looks_near_is_found(base: float) -> None:
    inv_freq = compute_frequencies(8, base)

    def similarity(distance: int) -> float:
        return sum(math.cos(distance * w) for w in inv_freq.tolist()) / 4

    near = similarity(2)
    start = next(d for d in range(3, 9000) if similarity(d) <= near / 2)
    first = next((d for d in range(start, 9000) if similarity(d) >= near), None)
    assert first is not None
    found = find_alias(torch.cat((inv_freq, torch.zeros(3, dtype=torch.float64))), 9000)
    assert found is not None
    assert found.distance == first
    assert (found.similarity, found.near) == pytest.approx((similarity(first), near))
    assert find_alias(inv_freq, first) is None
    assert find_alias(inv_freq, first + 1) == found


def test_a_search_has_an_end_unless_told_otherwise() -> None:
    inv_freq = compute_frequencies(8, 10.0)
    found = find_alias(inv_freq, 10**5)
    assert found is not None
    assert find_alias(inv_freq, 10**5, most=4 * found.distance) is None
    assert find_alias(inv_freq, 10**5, most=None) == found
    assert find_alias(inv_freq, 10**5, most=4 * 127) is None
