"""The statistic: its distribution where there is nothing to find, and where there is something."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whorl.checkpoints import evidence
from whorl.checkpoints.evidence import Sums, probabilities, sums_of, z_of
from whorl.checkpoints.layout import Head, moved

CALIBRATION = Path(__file__).parents[2] / "benchmarks" / "detector.json"


def layer(seed: int, *, heads: int = 2, rows: int = 32, inner: int = 64) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    q = torch.randn(heads, rows, inner, generator=source)
    return q, torch.randn(rows, inner, generator=source)


def taught(seed: int, strength: float, *, rows: int = 32, inner: int = 64) -> tuple[Tensor, Tensor]:
    """Half layout, with sine parts that follow the frequency: qa gets kb, and qb gets -ka."""
    q, k = layer(seed, heads=1, rows=rows, inner=inner)
    pairs = rows // 2
    push = strength * torch.cos(torch.arange(pairs) / pairs * math.pi)[:, None]
    more = torch.cat((push * k[pairs:], -push * k[:pairs]))
    return q + more, k


def z(q: Tensor, k: Tensor) -> tuple[float, float]:
    found = sums_of(q, k)
    return z_of(found["half"]), z_of(found["interleaved"])


def slow(q: Tensor, k: Tensor, pairs: list[tuple[int, int]]) -> float:
    """The formula of evidence.py as a loop, for heads that share a key head."""
    unit = torch.nn.functional.normalize
    q, k = unit(q.double(), dim=-1), unit(k.double(), dim=-1)
    total = squares = 0.0
    s = [[float(h[a] @ k[b] - h[b] @ k[a]) for a, b in pairs] for h in q]
    for lag, weight in ((1, 1.0), (2, 0.5)):
        for p in range(len(pairs) - lag):
            r = 0.0
            for one in s:
                rms = math.sqrt(sum(x * x for x in one) / len(one))
                product = one[p] * one[p + lag]
                r += math.copysign(math.sqrt(abs(product)), product) / rms
            total, squares = total + weight * r, squares + (weight * r) ** 2
    return total / math.sqrt(squares)


def test_the_formula() -> None:
    q, k = layer(1, heads=3)
    half = slow(q, k, [(i, i + 16) for i in range(16)])
    neighbours = slow(q, k, [(2 * i, 2 * i + 1) for i in range(16)])
    assert z(q, k) == pytest.approx((half, neighbours), rel=1e-4)  # float32 inside


def test_weights_that_know_nothing() -> None:
    """Mean 0 and variance 1, also with heads that share a key; and never sure of anything."""
    found = torch.tensor([z(*layer(seed, heads=1 + seed % 4)) for seed in range(400)]).flatten()
    assert abs(float(found.mean())) < 4 / math.sqrt(800)
    assert float(found.square().mean()) == pytest.approx(1, abs=4 * math.sqrt(2 / 800))
    sure = [max(z(*layer(seed))) for seed in range(400)]
    assert sum(one > 3.5 for one in sure) <= 2


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_layout_that_is_there(seed: int) -> None:
    q, k = taught(seed, 0.6)
    order = moved(Head("q", 32, width=32), "interleaved")
    half, neighbours = z(q, k)
    assert half > neighbours
    assert half > 2
    # In the other layout the same is found the other way round.
    assert z(q[:, order], k[order])[1] == pytest.approx(half, rel=1e-4)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-3, 1e3), sign=st.sampled_from([-1.0, 1.0]))
def test_sizes_and_signs_do_not_matter(seed: int, scale: float, sign: float) -> None:
    """Nor does a rotation that turns the other way, as nanochat's."""
    q, k = taught(seed, 0.6)
    flipped = torch.cat((q[:, :16], sign * q[:, 16:]), dim=1)
    back = torch.cat((k[:16], sign * k[16:]))
    assert z(scale * flipped, back / scale) == pytest.approx(z(q, k), rel=1e-3, abs=1e-3)


def test_what_says_nothing() -> None:
    zero, k = torch.zeros(1, 8, 4), torch.ones(8, 4)
    assert z(zero, k) == (0.0, 0.0)
    assert z(torch.full((1, 8, 4), math.nan), k) == (0.0, 0.0)
    assert z(torch.full((1, 8, 4), math.inf), k) == (0.0, 0.0)
    assert z(torch.ones(1, 2, 4), torch.ones(2, 4)) == (0.0, 0.0)  # a single pair
    assert z_of(Sums()) == 0.0


def test_probabilities() -> None:
    nothing = probabilities({"half": 0.0, "interleaved": 0.0})
    assert nothing.neither > 0.5
    assert nothing.half == nothing.interleaved
    clear = probabilities({"half": 6.0, "interleaved": 0.5})
    assert clear.half > 0.95 > 0.01 > clear.interleaved
    both = probabilities({"half": 9.0, "interleaved": 9.0})
    assert both.half == pytest.approx(0.5)
    for extreme in (-1e3, 1e3, 30.0):
        found = probabilities({"half": extreme, "interleaved": 0.0})
        assert found.half + found.interleaved + found.neither == pytest.approx(1)
        assert 0 <= found.half <= 1 - 1 / (evidence.CALIBRATED_ON + 2)


def test_no_surer_than_the_calibration_allows() -> None:
    document = json.loads(CALIBRATION.read_text())
    assert document["models"]["named wrongly"] == 0
    assert document["without a rotation"]["named"] == 0
    assert document["models"]["named"] == evidence.CALIBRATED_ON
    assert document["z of layouts that are not there"]["rms"] <= evidence._SPREAD
