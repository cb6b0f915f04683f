"""How much seeds differ: measured values, and how they are looked up."""

import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from whorl.lab.compare import load_comparison, noise
from whorl.lab.compare.noise import compute_noise, find_deviation, measure_seed_noise

ROOT = Path(__file__).parents[2]
TABLE = {
    "steady": {"0.5": 0.01, "1": 0.02, "2": 0.03},
    "rising": {"2": 0.3, "4": 0.1},
    "curve": 0.05,
}


def make_row(name: str, by_length: dict[int, list[float]], **more: Any) -> dict[str, Any]:
    cells = {str(length): {"seeds": losses} for length, losses in by_length.items()}
    return {"name": name, "trained_as": name, "by_length": cells, **more}


def make_comparison(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"settings": {"measure": "loss", "length": 128, "seeds": [0, 1]}, "rows": list(rows)}


def test_looking_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_load_noise", lambda: TABLE)
    assert [find_deviation(n, 0.0) for n in (0.25, 0.5, 1, 1.5, 2, 16)] == [
        0.01,
        0.01,
        0.02,
        0.03,  # between two entries, the larger one
        0.03,
        0.03,
    ]
    assert [find_deviation(n, 1.0) for n in (1, 2, 3, 4, 8)] == [0.3, 0.3, 0.3, 0.1, 0.1]
    assert (find_deviation(2, 0.05), find_deviation(2, 0.06)) == (0.03, 0.3)
    assert find_deviation(2, math.nan) == math.inf


def test_noise_of_a_sum() -> None:
    assert compute_noise([(1.0, 0.05)]) == pytest.approx(0.1)
    assert compute_noise([(0.5, 0.1), (-1.0, 0.0)], 4) == pytest.approx(0.05)


def test_measuring() -> None:
    rope = make_row(
        "rope",
        {64: [2.2, 2.22], 128: [2.0, 2.02], 256: [3.0, 3.2], 512: [None, 3.0]},  # type: ignore[list-item]
        third_seeds={"128": [2.5, 2.54], "256": [2.5, 2.54]},
        curve={"seeds": [[9.0, 3.0, 2.0], [5.0, 3.02, 2.02]]},
    )
    alibi = make_row("alibi", {64: [2.2, 2.2], 128: [2.0, 2.0], 256: [2.0, 2.04]})
    scaled = make_row("rope+yarn", {128: [2.5, 2.7]}) | {"trained_as": "rope"}
    found = measure_seed_noise(make_comparison(rope, alibi, scaled, {**rope, "name": "mrope"}))

    def average(*gaps: float) -> float:
        return float(f"{math.sqrt(fmean(gap * gap / 2 for gap in gaps)):.3g}")

    assert found == {
        # At 64 less text explains the higher loss; with a third of the steps RoPE is steady at 256.
        "steady": {"0.5": average(0.02, 0.0), "1": average(0.02, 0.0, 0.04), "2": average(0.04)},
        "rising": {"1": average(0.2), "2": average(0.2)},
        "curve": average(0.02, 0.02),
    }


def test_what_cannot_be_measured() -> None:
    rope = make_row("rope", {128: [2.0, 2.1]})
    with pytest.raises(ValueError, match="needs the learning curve of each seed"):
        measure_seed_noise(make_comparison(rope))
    one = make_comparison(rope)
    one["settings"]["seeds"] = [0]
    with pytest.raises(ValueError, match="needs a comparison of losses with two seeds or more"):
        measure_seed_noise(one)


def test_the_table_is_what_was_measured() -> None:
    found = noise._load_noise()
    source = ROOT / found["source"]
    assert measure_seed_noise(load_comparison(source)).items() <= found.items()
    for multiple, deviation in found["rising"].items():
        assert deviation > found["steady"][multiple]
