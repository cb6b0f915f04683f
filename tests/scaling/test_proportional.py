"""Proportional: transformers, the difference from partial rotation, bad options."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whorl
from tests.peers import needs_transformers_5
from whorl.scaling import Ladder, Proportional

from .hugging_face import PRECISIONS, TOLERANCE, Head, theirs


@needs_transformers_5
@given(
    pairs=st.integers(1, 128),
    share=st.floats(0.0, 1.0),
    base=st.floats(10.0, 1e8),
    factor=st.floats(0.5, 64.0),
    precision=st.sampled_from(PRECISIONS),
)
def test_proportional_is_transformers_proportional(
    pairs: int, share: float, base: float, factor: float, precision: whorl.Precision
) -> None:
    head = Head(width=2 * pairs, partial=share, base=base)
    want, scale = theirs("proportional", head, precision, factor=factor)
    scaling = Proportional(share, factor=factor)
    rope = whorl.RoPE(2 * pairs, base=base, scaling=scaling, precision=precision, table_length=0)
    got = rope.frequencies()
    torch.testing.assert_close(got.inv_freq, want, rtol=TOLERANCE[precision], atol=0)
    assert got.attention_scale == scale


def test_the_exponent_counts_the_whole_head() -> None:
    got = whorl.RoPE(64, scaling=Proportional(0.25)).frequencies().inv_freq
    assert torch.equal(got[:8], Ladder.of(64).inv_freq[:8])
    assert not got[8:].any()
    partial = whorl.RoPE(64, rotary_dim=16).frequencies().inv_freq
    assert not torch.allclose(got[:8], partial)


def test_pairs_that_stand_still_pass_through() -> None:
    x = torch.randn(1, 2, 5, 16, generator=torch.Generator().manual_seed(0))
    got = whorl.RoPE(16, scaling=Proportional(0.5)).rotate(x, offset=3)
    still = [4, 5, 6, 7, 12, 13, 14, 15]  # layout "half": pair i is channels i and i + 8
    assert torch.equal(got[..., still], x[..., still])
    assert not torch.allclose(got[..., :4], x[..., :4])
    assert torch.equal(whorl.RoPE(16, scaling=Proportional(0.0)).rotate(x, offset=3), x)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), True, "0.5", None])
def test_bad_shares(share: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"Proportional: rotary_share must be a number from 0 to 1, the share of all pairs"
        r" that rotate; got ",
    ):
        Proportional(share)


def test_bad_factor() -> None:
    with pytest.raises(ValueError, match=r"Proportional: factor must be a finite number above 0"):
        Proportional(0.5, factor=0.0)
