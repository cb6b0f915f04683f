"""NTK and DynamicNTK: the definition, transformers, invariants, bad options."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import HunYuanDenseV1Config
from transformers.models.hunyuan_v1_dense import modeling_hunyuan_v1_dense as hunyuan

import whorl
from tests.peers import needs_transformers_5
from whorl.scaling import NTK, DynamicNTK, Ladder

from .hugging_face import PRECISIONS, Head, check, heads, theirs

TEXT: Any = "4"
FACTORS = st.floats(1.0, 64.0)


@given(
    head=heads(),
    factor=FACTORS,
    trained=st.integers(2, 100_000),
    now=st.integers(1, 1_000_000) | st.none(),
    precision=st.sampled_from(PRECISIONS),
)
def test_dynamic_ntk_is_transformers_dynamic(
    head: Head, factor: float, trained: int, now: int | None, precision: whorl.Precision
) -> None:
    expected = theirs(
        "dynamic", head, precision, now, max_position_embeddings=trained, factor=factor
    )
    check(DynamicNTK(factor, trained), head, precision, expected, now)


@needs_transformers_5
def test_alpha_is_hunyuans() -> None:
    parameters = {"rope_type": "dynamic", "rope_theta": 10_000.0, "alpha": 1000.0, "factor": 1.0}
    config = HunYuanDenseV1Config(head_dim=128, rope_parameters=parameters)
    module = hunyuan.HunYuanDenseV1RotaryEmbedding(config)
    rope = whorl.RoPE(128, scaling=DynamicNTK(alpha=1000.0), precision="float32")
    got = rope.frequencies().inv_freq
    torch.testing.assert_close(got, module.inv_freq.double(), rtol=1e-6, atol=0)


def frequencies(ladder: Ladder, scaling: whorl.Scaling, now: Any = None) -> Tensor:
    return scaling.frequencies(ladder, now).inv_freq


@given(factor=FACTORS, pairs=st.integers(2, 64), theta=st.floats(2.0, 1e7))
def test_ntk_keeps_the_fastest_pair_and_slows_the_last_by_the_factor(
    factor: float, pairs: int, theta: float
) -> None:
    plain = Ladder.of(2 * pairs, theta)
    scaled = frequencies(plain, NTK(factor))
    assert float(scaled[0]) == 1.0
    assert float(plain.inv_freq[-1] / scaled[-1]) == pytest.approx(factor, rel=1e-9)
    raised = Ladder.of(2 * pairs, theta * factor ** (2 * pairs / (2 * pairs - 2)))
    torch.testing.assert_close(scaled, raised.inv_freq, rtol=1e-12, atol=0)
    fixed = DynamicNTK(alpha=factor)
    assert not fixed.follows_length
    assert torch.equal(frequencies(plain, fixed, 10), scaled)


def test_ntk_on_a_single_pair_changes_nothing() -> None:
    assert frequencies(Ladder.of(2), NTK(8.0)).tolist() == [1.0]
    dynamic = frequencies(Ladder.of(2), DynamicNTK(8.0, 4), torch.tensor([9, 90]))
    assert dynamic.tolist() == [[1.0], [1.0]]


def test_ntk_stretches_frequencies_of_your_own_alike() -> None:
    ladder = Ladder.of(16)
    own = Ladder(ladder.inv_freq, None)
    torch.testing.assert_close(frequencies(own, NTK(3.0)), frequencies(ladder, NTK(3.0)))
    dynamic, lengths = DynamicNTK(3.0, 8), torch.tensor([4, 8, 50])
    torch.testing.assert_close(
        frequencies(own, dynamic, lengths), frequencies(ladder, dynamic, lengths)
    )


@given(now=st.integers(1, 5000), trained=st.integers(1, 2000), factor=FACTORS)
def test_dynamic_ntk_follows_the_length(now: int, trained: int, factor: float) -> None:
    ladder, scaling = Ladder.of(32), DynamicNTK(factor, trained)
    stretch = max(1.0, factor * now / trained - (factor - 1.0))
    want = frequencies(ladder, NTK(stretch))
    torch.testing.assert_close(frequencies(ladder, scaling, now), want, rtol=1e-12, atol=0)
    rows = frequencies(ladder, scaling, torch.tensor([now, 1]))
    torch.testing.assert_close(rows[0], want, rtol=1e-12, atol=0)
    assert torch.equal(rows[1], ladder.inv_freq)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NTK(-2), r"NTK: factor must be a finite number above 0; got -2"),
        (lambda: NTK(TEXT), r"factor must be a finite number above 0; got '4'"),
        (lambda: DynamicNTK(0.5, 8), r"DynamicNTK: factor must be a finite number >= 1; got 0\.5"),
        (lambda: DynamicNTK(2.0, 0), r"original_context must be a positive int, .*; got 0"),
        (lambda: DynamicNTK(2.0, True), r"original_context must be a positive int.*; got True"),
        (lambda: DynamicNTK(2.0), r"original_context must be a positive int.*; got None"),
        (lambda: DynamicNTK(alpha=0.0), r"DynamicNTK: alpha must be a finite number above 0; got"),
        (
            lambda: DynamicNTK(),
            r"DynamicNTK: factor and original_context, or alpha alone, must be given; got"
            r" DynamicNTK\(\)\. Pass factor and original_context for a scaling that depends on the"
            r" length, or alpha for a fixed one\.",
        ),
        (
            lambda: DynamicNTK(2.0, 8, alpha=3.0),
            r"alpha is a fixed factor, so factor and original_context would change nothing; got"
            r" DynamicNTK\(factor=2\.0, .*Leave out the two, or alpha",
        ),
    ],
)
def test_bad_options(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
