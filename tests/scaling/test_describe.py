"""describe(): statuses of pairs, the effective context by its definition, table, JSON, errors."""

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whorl.scaling import (
    NTK,
    DynamicLinear,
    DynamicNTK,
    DynamicYaRN,
    Ladder,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    Scaling,
    YaRN,
)
from whorl.scaling.base import compute_frequencies as frequencies

from .samples import SCALINGS, name_of

LADDER = Ladder.of(128)


def counts(scaling: Scaling, length: int | None = None) -> tuple[int, ...]:
    return tuple(scaling.describe(LADDER, length).counts.values())


def test_statuses_follow_from_the_frequencies() -> None:
    assert counts(Linear(4.0)) == (0, 0, 64, 0)
    assert counts(Linear(0.5)) == (0, 0, 64, 0)
    assert counts(Linear(1.0)) == (64, 0, 0, 0)
    assert counts(NTK(4.0)) == (1, 62, 1, 0)
    assert counts(DynamicNTK(4.0, 4096)) == (64, 0, 0, 0)
    assert counts(DynamicNTK(4.0, 4096), 8192) == (1, 62, 1, 0)
    assert counts(DynamicLinear(4096), 8192) == (0, 0, 64, 0)
    assert counts(DynamicYaRN(4096), 4096) == (64, 0, 0, 0)
    assert counts(DynamicYaRN(4096), 8192) == counts(YaRN(2.0, 4096)) == (21, 25, 18, 0)
    assert counts(Proportional(0.25)) == (16, 0, 0, 48)
    assert counts(Proportional(0.25, factor=2.0)) == (0, 0, 16, 48)
    factors = [1.0] * 32 + [2.0] * 16 + [4.0] * 8 + [5.0] * 8
    longrope = LongRoPE([1.0] * 64, factors, 4096, factor=4.0)
    assert counts(longrope) == (64, 0, 0, 0)
    barely = LongRoPE([1.001] * 64, factors, 4096, factor=4.0)
    assert counts(barely) == (0, 64, 0, 0)
    assert counts(NTKByParts(4.0, 4096)) == counts(YaRN(4.0, 4096)) == (21, 25, 18, 0)
    assert counts(Llama3(4.0, 4096)) == (36, 10, 18, 0)
    assert counts(longrope, 4097) == (32, 16, 16, 0)


@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_number_of_every_pair(scaling: Scaling, dtype: torch.dtype) -> None:
    ladder = Ladder(frequencies(16, 10_000.0, dtype), 10_000.0)
    got = scaling.describe(ladder, 100, original_context=32)
    turns = scaling.frequencies(ladder, 100)
    assert got.attention_scale == float(turns.attention_scale)
    assert [pair.index for pair in got.pairs] == list(range(8))
    for pair, old, new in zip(
        got.pairs, ladder.inv_freq.tolist(), turns.inv_freq.tolist(), strict=True
    ):
        assert pair.wavelength == pytest.approx(2 * math.pi / old)
        assert pair.rotations == pytest.approx(32 * old / (2 * math.pi))
        if new == 0:
            assert (pair.status, pair.new_wavelength, pair.factor) == ("unused", None, None)
        else:
            assert pair.factor == pytest.approx(old / new)
            assert pair.new_wavelength == pytest.approx(2 * math.pi / new)
    assert json.loads(json.dumps(got.to_dict())) == got.to_dict()
    assert sum(got.to_dict()["counts"].values()) == 8


def test_float32_rounding_changes_no_status() -> None:
    for scaling in (YaRN(4.0, 4096), Llama3(8.0, 4096), NTK(4.0), Linear(3.0)):
        single = Ladder(frequencies(128, 10_000.0, torch.float32), 10_000.0)
        one, other = scaling.describe(LADDER), scaling.describe(single)
        assert [p.status for p in one.pairs] == [p.status for p in other.pairs]
        assert (one.effective_context, one.limited_by) == (
            other.effective_context,
            other.limited_by,
        )


@given(factor=st.floats(1.0, 64.0), trained=st.integers(16, 100_000), theta=st.floats(100.0, 1e7))
def test_within_the_reach_no_angle_is_new_and_past_it_one_is(
    factor: float, trained: int, theta: float
) -> None:
    ladder = Ladder.of(64, theta)
    for scaling in (
        Linear(factor),
        NTK(factor),
        NTKByParts(factor, trained),
        YaRN(factor, trained, ramp="rotations", beta_slow=0.5),
    ):
        got = scaling.describe(ladder, original_context=trained)
        after = scaling.frequencies(ladder, None).inv_freq
        partly = ladder.inv_freq * trained < 2 * math.pi * (1 - 1e-9)
        if got.effective_context is None:
            assert not partly.any()
            continue
        seen = (ladder.inv_freq * trained)[partly]
        assert (after[partly] * got.effective_context <= seen * (1 + 1e-8)).all()
        assert (after[partly] * (got.effective_context + 1) > seen * (1 - 1e-8)).any()
        assert got.limited_by is not None
        assert partly[got.limited_by]


def test_the_reach_of_the_well_known() -> None:
    assert YaRN(4.0, 32_768).describe(Ladder.of(128, 1e6)).effective_context == 131_072
    assert Llama3(8.0, 8192).describe(Ladder.of(128, 500_000.0)).effective_context == 65_536
    assert Linear(4.0).describe(LADDER, original_context=4096).effective_context == 16_384
    assert DynamicLinear(4096).describe(LADDER).effective_context == 4096
    assert DynamicLinear(4096).describe(LADDER, 10_000).effective_context == 10_000
    short = NTK(4.0).describe(LADDER, original_context=4096)  # blended pairs give out before 4 L
    assert (short.effective_context, short.limited_by) == (11_270, 46)
    never = Linear(4.0).describe(Ladder.of(8, 10.0), original_context=4096)
    assert (never.effective_context, never.limited_by) == (None, None)
    assert Linear(4.0).describe(LADDER).effective_context is None
    with pytest.raises(
        ValueError, match=r"original_context must be 32768, the scaling's own value; got 99"
    ):
        YaRN(4.0, 32_768).describe(Ladder.of(128, 1e6), original_context=99)


def test_the_table() -> None:
    text = str(YaRN(4.0, 32_768).describe(Ladder.of(128, 1e6))).splitlines()
    assert text[0] == "YaRN(factor=4.0, original_context=32768)"
    assert text[1].split("  ")[0] == "pairs"
    rows = [line.split() for line in text[2:5]]
    assert [row[:2] for row in rows] == [
        ["0-23", "kept"],
        ["24-39", "blended"],
        ["40-63", "interpolated"],
    ]
    assert text[5] == "24 kept, 16 blended, 24 interpolated; attention scale 1.13863"
    assert text[6] == "effective context 131072 tokens, trained on 32768"
    assert len(text) == 7
    never = str(Linear(4.0).describe(Ladder.of(8, 10.0), 7, original_context=64))
    assert never.splitlines()[0] == "Linear(factor=4.0) at 7 tokens"
    assert never.endswith(
        "effective context unlimited: each pair that rotates does so fully within 64 tokens"
    )
    unknown = str(Linear(4.0).describe(LADDER))
    assert unknown.endswith("effective context unknown: pass original_context=")
    still = str(Proportional(0.5).describe(Ladder.of(4))).splitlines()
    assert still[3].split() == ["1", "unused", "628.3", "-", "-", "-"]
    long = str(LongRoPE([1.0] * 64, [2.0] * 64, 8, factor=2.0).describe(LADDER, 9))
    assert long.splitlines()[0].endswith("... at 9 tokens")
    assert max(map(len, long.splitlines())) < 120


@pytest.mark.parametrize("length", [0, -1, 2.0, True, torch.tensor([3, 4])], ids=str)
def test_bad_lengths(length: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"YaRN\.describe: context_length must be a positive int, or None for a short context;"
        r" got ",
    ):
        YaRN(4.0, 32).describe(LADDER, length)
