"""The statistic: its distribution where there is nothing to find, and where there is something."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whorl.weights import evidence
from whorl.weights.detect import SURE
from whorl.weights.evidence import (
    LAYOUTS,
    NO_SUMS,
    compute_probabilities,
    compute_products,
    compute_z,
    sum_agreement,
)
from whorl.weights.layout import Head, reorder_rows

ROOT = Path(__file__).parents[2]
CALIBRATION = ROOT / "benchmarks" / "detector.json"


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
    found = sum_agreement(compute_products(q, k))
    return compute_z(found["half"]), compute_z(found["interleaved"])


def slow(q: Tensor, k: Tensor, pairs: list[tuple[int, int]], break_at: int) -> float:
    """t of evidence.py as a loop, for heads that share a key head.

    Pairs from ``break_at`` on are no neighbours of those before.
    """
    unit = torch.nn.functional.normalize
    q, k = unit(q.double(), dim=-1), unit(k.double(), dim=-1)
    total = squares = 0.0
    s = [[float(h[a] @ k[b] - h[b] @ k[a]) for a, b in pairs] for h in q]
    for lag, weight in ((1, 1.0), (2, 0.5)):
        for p in range(len(pairs) - lag):
            if p < break_at <= p + lag:
                continue
            r = 0.0
            for one in s:
                rms = math.sqrt(sum(x * x for x in one) / len(one))
                product = one[p] * one[p + lag]
                r += math.copysign(math.sqrt(abs(product)), product) / rms
            total, squares = total + weight * r, squares + (weight * r) ** 2
    return total / math.sqrt(squares)


def slow_z(q: Tensor, k: Tensor, first: list[int], second: list[int]) -> float:
    """Against the same of 31 pairings that are none: with 16 pairs each but the first one twice."""
    t = []
    for n in [0, *range(1, 16), *range(1, 16), 1]:
        pairs = list(zip(first, second[n:] + second[:n], strict=True))
        t.append(slow(q, k, pairs, break_at=16 - n))
    mean = sum(t[1:]) / 31
    spread = max(1.0, math.sqrt(sum((one - mean) ** 2 for one in t[1:]) / 31))
    mean = max(mean, 0.0)
    return (t[0] - mean) / math.sqrt(spread**2 + (mean / 2) ** 2)


@pytest.mark.parametrize("smooth", [False, True])
def test_the_formula(smooth: bool) -> None:
    q, k = layer(1, heads=3)
    if smooth:
        q, k = q.cumsum(-2), k.cumsum(-2)
    half = slow_z(q, k, list(range(16)), list(range(16, 32)))
    neighbours = slow_z(q, k, list(range(0, 32, 2)), list(range(1, 32, 2)))
    assert z(q, k) == pytest.approx((half, neighbours), rel=1e-9)


def test_weights_that_know_nothing() -> None:
    """About 0 with a spread of 1, also with heads that share a key; and never sure of anything.

    A little less than 0, as smooth rows are never counted in favour.
    """
    both = torch.tensor([z(*layer(seed, heads=1 + seed % 4)) for seed in range(400)])
    found = both.flatten()
    assert -0.3 < float(found.mean()) < 4 / math.sqrt(800)
    assert float(found.square().mean()) == pytest.approx(1, abs=4 * math.sqrt(2 / 800))
    assert int((both > 3.5).any(-1).sum()) <= 2


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_a_layout_that_is_there(seed: int) -> None:
    q, k = taught(seed, 0.6)
    order = reorder_rows(Head("q", 32, width=32), "interleaved")
    half, neighbours = z(q, k)
    assert half > neighbours
    assert half > 2
    # In the other layout the same is found the other way round.
    assert z(q[:, order], k[order])[1] == pytest.approx(half, rel=1e-4)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-3, 1e3), sign=st.sampled_from([-1.0, 1.0]))
def test_sizes_and_signs_do_not_matter(seed: int, scale: float, sign: float) -> None:
    """Nor does a rotation that turns the other way, as nanochat's."""
    q, k = taught(seed, 0.6)
    flipped = torch.cat((q[:, :16], sign * q[:, 16:]), dim=1)
    back = torch.cat((k[:16], sign * k[16:]))
    mine, before = z(scale * flipped, back / scale), z(q, k)
    assert mine[0] == pytest.approx(before[0], rel=1e-3, abs=1e-3)
    # The other layout's controls pair rows of which one has turned its sign and one has not.
    assert mine[1] == pytest.approx(before[1], abs=1)


def test_what_says_nothing() -> None:
    zero, k = torch.zeros(1, 8, 4), torch.ones(8, 4)
    assert z(zero, k) == (0.0, 0.0)
    assert z(torch.full((1, 8, 4), math.nan), k) == (0.0, 0.0)
    assert z(torch.full((1, 8, 4), math.inf), k) == (0.0, 0.0)
    assert z(torch.ones(1, 2, 4), torch.ones(2, 4)) == (0.0, 0.0)  # a single pair
    assert z(*layer(0, rows=6)) == (0.0, 0.0)  # too few other pairings
    assert compute_z(NO_SUMS) == 0.0


def walk(rows: Tensor) -> Tensor:
    return rows.cumsum(-2)


def walk_by_twos(rows: Tensor) -> Tensor:
    return rows.unflatten(-2, (-1, 2)).cumsum(-3).flatten(-3, -2)


def walk_by_halves(rows: Tensor) -> Tensor:
    return rows.unflatten(-2, (2, -1)).cumsum(-2).flatten(-3, -2)


def blur(rows: Tensor) -> Tensor:
    return rows + rows.roll(1, -2) + rows.roll(2, -2)


def ramp(rows: Tensor) -> Tensor:
    along = torch.linspace(0, 4, rows.shape[-2])[:, None]
    return rows + along * rows[..., :1, :]


@pytest.mark.parametrize("shape", [(8, 32), (48, 64)], ids=str)
@pytest.mark.parametrize("smooth", [walk, walk_by_twos, walk_by_halves, blur, ramp])
def test_smooth_rows_are_no_pairs(
    smooth: Callable[[Tensor], Tensor], shape: tuple[int, int]
) -> None:
    """Neighbouring rows are alike, and so are sines of neighbours, however rows are paired."""
    heads, rows = shape
    for seed in range(2):
        sums = dict.fromkeys(LAYOUTS, NO_SUMS)
        for head in range(heads):
            q, k = layer(1000 * seed + head, heads=1, rows=rows)
            more = sum_agreement(compute_products(smooth(q), smooth(k)))
            sums = {layout: sums[layout] + more[layout] for layout in LAYOUTS}
        found = compute_probabilities({layout: compute_z(one) for layout, one in sums.items()})
        assert max(found.half, found.interleaved) < SURE


def test_smooth_rows_that_are_pairs_too() -> None:
    """A pairing shows through rows that are somewhat smooth."""
    total = dict.fromkeys(LAYOUTS, NO_SUMS)
    for seed in range(32):
        q, k = taught(seed, 1.5)
        q, k = (x + 0.1 * x.roll(1, -2) for x in (q, k))
        more = sum_agreement(compute_products(q, k))
        total = {layout: total[layout] + more[layout] for layout in LAYOUTS}
    found = compute_probabilities({layout: compute_z(one) for layout, one in total.items()})
    assert found.half >= SURE


def test_probabilities() -> None:
    nothing = compute_probabilities({"half": 0.0, "interleaved": 0.0})
    assert nothing.neither > 0.5
    assert nothing.half == nothing.interleaved
    clear = compute_probabilities({"half": 6.0, "interleaved": 0.5})
    assert clear.half > 0.95 > 0.01 > clear.interleaved
    both = compute_probabilities({"half": 9.0, "interleaved": 9.0})
    assert both.half == pytest.approx(0.5)
    for extreme in (-1e3, 1e3, 30.0):
        found = compute_probabilities({"half": extreme, "interleaved": 0.0})
        assert found.half + found.interleaved + found.neither == pytest.approx(1)
        assert 0 <= found.half <= 1 - 1 / (evidence.CALIBRATED_ON + 2)


def test_no_surer_than_the_calibration_allows() -> None:
    document = json.loads(CALIBRATION.read_text())
    assert document["models"]["named wrongly"] == 0
    assert document["without a rotation"]["named"] == 0
    assert document["models"]["named"] == evidence.CALIBRATED_ON
    assert document["z of layouts that are not there"]["rms"] <= evidence._SPREAD


def test_the_page_has_the_numbers_of_the_calibration() -> None:
    document = json.loads(CALIBRATION.read_text())
    page = (ROOT / "docs" / "detect.md").read_text(encoding="utf-8")
    for row in document["reliability"]["layers"]:
        right = row["right"] / row["findings"]
        want = f"| {row['from']:.0%} to {row['to']:.0%} | {row['findings']} | {row['stated']:.1%}"
        assert f"{want} | {right:.1%} |" in page
    assert f"{document['models']['named']} were named, 0 of them wrongly" in page
    each = [tuple(row) for row in document["each"]]
    layouts = {(truth, named) for _, truth, *_, named in each if truth and named}
    assert layouts == {("half", "half"), ("interleaved", "interleaved")}


def test_the_page_says_what_was_measured_of_a_real_model() -> None:
    """With the machine, the date and the command beside the numbers."""
    document = json.loads(CALIBRATION.read_text())
    real = document["real model"]
    for measured in (document, real):
        assert {"command", "cpu", "date", "whorl", "torch"} <= set(measured)
    page = " ".join((ROOT / "docs" / "detect.md").read_text(encoding="utf-8").split())
    z = real["z"]
    assert f"z is {z['interleaved']:.1f} for interleaved and {z['half']:.1f} for half" in page
    assert f"{real['named']} of its {real['layers']} layers are named" in page
    assert [row[3] for row in real["each"]].count(None) == real["layers"] - real["named"]
    assert real["named wrongly"] == 0
