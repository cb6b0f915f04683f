"""Charts of a report: what is drawn, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from whorl import plots

pytest.importorskip("altair")
pytest.importorskip("vl_convert")


def result(name: str, mode: str, ratio: float | None) -> dict[str, Any]:
    timing = None if ratio is None else {"median": ratio * 1e-6}
    return {"name": name, "mode": mode, "timing": timing, "to_copy": ratio}


def cell(shape: str, threads: int, *results: dict[str, Any]) -> dict[str, Any]:
    inside = {"dtype": "float32", "layout": "half", "threads": threads}
    return {"key": f"{shape}/float32/half/{threads}", "cell": inside, "results": list(results)}


REPORT: dict[str, Any] = {
    "environment": {"cpu": "Some CPU"},
    "cells": [
        cell(
            "prefill-512",
            1,
            result("copy", "out", 1.0),
            result("peer", "fresh", 9.0),
            result("whorl", "fresh", 1.5),
            result("whorl", "inplace", 0.8),
            result("whorl", "bound", 0.7),  # not shown, like the rotations below
            result("whorl", "past", 0.6),
            result("whorl", "axial", 0.5),
            result("wrong", "", None),
        ),
        cell("decode-1", 1, result("whorl", "inplace", 2.0)),
        cell("decode-1", 4, result("whorl", "inplace", 77.0)),
    ],
    "accuracy": {
        "positions": [0, 1, 100],
        "errors": {"whorl": [0.0, 3e-8, 3e-8], "peer": [0.0, 0.0, 5e-6]},
    },
}


def rows(chart: Any) -> list[dict[str, Any]]:
    found = chart.to_dict()
    return list(found["data"]["values"])


def test_speed_keeps_the_fastest_form_of_each_on_the_fewest_threads() -> None:
    found = rows(plots.speed(REPORT, titles={"peer": "A Peer"}))
    assert [(r["shape"], r["who"], r["mode"], r["ratio"]) for r in found] == [
        ("prefill-512", "A Peer", "fresh", 9.0),
        ("prefill-512", "whorl", "in place", 0.8),
        ("decode-1", "whorl", "in place", 2.0),
    ]
    assert found[1]["microseconds"] == pytest.approx(0.8)


def test_accuracy_leaves_out_what_has_no_logarithm() -> None:
    drawn = plots.accuracy(REPORT).to_dict()["layer"][0]["data"]["values"]
    found = [(r["who"], r["position"], r["error"]) for r in drawn]
    assert found == [("whorl", 1, 3e-8), ("whorl", 100, 3e-8), ("peer", 100, 5e-6)]


def test_libraries_that_share_a_line_share_a_label() -> None:
    errors = {"whorl": [0.0, 3e-8, 3e-8], "one": [0.0, 1e-7, 5e-6], "two": [0.0, 1.2e-7, 6e-6]}
    found = {"positions": [0, 1, 100], "errors": {**errors, "far": [0.0, 1e-7, 1.0]}}
    *_, lines, text = plots.accuracy({"accuracy": found}).to_dict()["layer"]
    assert {row["group"] for row in lines["data"]["values"]} == {"whorl", "one\ntwo", "far"}
    labels = text["data"]["values"]
    assert [row["words"] for row in labels] == ["far", "one", "two", "whorl"]
    places = [row["error"] for row in labels]
    assert places == sorted(places, reverse=True), "labels are one under the other"
    assert len(set(places)) == 4


def test_speed_shows_one_dtype() -> None:
    half = cell("prefill-512", 1, result("whorl", "inplace", 0.7))
    half["cell"]["dtype"] = "bfloat16"
    both = {**REPORT, "cells": [*REPORT["cells"], half]}
    assert {row["dtype"] for row in rows(plots.speed(both))} == {"float32"}
    chosen = plots.speed(both, dtype="bfloat16")
    assert [row["ratio"] for row in rows(chosen)] == [0.7]
    assert "bfloat16, 1 thread" in chosen.to_dict()["title"]["subtitle"][0]
    with pytest.raises(ValueError, match=r"dtype must be one of float32, bfloat16; got 'half'\."):
        plots.speed(both, dtype="half")


@pytest.mark.parametrize("with_accuracy", [True, False])
def test_bench_draws_what_the_report_has(tmp_path: Path, with_accuracy: bool) -> None:
    report = REPORT if with_accuracy else {**REPORT, "accuracy": None}
    svg = plots.save(plots.bench(report), tmp_path / "c.svg").read_text()
    for words in ("Rotating queries and keys", "1 thread, Some CPU", "prefill-512", "decode-1"):
        assert words in svg
    assert ("Error of the tables" in svg) is with_accuracy


@pytest.mark.parametrize("chart", [plots.speed, plots.accuracy])
def test_every_axis_names_its_unit(chart: Any) -> None:
    text = json.dumps(chart(REPORT).to_dict())
    titles = {
        plots.speed: ["multiples of copy_ (log scale)"],
        plots.accuracy: [
            "position (tokens, log scale)",
            "largest error of cos and sin (absolute, log scale)",
        ],
    }
    assert all(title in text for title in titles[chart])


def test_an_empty_report() -> None:
    empty: dict[str, Any] = {"environment": {}, "cells": [], "accuracy": None}
    with pytest.raises(ValueError, match=r"plots\.speed: the report has no timings; measure at"):
        plots.speed(empty)
    with pytest.raises(ValueError, match=r"plots\.accuracy: the report has no accuracy; measure"):
        plots.accuracy(empty)
