"""Charts of one training, from made-up numbers."""

import json
import math
from typing import Any

import pytest

from whorl import plots
from whorl.plots import catalogue

pytest.importorskip("altair")
pytest.importorskip("vl_convert")


def frequencies(groups: int = 1) -> dict[str, Any]:
    start = [1.0, 0.1, 0.01]
    end = [1.1, 0.4, 0.009]
    names = ["rope"] if groups == 1 else [f"axial_rope, head {n}" for n in range(groups)]
    middle = [math.sqrt(a * b) for a, b in zip(start, end, strict=True)]
    return {
        "name": "rope(frequencies=trained) in run",
        "length": 128,
        "groups": names,
        "start": [start] * groups,
        "steps": [4, 8],
        "values": [[middle] * groups, [end] * groups],
    }


def norms() -> dict[str, Any]:
    values = {"mlp": [0.5, 0.4], "attention": [0.2, 0.1], "encoding": [None, 0.01]}
    found: dict[str, Any] = {"name": "rope in run", "per_point": 3, "clip": 1.0, "clipped": 0.25}
    return {**found, "steps": [2.0, 5.0], "values": values}


@pytest.mark.parametrize("groups", [1, 4])
def test_frequencies_before_and_after(groups: int) -> None:
    chart = catalogue.entry("trained-frequencies").draw(frequencies(groups))
    spec = chart.to_dict()
    where = "" if groups == 1 else " of axial_rope, head 0"
    assert spec["title"]["subtitle"] == [
        "rope(frequencies=trained) in run, 8 steps",
        f"pair 1{where} changed most: 0.1 to 0.4 radians per position (4x)",
    ]
    factors = spec["vconcat"][1]["data"]["values"]
    assert len(factors) == 9 * groups
    assert {row["factor"] for row in factors if row["step"] == 0} == {1.0}
    last = {row["pair"]: row["factor"] for row in factors if row["step"] == 8}
    assert last[1] == pytest.approx(4.0)
    text = plots.svg(chart, theme="dark")
    assert all(words in text for words in ("at the start", "after training", "128 tokens"))
    assert "NaN" not in json.dumps(spec)


def test_frequencies_of_one_step() -> None:
    found = frequencies()
    found |= {"steps": [1], "values": found["values"][:1]}
    assert len(catalogue.entry("trained-frequencies").draw(found).to_dict()["vconcat"]) == 1
    found |= {"start": [[0.0] * 3]}
    spec = catalogue.entry("trained-frequencies").draw(found).to_dict()
    assert spec["title"]["subtitle"] == ["no pair rotates"]


def test_gradient_norms() -> None:
    chart = catalogue.entry("gradient-norms").draw(norms())
    spec = chart.to_dict()
    lines, _, labels = (layer["data"]["values"] for layer in spec["layer"])
    assert len(lines) == 5  # nothing is drawn where all gradients are 0
    assert [row["part"] for row in labels] == ["mlp", "attention", "encoding"]
    assert spec["title"]["subtitle"][1:] == [
        "geometric means of 3 steps, before clipping",
        "25% of the steps had a total norm above 1 and were clipped to it",
    ]
    text = plots.svg(chart)
    assert all(f">{part}<" in text for part in ("mlp", "attention", "encoding"))
    nothing = {**norms(), "values": {"encoding": [None, None]}}
    spec = catalogue.entry("gradient-norms").draw(nothing).to_dict()
    assert spec["title"]["subtitle"] == ["all gradients are 0"]
