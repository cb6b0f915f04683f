"""NTKByParts: the paper's equations, the released ramp, its corners, bad options."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whorl
from whorl.scaling import Ladder, Linear, NTKByParts, Ramp

from .hugging_face import PRECISIONS, Head, check, heads, theirs
from .paper import ntk_by_parts

OTHER: Any = "linear"
BETAS = st.tuples(st.floats(0.1, 100.0), st.floats(0.1, 100.0)).map(sorted)


@given(
    head=heads(2),
    factor=st.floats(1.0, 64.0),
    trained=st.integers(1, 1_000_000),
    betas=BETAS,
    truncate=st.booleans(),
    precision=st.sampled_from(PRECISIONS),
)
def test_the_index_ramp_is_that_of_transformers_yarn(
    head: Head,
    factor: float,
    trained: int,
    betas: list[float],
    truncate: bool,
    precision: whorl.Precision,
) -> None:
    slow, fast = betas
    expected, _ = theirs(
        "yarn",
        head,
        precision,
        factor=factor,
        original_max_position_embeddings=trained,
        beta_fast=fast,
        beta_slow=slow,
        truncate=truncate,
    )
    ours = NTKByParts(factor, trained, beta_fast=fast, beta_slow=slow, truncate=truncate)
    check(ours, head, precision, (expected, 1.0))


@given(
    factor=st.floats(1.0, 64.0),
    trained=st.integers(1, 1_000_000),
    pairs=st.integers(1, 64),
    theta=st.floats(1.5, 1e8),
    betas=BETAS.filter(lambda pair: pair[1] - pair[0] > 0.01),  # rounding of r grows by 1 / that
)
def test_the_ramp_in_rotations_is_the_papers(
    factor: float, trained: int, pairs: int, theta: float, betas: list[float]
) -> None:
    slow, fast = betas
    scaling = NTKByParts(factor, trained, beta_fast=fast, beta_slow=slow, ramp="rotations")
    plain = ntk_by_parts(2 * pairs, theta, factor, trained, alpha=slow, beta=fast)
    want = torch.tensor(plain, dtype=torch.float64)
    for base in (theta, None):  # the paper's rule reads wavelengths only
        got = scaling.frequencies(Ladder(Ladder.of(2 * pairs, theta).inv_freq, base), None)
        torch.testing.assert_close(got.inv_freq, want, rtol=1e-9, atol=0)
        assert got.attention_scale == 1.0


@pytest.mark.parametrize("ramp", ["index", "rotations"])
def test_fast_pairs_stay_and_slow_ones_are_divided(ramp: Ramp) -> None:
    ladder = Ladder.of(128)
    ratio = ladder.inv_freq / NTKByParts(8.0, 4096, ramp=ramp).frequencies(ladder, None).inv_freq
    turns = 4096 / ladder.wavelengths
    assert ratio[turns > 40].eq(1.0).all()
    torch.testing.assert_close(ratio[turns < 1], torch.full_like(ratio[turns < 1], 8.0))
    assert ratio.diff().ge(-1e-12).all()


def test_equal_betas_switch_without_a_ramp() -> None:
    ladder = Ladder.of(64)
    scaling = NTKByParts(4.0, 1000, beta_fast=3.0, beta_slow=3.0, ramp="rotations")
    got = scaling.frequencies(ladder, None).inv_freq
    kept = 1000 / ladder.wavelengths >= 3.0
    assert torch.equal(got, torch.where(kept, ladder.inv_freq, ladder.inv_freq / 4.0))
    on_it = Ladder(torch.tensor([math.pi / 2], dtype=torch.float64), None)  # wavelength 4
    switch = NTKByParts(4.0, 12, beta_fast=3.0, beta_slow=3.0, ramp="rotations")
    assert torch.equal(switch.frequencies(on_it, None).inv_freq, on_it.inv_freq)


@pytest.mark.parametrize("corner", [9.95, 9.9995, 10.0])
def test_equal_betas_leave_the_index_ramp_a_thousandth(corner: float) -> None:
    head = Head(width=64, partial=1.0, base=10_000.0)
    beta = 1000 / (2 * math.pi * 10_000.0 ** (2 * corner / 64))  # turns of the pair at ``corner``
    expected, _ = theirs(
        "yarn",
        head,
        "float64",
        factor=4.0,
        original_max_position_embeddings=1000,
        beta_fast=beta,
        beta_slow=beta,
        truncate=False,
    )
    scaling = NTKByParts(4.0, 1000, beta_fast=beta, beta_slow=beta, truncate=False)
    check(scaling, head, "float64", (expected, 1.0))


def test_corners_that_cross_run_backwards_as_released_and_not_in_the_paper() -> None:
    slow = Ladder.of(16)
    assert torch.equal(NTKByParts(4.0, 1).frequencies(slow, None).inv_freq, slow.inv_freq)
    fast = Ladder.of(16, 1.5)
    backwards = NTKByParts(4.0, 1000).frequencies(fast, None).inv_freq
    torch.testing.assert_close(backwards, fast.inv_freq / 4.0)
    linear = Linear(4.0).frequencies(slow, None).inv_freq
    paper = NTKByParts(4.0, 1, ramp="rotations").frequencies(slow, None).inv_freq
    assert torch.equal(paper, linear)
    paper = NTKByParts(4.0, 1000, ramp="rotations").frequencies(fast, None).inv_freq
    assert torch.equal(paper, fast.inv_freq)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 0.5}, r"NTKByParts: factor must be a finite number >= 1; got 0\.5"),
        ({"original_context": 2.0}, r"original_context must be a positive int, .*; got 2\.0"),
        ({"beta_fast": 0}, r"NTKByParts: beta_fast must be a finite number above 0; got 0"),
        ({"beta_slow": None}, r"NTKByParts: beta_slow must be a finite number above 0; got None"),
        (
            {"beta_fast": 1.0, "beta_slow": 32.0},
            r"beta_fast must be at least beta_slow, because pairs that rotate more often keep"
            r" their frequency; got 1\.0 and 32\.0\. Swap the two\.",
        ),
        ({"ramp": OTHER}, r"ramp must be 'index' or 'rotations' or 'backward'; got 'linear'"),
        (
            {"ramp": "backward", "beta_fast": 2.0, "beta_slow": 2.0},
            r"NTKByParts: ramp='backward' is for a beta_fast below beta_slow; got 2\.0 and 2\.0\."
            r" Leave ramp out\.",
        ),
        ({"truncate": 1}, r"NTKByParts: truncate must be True or False; got 1"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NTKByParts(**{"factor": 4.0, "original_context": 4096, **options})


def test_the_index_ramp_needs_a_base_above_one() -> None:
    own = [1.0, 0.1, 0.01, 0.001]
    with pytest.raises(
        ValueError,
        match=r"NTKByParts: ramp='index' computes its corners from the base, and frequencies"
        r" given as inv_freq have none; pass ramp='rotations', which uses the wavelengths",
    ):
        whorl.RoPE(8, inv_freq=own, scaling=NTKByParts(4.0, 64))
    whorl.RoPE(8, inv_freq=own, scaling=NTKByParts(4.0, 64, ramp="rotations"))
    with pytest.raises(
        ValueError,
        match=r"ramp='index' needs a base above 1, because it divides by ln base to"
        r" compute its corners; got 1\.0\. Pass ramp='rotations'",
    ):
        whorl.RoPE(8, base=1.0, scaling=NTKByParts(4.0, 64))
