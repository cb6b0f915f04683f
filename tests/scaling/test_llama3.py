"""Llama3: transformers, its kinship with NTK by parts, bad options."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whorl
from whorl.scaling import Ladder, Llama3, NTKByParts

from .hugging_face import PRECISIONS, Head, check, heads, theirs


@given(
    head=heads(2),
    factor=st.floats(1.0, 64.0),
    trained=st.integers(1, 1_000_000),
    low=st.floats(0.1, 10.0),
    above=st.floats(0.01, 50.0),
    precision=st.sampled_from(PRECISIONS),
)
def test_llama3_is_transformers_llama3(
    head: Head, factor: float, trained: int, low: float, above: float, precision: whorl.Precision
) -> None:
    expected = theirs(
        "llama3",
        head,
        precision,
        factor=factor,
        original_max_position_embeddings=trained,
        low_freq_factor=low,
        high_freq_factor=low + above,
    )
    check(Llama3(factor, trained, low, low + above), head, precision, expected)


def test_it_is_the_papers_ramp_with_other_corners() -> None:
    ladder = Ladder.of(128, 500_000.0)
    got = Llama3(8.0, 8192).frequencies(ladder, None)
    parts = NTKByParts(8.0, 8192, beta_fast=4.0, beta_slow=1.0, ramp="rotations")
    assert torch.equal(got.inv_freq, parts.frequencies(ladder, None).inv_freq)
    assert got.attention_scale == 1.0


def test_equal_corners_switch_where_transformers_switches() -> None:
    head = Head(width=64, partial=1.0, base=10_000.0)
    expected = theirs(
        "llama3",
        head,
        "float64",
        factor=4.0,
        original_max_position_embeddings=1000,
        low_freq_factor=2.0,
        high_freq_factor=2.0,
    )
    check(Llama3(4.0, 1000, 2.0, 2.0), head, "float64", expected)
    on_it = Ladder(torch.tensor([math.pi / 2], dtype=torch.float64), None)  # wavelength 4
    got = Llama3(4.0, 8, 2.0, 2.0).frequencies(on_it, None).inv_freq
    assert torch.equal(got, on_it.inv_freq)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 0}, r"Llama3: factor must be a finite number >= 1; got 0"),
        ({"original_context": "8192"}, r"Llama3: original_context must be a positive int.*'8192'"),
        ({"low_freq_factor": 0.0}, r"low_freq_factor must be a finite number above 0; got 0\.0"),
        ({"high_freq_factor": -4}, r"high_freq_factor must be a finite number above 0; got -4"),
        (
            {"low_freq_factor": 4.0, "high_freq_factor": 1.0},
            r"high_freq_factor must be at least low_freq_factor, because fast pairs keep their"
            r" frequency; got 1\.0 and 4\.0\. Swap the two\.",
        ),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Llama3(**{"factor": 8.0, "original_context": 8192, **options})
