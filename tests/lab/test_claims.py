"""Published claims against made-up results: each outcome comes up where it should."""

import json
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import Any

import pytest

from whorl.lab import EvaluationConfig, ModelConfig, RunConfig
from whorl.lab.compare.claims import CLAIMS, check_claims
from whorl.lab.compare.statistics import Estimate, estimate
from whorl.lab.compare.thresholds import SEED_NOISE

from .made import made

CONFIG = RunConfig()  # trains on 128 tokens, judges at 512 among others
FLAT = [[2.0, 2.1, 1.9]]


def risen(by: float, noise: float = 0.01) -> list[list[float]]:
    return [[value + by + noise * n for n, value in enumerate(FLAT[0])]]


def outcome(claim: str, **losses: Any) -> str:
    found = {one["id"]: one for one in check_claims(made(**losses), CONFIG)}
    return str(found[claim]["outcome"])


@pytest.mark.parametrize(
    ("rise", "expected"),
    [(1.0, "reproduced"), (0.0, "not reproduced"), (0.09, "inconclusive")],
)
@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_rising(name: str, rise: float, expected: str) -> None:
    assert outcome(f"{name}-rises", **{name: {128: FLAT, 512: risen(rise)}}) == expected


@pytest.mark.parametrize(
    ("rise", "expected"),
    [(0.1, "reproduced"), (0.9, "not reproduced"), (0.49, "inconclusive")],
)
@pytest.mark.parametrize("name", ["alibi", "kerple", "t5"])
def test_holding(name: str, rise: float, expected: str) -> None:
    losses = {"rope": {128: FLAT, 512: risen(1.0)}, name: {128: FLAT, 512: risen(rise)}}
    assert outcome(f"{name}-holds", **losses) == expected


def test_yarn() -> None:
    rope = {128: FLAT, 512: risen(1.0)}
    assert outcome("yarn-carries", rope=rope, rope_yarn={128: FLAT, 512: risen(0.2)}) == (
        "reproduced"
    )
    assert outcome("yarn-carries", rope=rope, rope_yarn={128: FLAT, 512: risen(0.8)}) == (
        "not reproduced"
    )


def test_nothing_is_spared_where_nothing_rises() -> None:
    losses: dict[str, Any] = {"rope": {128: FLAT, 512: FLAT}, "alibi": {128: FLAT, 512: risen(-1)}}
    assert outcome("alibi-holds", **losses) == "inconclusive"
    found = check_claims(made(**losses), CONFIG)[-1]
    assert found["evidence"].split("; ")[1].startswith("RoPE's own rise at 4x: 0.00")


@pytest.mark.parametrize("name", ["learned", "t5"])
def test_learning_faster(name: str) -> None:
    worse = {128: risen(0.3), 512: risen(0.3)}
    even = {128: FLAT, 512: FLAT}
    claim = f"rope-beats-{name}"
    assert outcome(claim, **{"rope": even, name: worse}) == "reproduced"
    assert outcome(claim, **{"rope": worse, name: even}) == "not reproduced"
    assert outcome(claim, **{"rope": even, name: even}) == "inconclusive"
    near = {128: risen(0.08), 512: risen(0.1)}
    assert outcome(claim, **{"rope": even, name: near}) == "inconclusive"  # within seed noise


def test_seeds_are_paired() -> None:
    """Seeds that differ much, encodings that differ little but always the same way."""
    rope = {128: [[1.0], [3.0], [5.0]], 512: [[1.0], [3.0], [5.0]]}
    learned = {128: [[1.1], [3.11], [5.09]], 512: [[9.0], [9.0], [9.0]]}
    found = {one["id"]: one for one in check_claims(made(rope=rope, learned=learned), CONFIG)}
    assert found["rope-beats-learned"]["outcome"] == "reproduced"
    assert found["rope-beats-learned"]["evidence"].endswith("to be above 0 (3 seeds)")


def test_only_what_can_be_judged() -> None:
    assert [one["id"] for one in check_claims(made(rope={128: FLAT, 512: FLAT}), CONFIG)] == [
        "rope-degrades"
    ]
    short = RunConfig(evaluation=EvaluationConfig(multiples=(1.0, 2.0)))
    assert check_claims(made(rope={128: FLAT, 256: FLAT}), short) == []


def test_models_that_know_nothing_are_not_judged() -> None:
    entries = made(learned={128: [[8.7, 8.8]], 512: [[9.7, 9.9]]})
    (found,) = check_claims(entries, CONFIG)
    assert found["outcome"] == "inconclusive"
    assert found["evidence"] == "learned: the loss is hardly below that of token frequencies"


def test_a_loss_that_is_no_number() -> None:
    entries = made(rope={128: FLAT, 512: [[float("nan"), 2.0, 2.0]]})
    (found,) = check_claims(entries, CONFIG)
    assert found["outcome"] == "inconclusive"


def test_claims_are_about_decoders() -> None:
    entries = made(rope={128: FLAT, 512: FLAT})
    for model in (ModelConfig(kind="encoder"), ModelConfig(attention="linear")):
        assert check_claims(entries, RunConfig(model=model)) == []
    yarn = made(rope={128: FLAT, 512: FLAT}, rope_yarn={128: FLAT, 512: FLAT})
    twice = RunConfig(evaluation=EvaluationConfig(factor=2.0))
    assert [one["id"] for one in check_claims(yarn, twice)] == ["rope-degrades"]


def test_every_claim_is_published() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS) == 9
    for claim in CLAIMS:
        assert claim.url.startswith("https://") or "by construction" in claim.published


def test_statistics() -> None:
    assert estimate([2.0]) == Estimate(2.0)
    assert str(estimate([1.0])) == "1.00"
    two = estimate([1.0, 2.0])
    assert two.high == pytest.approx(1.5 + 12.706 * 0.5, rel=1e-3)


@pytest.mark.parametrize(("degrees", "point"), [(5, 2.571), (11, 2.201), (30, 2.042), (63, 1.998)])
def test_students_t(degrees: int, point: float) -> None:
    """97.5 % points as printed in tables."""
    values = [(-1.0) ** n for n in range(degrees + 1)]
    half = stdev(values) / (degrees + 1) ** 0.5
    found = estimate(values)
    assert found.high is not None
    assert (found.high - found.mean) / half == pytest.approx(point, abs=3e-3)


def test_the_noise_of_a_seed_is_what_was_measured() -> None:
    """Two standard deviations of trained encodings' differences from RoPE, paired by seed."""
    file = Path(__file__).parents[2] / "benchmarks/2026-11-16-amd-epyc-standard-compare.json"
    rows = {row["name"]: row for row in json.loads(file.read_text(encoding="utf-8"))["rows"]}

    def seeds(name: str) -> list[float]:
        found: list[float] = rows[name]["by_length"]["128"]["seeds"]
        return found

    names = [n for n, row in rows.items() if row["scaling"] is None and n not in ("rope", "mrope")]
    assert len(names) == 14
    spreads = [
        variance([a - b for a, b in zip(seeds(name), seeds("rope"), strict=True)]) for name in names
    ]
    assert 2 * fmean(spreads) ** 0.5 == pytest.approx(SEED_NOISE, abs=0.005)
