"""The envelope and Abel's bound against loops from the definition."""

import cmath
import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import whorl
from whorl.analysis import bases, decay, envelope


def by_loops(theta: list[float], m: float) -> float:
    total, sums = 0j, []
    for t in theta:
        total += cmath.exp(1j * m * t)
        sums.append(abs(total))
    return sum(sums) / len(sums)


@pytest.mark.parametrize("dim", [2, 8, 128])
def test_envelope_from_the_definition(dim: int) -> None:
    theta = whorl.RoPE(dim).frequencies().inv_freq
    at = torch.tensor([0, 1, 2, 17, 256, 5000])
    want = [by_loops(theta.tolist(), m) for m in at.tolist()]
    assert envelope(theta, at).tolist() == pytest.approx(want, rel=1e-12)


def test_envelope_at_zero_is_the_mean_of_1_to_half_r() -> None:
    found = decay(whorl.RoPE(128), 256)
    assert found.envelope[0] == pytest.approx((64 + 1) / 2)
    assert found.distances == tuple(range(257))
    # The paper's figure falls from about 20 at small distances to about 8 at 250.
    assert 6 < sum(found.envelope[-50:]) / 50 < 9 < found.envelope[20]


def test_long_distances_are_ever_further_apart() -> None:
    found = decay(whorl.RoPE(16), 100_000, samples=2)
    assert found.distances[:4] == (0, 1, 2, 3) or found.distances[:2] == (0, 1)
    assert found.distances[-1] == 100_000
    assert len(found.distances) <= 513
    assert list(found.distances) == sorted(set(found.distances))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    layout=st.sampled_from(["half", "interleaved"]),
    width=st.sampled_from([None, 4, 8]),
    scaled=st.booleans(),
)
def test_no_score_is_above_its_bound(
    seed: int, layout: Any, width: int | None, scaled: bool
) -> None:
    """One q and k at a time, so that the means are values; scores by complex numbers."""
    scaling = whorl.YaRN(factor=4.0, original_context=16) if scaled else None
    start = 0 if width is None else 3
    rope = whorl.RoPE(12, layout=layout, rotary_dim=width, rotary_start=start, scaling=scaling)
    source = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(1, 12, generator=source, dtype=torch.float64) for _ in range(2))
    found = decay(rope, 40, q=q, k=k, samples=1).scores[-1]
    R = width or 12
    a, b = (x[0, start : start + R] for x in (q, k))
    pairs = [
        torch.complex(x[: R // 2], x[R // 2 :])
        if layout == "half"
        else torch.complex(x[::2], x[1::2])
        for x in (a, b)
    ]
    turns = rope.frequencies(41)
    h = pairs[0] * pairs[1].conj()
    norm = float(a.norm() * b.norm())
    scale = float(turns.attention_scale) ** 2
    for m, mean, size, bound in zip(
        range(41), found.mean, found.mean_size, found.bound, strict=True
    ):
        want = float((h * torch.exp(1j * m * turns.inv_freq)).sum().real) * scale / norm
        assert mean == pytest.approx(want, abs=1e-6)
        assert size == pytest.approx(abs(want), abs=1e-6)
        assert size <= bound * (1 + 1e-6)


@pytest.mark.parametrize("dim", [2, 8, 12])
def test_the_last_term_of_the_sum_is_in_the_bound(dim: int) -> None:
    """Of q = k = ones all h_i are 2, so that only h_(R/2) - h_(R/2 - 1) = -2 is not 0."""
    rope, ones = whorl.RoPE(dim), torch.ones(1, dim, dtype=torch.float64)
    found = decay(rope, 30, q=ones, k=ones, samples=1)
    ours = found.scores[-1]
    assert ours.bound == pytest.approx(found.envelope, rel=1e-12)  # 2 (R/2) f / (|q| |k| = R)
    assert all(
        size <= bound * (1 + 1e-6) for size, bound in zip(ours.mean_size, ours.bound, strict=True)
    )
    if dim == 2:  # one pair: f = 1, which the score reaches
        assert ours.mean_size[0] == pytest.approx(ours.bound[0], rel=1e-12)


@pytest.mark.parametrize("steepest", [0, 2, 5])
def test_the_bound_takes_the_steepest_step(steepest: int) -> None:
    """h is 1 up to a pair and 0 after it: one step of 1 there, wherever it is."""
    rope, q = whorl.RoPE(12), torch.zeros(1, 12, dtype=torch.float64)
    q[0, : steepest + 1] = 1  # the first channels of pairs 0 .. steepest
    found = decay(rope, 30, q=q, k=q, samples=1)
    want = [6 / (steepest + 1) * f for f in found.envelope]  # |q| |k| = steepest + 1
    assert found.scores[-1].bound == pytest.approx(want, rel=1e-12)


def test_the_last_step_may_be_the_steepest() -> None:
    """h_i = i + 1 rises by 1 and then falls by 6 at once; from the other end it would be 1."""
    q = torch.cat((torch.arange(1, 7).double().sqrt(), torch.zeros(6).double()))[None]
    found = decay(whorl.RoPE(12), 30, q=q, k=q, samples=1)
    want = [6 * 6 / 21 * f for f in found.envelope]  # |q| |k| = 1 + .. + 6
    assert found.scores[-1].bound == pytest.approx(want, rel=1e-12)


def test_equal_vectors_decay_and_unrelated_ones_do_not() -> None:
    same, other = decay(whorl.RoPE(128), 256).scores
    assert same.name == "random, q = k"
    assert same.mean[0] == pytest.approx(1.0)
    assert sum(same.mean[-50:]) / 50 < 0.5
    assert max(map(abs, other.mean)) < 0.1
    assert 0.7 < sum(other.mean_size[-50:]) / sum(other.mean_size[:50]) < 1.3


def test_given_vectors_of_any_shape() -> None:
    q = torch.randn(3, 2, 5, 8)
    found = decay(whorl.RoPE(8), 4, q=q, k=q, name="mine")
    assert (found.scores[-1].name, found.scores[-1].count) == ("mine", 30)
    assert found.scores[-1].mean[0] == pytest.approx(1.0, abs=1e-6)
    assert json.loads(json.dumps(found.to_dict()))["scores"][2]["name"] == "mine"
    assert (
        decay(whorl.RoPE(8), 2, q=torch.ones(5000, 8), k=torch.ones(5000, 8)).scores[2].count
        <= 1250
    )


def test_bases_against_closed_forms() -> None:
    found = bases(64, (100.0, 1e6), length=300)
    for n, base in enumerate(found.bases):
        theta = [base ** (-i / 32) for i in range(32)]
        for m, f, s in zip(found.distances, found.envelopes[n], found.similarities[n], strict=True):
            assert f == pytest.approx(by_loops(theta, m), rel=1e-9)
            assert s == pytest.approx(sum(cmath.exp(1j * m * t).real for t in theta) / 32, abs=1e-9)
    assert found.longest[1] > found.longest[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rope": whorl.NoPE()},
            r"decay: rope must be a whorl\.RoPE, or a composition with one; got NoPE\(\)",
        ),
        ({"length": 0}, r"decay: length must be an int >= 1 and at most 16,777,216; got 0\."),
        ({"length": 10**9}, r"at most 16,777,216; got 1000000000\."),
        ({"samples": 0}, r"samples must be an int >= 1 and at most 4,096; got 0\."),
        ({"seed": 0.5}, r"decay: seed must be an int of 64 bits; got 0\.5\."),
        (
            {"q": torch.ones(8)},
            r"decay: q and k must be given together; got one\. Pass both, or none\.",
        ),
        (
            {"q": torch.ones(7), "k": torch.ones(8)},
            r"q must be a tensor of vectors \[\.\.\., 8\], .* got \[7\]",
        ),
        (
            {"q": torch.ones(2, 8), "k": torch.ones(8)},
            r"must have the same shape; got \[2, 8\] and \[8\]",
        ),
        ({"q": torch.zeros(8), "k": torch.ones(8)}, r"each vector of q must be .* of length 0\."),
        ({"q": torch.ones(8), "k": torch.full((8,), torch.nan)}, r"of k must be finite .* nan\."),
        (
            {"q": torch.full((8,), 1e300, dtype=torch.float64), "k": torch.ones(8)},
            r"length below 1e\+100, because scores are divided by .*; got one of length inf",
        ),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decay(**{"rope": whorl.RoPE(8), "length": 4, **options})


def test_bases_need_values() -> None:
    with pytest.raises(ValueError, match=r"bases: values must be a list of bases; got \(\)\."):
        bases(8, ())


def test_an_attention_scale_that_no_score_survives_is_refused() -> None:
    scaling = whorl.scaling.YaRN(factor=4.0, original_context=4096, attention_factor=1e200)
    with pytest.raises(ValueError, match=r"decay: scores must be finite.*; got 1e\+200\."):
        decay(whorl.RoPE(64, scaling=scaling), 64)
