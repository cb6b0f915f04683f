"""YaRN and DynamicYaRN: transformers, the paper, DeepSeek's rule, corner cases, bad options."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whorl
from whorl.scaling import DynamicYaRN, Ladder, NTKByParts, YaRN

from .hugging_face import PRECISIONS, Head, check, heads, theirs
from .paper import attention_scale, ntk_by_parts

FACTORS = st.floats(1.0, 64.0)
MSCALES = st.none() | st.just(0.0) | st.floats(0.1, 2.0)


@given(
    head=heads(2),
    factor=FACTORS,
    trained=st.integers(1, 1_000_000),
    mscale=MSCALES,
    mscale_all_dim=MSCALES,
    attention_factor=st.none() | st.floats(0.1, 2.0),
    truncate=st.booleans(),
    precision=st.sampled_from(PRECISIONS),
)
def test_yarn_is_transformers_yarn(
    head: Head,
    factor: float,
    trained: int,
    mscale: float | None,
    mscale_all_dim: float | None,
    attention_factor: float | None,
    truncate: bool,
    precision: whorl.Precision,
) -> None:
    options: dict[str, Any] = {
        "factor": factor,
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
        "attention_factor": attention_factor,
        "truncate": truncate,
    }
    expected = theirs("yarn", head, precision, original_max_position_embeddings=trained, **options)
    check(YaRN(original_context=trained, **options), head, precision, expected)


@given(factor=FACTORS, trained=st.integers(1, 1_000_000), theta=st.floats(1.5, 1e8))
def test_the_paper_mode_is_the_paper(factor: float, trained: int, theta: float) -> None:
    got = YaRN(factor, trained, ramp="rotations").frequencies(Ladder.of(64, theta), None)
    want = torch.tensor(ntk_by_parts(64, theta, factor, trained), dtype=torch.float64)
    torch.testing.assert_close(got.inv_freq, want, rtol=1e-12, atol=0)
    assert got.attention_scale == pytest.approx(attention_scale(factor), rel=1e-15)


def test_the_two_ramps_differ() -> None:
    ladder = Ladder.of(128)
    one, other = YaRN(4.0, 4096, ramp="index"), YaRN(4.0, 4096, ramp="rotations")
    ratio = one.frequencies(ladder, None).inv_freq / other.frequencies(ladder, None).inv_freq
    assert 1.5 < float(ratio.max()) < 3.0
    assert ratio[0] == 1.0


@given(
    now=st.integers(1, 100_000),
    trained=st.integers(1, 10_000),
    mscale=MSCALES,
    rule=st.sampled_from(["both", "each"]),
    ramp=st.sampled_from(["index", "rotations"]),
)
def test_dynamic_yarn_is_yarn_with_the_factor_of_the_moment(
    now: int, trained: int, mscale: float | None, rule: Any, ramp: Any
) -> None:
    options: dict[str, Any] = {"mscale": mscale, "mscale_rule": rule, "ramp": ramp}
    ladder = Ladder.of(64)
    got = DynamicYaRN(trained, **options).frequencies(ladder, now)
    want = YaRN(max(1.0, now / trained), trained, **options).frequencies(ladder, None)
    assert torch.equal(got.inv_freq, want.inv_freq)
    assert got.attention_scale == want.attention_scale


@given(factor=FACTORS, mscale=MSCALES, mscale_all_dim=MSCALES)
def test_each_mscale_counts_by_deepseeks_rule(
    factor: float, mscale: float | None, mscale_all_dim: float | None
) -> None:
    scaling = YaRN(factor, 4096, mscale=mscale, mscale_all_dim=mscale_all_dim, mscale_rule="each")
    above = 0.1 * (1.0 if mscale is None else mscale) * math.log(factor) + 1
    below = 0.1 * (mscale_all_dim or 0.0) * math.log(factor) + 1
    got = scaling.frequencies(Ladder.of(16), None).attention_scale
    assert got == pytest.approx(above / below, rel=1e-15)


def test_a_lone_mscale_counts_for_nothing_by_transformers_rule() -> None:
    plain = YaRN(40.0, 4096).frequencies(Ladder.of(64), None).attention_scale
    lone: list[dict[str, Any]] = [
        {"mscale": 0.7},
        {"mscale_all_dim": 0.7},
        {"mscale": 0.7, "mscale_all_dim": 0},
    ]
    for options in lone:
        got = YaRN(40.0, 4096, **options).frequencies(Ladder.of(64), None)
        assert got.attention_scale == plain
    both = YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=1.0)  # DeepSeek-V3
    assert both.frequencies(Ladder.of(64), None).attention_scale == 1.0


@pytest.mark.parametrize("ramp", ["index", "rotations"])
def test_yarn_is_ntk_by_parts_with_a_scale(ramp: Any) -> None:
    yarn = YaRN(8.0, 2048, ramp=ramp).frequencies(Ladder.of(128), None)
    parts = NTKByParts(8.0, 2048, ramp=ramp).frequencies(Ladder.of(128), None)
    assert torch.equal(yarn.inv_freq, parts.inv_freq)
    assert yarn.attention_scale == pytest.approx(1.2079441541679836)


def test_factor_one_changes_nothing() -> None:
    got = YaRN(1.0, 4096).frequencies(Ladder.of(128), None)
    torch.testing.assert_close(got.inv_freq, Ladder.of(128).inv_freq, rtol=1e-15, atol=0)
    assert got.attention_scale == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 0.25}, r"YaRN: factor must be a finite number >= 1; got 0\.25"),
        ({"original_context": -1}, r"YaRN: original_context must be a positive int.*; got -1"),
        ({"beta_slow": 64}, r"YaRN: beta_fast must be at least beta_slow, .*got 32\.0 and 64"),
        ({"mscale": -1.0}, r"YaRN: mscale must be a finite number above 0; got -1\.0"),
        ({"mscale_all_dim": "1"}, r"YaRN: mscale_all_dim must be a finite number above 0; got '1'"),
        ({"mscale_rule": "any"}, r"YaRN: mscale_rule must be 'both' or 'each'; got 'any'"),
        ({"attention_factor": 0.0}, r"attention_factor must be a finite number above 0; got 0\.0"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        YaRN(**{"factor": 4.0, "original_context": 4096, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"original_context": None}, r"DynamicYaRN: original_context must be a positive int.*None"),
        ({"ramp": "x"}, r"DynamicYaRN: ramp must be 'index' or 'rotations' or 'backward'; got 'x'"),
        ({"attention_factor": -1}, r"DynamicYaRN: attention_factor must be a finite number above"),
    ],
)
def test_bad_options_of_the_dynamic_form(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DynamicYaRN(**{"original_context": 4096, **options})


def test_options_after_the_sizes_are_named() -> None:
    positional: Any = YaRN
    with pytest.raises(TypeError, match="positional argument"):
        positional(4.0, 4096, 32.0)
