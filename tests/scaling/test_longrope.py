"""LongRoPE: transformers, the switch, attention scales, bad options."""

import math
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whorl
from tests.peers import needs_transformers_5
from whorl.scaling import Ladder, LongRoPE

from .hugging_face import PRECISIONS, Head, check, heads, theirs
from .samples import LONG, SHORT


@needs_transformers_5
@given(
    data=st.data(),
    head=heads(2),
    factor=st.none() | st.floats(0.5, 64.0),
    trained=st.integers(2, 100_000),
    new=st.integers(1, 1_000_000),
    now=st.none() | st.integers(1, 200_000),
    attention_factor=st.none() | st.floats(0.1, 2.0),
    precision=st.sampled_from(PRECISIONS),
)
def test_longrope_is_transformers_longrope(
    data: st.DataObject,
    head: Head,
    factor: float | None,
    trained: int,
    new: int,
    now: int | None,
    attention_factor: float | None,
    precision: whorl.Precision,
) -> None:
    pairs = int(head.width * head.partial) // 2
    seed = data.draw(st.integers(0, 2**32))
    random = torch.Generator().manual_seed(seed)
    short, long = (1 + 60 * torch.rand(2, pairs, generator=random).double()).tolist()
    expected = theirs(
        "longrope",
        head,
        precision,
        now,
        max_position_embeddings=new,
        original_max_position_embeddings=trained,
        short_factor=short,
        long_factor=long,
        factor=factor,
        attention_factor=attention_factor,
    )
    ratio = new / trained if factor is None else factor
    ours = LongRoPE(short, long, trained, factor=ratio, attention_factor=attention_factor)
    check(ours, head, precision, expected, now)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_float32_has_the_bits_of_transformers(direction: Literal["forward", "backward"]) -> None:
    head, long = Head(width=128, base=500_000.0, partial=1.0), [1.0 + 0.37 * i for i in range(64)]
    expected, _ = theirs(
        "longrope", head, "float32", 5000, short_factor=[1.0] * 64, long_factor=long,
        original_max_position_embeddings=4096, factor=4.0,
    )  # fmt: skip
    scaling = LongRoPE([1.0] * 64, long, 4096, factor=4.0)
    rope = whorl.RoPE(
        128, base=head.base, scaling=scaling, precision="float32", direction=direction
    )
    found = rope.frequencies(5000).inv_freq
    sign = 1 if direction == "forward" else -1
    torch.testing.assert_close(sign * found.float(), expected.float(), rtol=0, atol=0)


def test_the_switch_is_past_the_original_context_and_by_row() -> None:
    ladder, scaling = Ladder.of(16), LongRoPE(SHORT, LONG, 32, factor=8.0)
    short, long = (ladder.inv_freq / torch.tensor(f, dtype=torch.float64) for f in (SHORT, LONG))
    rows = scaling.frequencies(ladder, torch.tensor([32, 33]))
    assert torch.equal(rows.inv_freq, torch.stack((short, long)))
    assert rows.attention_scale == pytest.approx(math.sqrt(1 + math.log(8) / math.log(32)))


def test_attention_scales_may_differ_past_the_switch() -> None:
    scaling = LongRoPE(SHORT, LONG, 32, factor=8.0, long_attention_factor=1.5)
    ladder = Ladder.of(16)
    short = math.sqrt(1 + math.log(8) / math.log(32))
    assert scaling.frequencies(ladder, 32).attention_scale == pytest.approx(short)
    assert scaling.frequencies(ladder, 33).attention_scale == 1.5
    rows = scaling.frequencies(ladder, torch.tensor([33, 32])).attention_scale
    assert isinstance(rows, torch.Tensor)
    assert rows.tolist() == [1.5, pytest.approx(short)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"short_factors": SHORT[:-1]},
            r"short_factors and long_factors must be equally long, one for each pair; got 7 and 8",
        ),
        (
            {"long_factors": (*LONG[:-1], 0.0)},
            r"LongRoPE: long_factors must be finite numbers above 0, one for each pair; got 0\.0"
            r" among 8",
        ),
        ({"short_factors": ("1",) * 8}, r"short_factors must be finite numbers .*got '1' among 8"),
        ({"short_factors": 2.0}, r"short_factors must be finite numbers above 0, .*got 2\.0"),
        ({"long_factors": []}, r"long_factors must be finite numbers above 0, .*got \[\]"),
        (
            {"factor": None},
            r"factor, the new length over the original one, must be given for the attention scale"
            r" .*; got none\. Pass factor or attention_factor\.",
        ),
        ({"factor": -1.0}, r"LongRoPE: factor must be a finite number above 0; got -1\.0"),
        ({"attention_factor": 0}, r"attention_factor must be a finite number above 0; got 0"),
        ({"long_attention_factor": 0}, r"long_attention_factor must be a finite number above 0"),
        ({"original_context": 1}, r"original_context must be an int >= 2, the length .*; got 1"),
        ({"original_context": 4.5}, r"original_context must be an int >= 2, .*; got 4\.5"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    good = {"short_factors": SHORT, "long_factors": LONG, "original_context": 32, "factor": 8.0}
    with pytest.raises(ValueError, match=message):
        LongRoPE(**{**good, **options})


def test_one_factor_for_each_rotated_pair() -> None:
    scaling = LongRoPE(SHORT, LONG, 32, factor=8.0)
    with pytest.raises(
        ValueError,
        match=r"short_factors and long_factors must hold 32 factors, one for each pair of the 64"
        r" rotated channels; got 8",
    ):
        whorl.RoPE(64, scaling=scaling).frequencies()
    whorl.RoPE(64, rotary_dim=16, scaling=scaling).frequencies()
    whorl.RoPE(16, scaling=LongRoPE(SHORT, LONG, 1, attention_factor=1.2)).frequencies()
