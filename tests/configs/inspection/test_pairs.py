"""Wavelengths, turns, and float32 angles, against loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.configs.inspection.pairs import (
    CompletePairs,
    compute_wavelengths,
    count_complete,
    measure_angle_error,
)
from whorl.scaling.base import compute_frequencies


def test_wavelengths_of_a_ladder() -> None:
    found = compute_wavelengths(torch.tensor([1.0, -0.5, 0.0, 1e-320], dtype=torch.float64))
    assert found == [pytest.approx(math.tau), pytest.approx(2 * math.tau), None, None]


@given(
    st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=20),
    st.integers(0, 5),
    st.integers(1, 10**6),
)
def test_every_pair_is_counted_once(values: list[float], still: int, tokens: int) -> None:
    inv_freq = torch.tensor(sorted(values, reverse=True) + [0.0] * still, dtype=torch.float64)
    found = count_complete(inv_freq, tokens)
    assert found.complete + found.never + still == len(inv_freq)
    slow = [i for i, v in enumerate(inv_freq.tolist()) if v and math.tau / v > tokens]
    assert (found.never, found.first) == (len(slow), slow[0] if slow else None)


def test_llama_2() -> None:
    assert count_complete(compute_frequencies(128, 10_000.0), 4096) == CompletePairs(
        4096, complete=46, never=18, first=46
    )


def test_float32_angles_lose_digits_with_the_position() -> None:
    inv_freq = compute_frequencies(128, 500_000.0)
    near, far = measure_angle_error(inv_freq, 1024), measure_angle_error(inv_freq, 1_000_000)
    exact = max(
        abs(float(torch.tensor(float(p)).float() * torch.tensor(w).float()) - p * w)
        for p in range(1_000_000 - 256, 1_000_000)
        for w in inv_freq.tolist()[:20]
    )
    assert far == pytest.approx(exact)
    assert near < 1e-4 < far < 0.1


def test_nothing_turns_and_nothing_is_off() -> None:
    assert measure_angle_error(torch.empty(0, dtype=torch.float64), 1000) == 0.0
