"""Charts of a comparison: which lines are drawn, how they are told apart, what is refused."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whorl import plots
from whorl.plots._series import choose_axis_end, move_apart

from .lab_document import LENGTHS, QUICK, comparison

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

CHARTS = [plots.lab_lengths, plots.lab_positions, plots.lab_training, plots.lab_costs]


def _inline(spec: Any) -> list[dict[str, Any]]:
    if isinstance(spec, dict):
        own = [spec] if isinstance(spec.get("values"), list) and spec["values"] else []
        own = [one for one in own if isinstance(one["values"][0], dict)]
        return own + [found for value in spec.values() for found in _inline(value)]
    return [found for value in spec for found in _inline(value)] if isinstance(spec, list) else []


def rows(chart: Any, key: str) -> list[dict[str, Any]]:
    """Rows of the first data set that has this key."""
    spec = chart.to_dict()
    sets = [found["values"] for found in _inline(spec)] + list(spec.get("datasets", {}).values())
    return next(found for found in sets if key in found[0])


def words(chart: Any) -> list[str]:
    return [row["words"] for row in rows(chart, "end")]


def test_every_row_and_length_is_drawn_and_labelled() -> None:
    chart = plots.lab_lengths(comparison())
    drawn = {(row["name"], row["x"]) for row in rows(chart, "hue")}
    assert drawn == {(name, length) for name in QUICK for length in LENGTHS}
    assert sorted(words(chart)) == sorted(QUICK)


def test_a_scaling_has_the_hue_of_its_encoding_and_a_dash() -> None:
    found = {row["name"]: (row["hue"], row["dash"]) for row in rows(chart_of(9), "hue")}
    assert found["rope"] == ("rope", "0")
    assert found["rope+yarn"] == ("rope", "1")
    hues = {hue for hue, _ in found.values()} - {"nope"}
    assert len(hues) < len(plots.PALETTE)  # yellow, the last, fades on white


def chart_of(count: int) -> Any:
    return plots.lab_lengths(comparison(count))


@pytest.mark.parametrize(("count", "panels"), [(1, False), (9, False), (11, True), (30, True)])
def test_many_rows_get_panels_of_their_own(count: int, panels: bool) -> None:
    spec = chart_of(count).to_dict()
    assert ("facet" in spec) is panels
    if panels:
        heads = spec["facet"]["sort"]
        assert len(heads) == count
        values = [float(head.split()[-1]) for head in heads]
        assert values == sorted(values)


def test_rows_of_one_encoding_have_dashes_of_their_own() -> None:
    document = comparison(4)
    for n, row in enumerate(document["rows"]):
        row.update(name=f"rope at {n}", encoding="rope", trained_as=f"rope at {n}")
    assert {row["dash"] for row in rows(plots.lab_lengths(document), "hue")} == set("0123")


def test_wide_bands_do_not_flatten_the_lines() -> None:
    document = comparison(seeds=2)
    for cell in document["rows"][0]["by_length"].values():
        cell.update(low=-50.0, high=50.0)
    assert top(plots.lab_lengths(document).to_dict()) < 5


def test_small_differences_stay_small() -> None:
    document = comparison(2)
    for row in document["rows"]:
        for cell in row["by_length"].values():
            cell["mean"] = 2.0
    assert top(plots.lab_lengths(document).to_dict()) > 2.09


def test_bands_stand_for_several_seeds_only() -> None:
    assert all(row["low"] is None for row in rows(chart_of(9), "hue"))
    found = rows(plots.lab_lengths(comparison(seeds=3)), "hue")
    assert all(row["low"] < row["y"] < row["high"] for row in found)
    text = json.dumps(plots.lab_lengths(comparison(seeds=3)).to_dict())
    assert "3 seeds, bands: interval of the mean" in text


def test_a_diverging_row_leaves_through_the_top_with_its_value() -> None:
    document = comparison()
    document["rows"][2]["by_length"]["2048"]["mean"] = 95.0
    spec = plots.lab_lengths(document).to_dict()
    assert "cut off above" in json.dumps(spec)
    assert top(spec) < 5
    assert "learned \u2191 95.00" in words(plots.lab_lengths(document))
    assert all(row["label"] <= top(spec) + 0.5 for row in rows(plots.lab_lengths(document), "end"))
    assert "cut off" not in json.dumps(chart_of(9).to_dict())
    costs = rows(plots.lab_costs(document), "which")
    assert [row["words"] for row in costs if "\u2192" in row["words"]] == ["95.00 \u2192"]


def top(spec: dict[str, Any]) -> float:
    """Upper end of the vertical axis."""
    found = [
        layer["encoding"]["y"]["scale"]["domain"]
        for layer in [
            *spec["layer"],
            *(inner for one in spec["layer"] for inner in one.get("layer", ())),
        ]
        if "scale" in layer.get("encoding", {}).get("y", {})
    ]
    return float(found[0][1])


@pytest.mark.parametrize("nothing", [None, math.nan, math.inf])
@pytest.mark.parametrize("count", [9, 12])
def test_a_row_without_a_number_ends_early(nothing: float | None, count: int) -> None:
    document = comparison(count)
    document["rows"][1]["by_length"]["2048"]["mean"] = nothing
    chart = plots.lab_lengths(document)
    text = json.dumps(chart.to_dict(), allow_nan=False)
    value = "" if count == 9 else " 2.97"
    assert f'"sinusoidal{value} (to 1024)"' in text
    assert "(to 2048)" not in text
    costs = rows(plots.lab_costs(document), "which")
    assert [row["which"] for row in costs if row["name"] == "sinusoidal"] == ["at 128 (trained)"]
    assert costs[-1]["name"] == "sinusoidal"


def test_positions_are_averaged_within_half_octaves_of_the_training_length() -> None:
    document = comparison(1)
    places = [16, 24, 120, 128, 136, 2000]
    values = [4.0, 3.0, 2.0, 5.0, 7.0, math.nan]
    document["rows"][0]["by_position"] = {"position": places, "loss": values}
    found = [(row["x"], row["y"]) for row in rows(plots.lab_positions(document), "hue")]
    assert found == [(16, 4.0), (24, 3.0), (120, 2.0), (132, 6.0)]


def test_training_shows_every_point_of_what_was_trained() -> None:
    document = comparison()
    document["rows"][0]["curve"] = {"step": [7, 14, 21, 28], "loss": [4.0, 3.0, math.nan, 2.0]}
    found = rows(plots.lab_training(document), "hue")
    assert {row["name"] for row in found} == set(QUICK) - {"rope+yarn"}
    first = [(row["x"], row["y"]) for row in found if row["name"] == "nope"]
    assert first == [(7, 4.0), (14, 3.0), (28, 2.0)]
    assert len([row for row in found if row["name"] == "t5"]) == 50


@pytest.mark.parametrize(
    ("draw", "count"),
    [
        (plots.lab_lengths, 9),
        (plots.lab_lengths, 30),
        (plots.lab_positions, 30),
        (plots.lab_training, 9),
    ],
)
def test_charts_have_three_widths(draw: Any, count: int) -> None:
    found = []
    for width in ("page", "column", "phone"):
        svg = plots.svg(draw(comparison(count), width=width))
        start = svg.index('width="') + len('width="')
        found.append(float(svg[start : svg.index('"', start)]))
    assert found == sorted(found, reverse=True)
    assert found[1] <= 540  # two of them fit into a page of 1056, hardly made smaller
    assert found[2] <= 440  # and one on a phone, a little smaller


def test_lengths_and_steps_are_beside_each_other() -> None:
    spec = plots.lab(comparison(3)).to_dict()
    pair, costs, positions = spec["vconcat"]
    titles = [one["title"]["text"] for one in pair["hconcat"]]
    assert titles == ["Loss by evaluation length", "How fast they learn"]
    assert costs["title"]["text"] == "What each encoding gives and costs"
    assert positions["title"]["text"].startswith("Loss by position")


def test_costs_are_in_order_of_the_longest_and_name_borrowed_weights() -> None:
    chart = plots.lab_costs(comparison())
    found = [row["name"] for row in rows(chart, "which") if row["which"] == "at 2048"]
    assert found[0] == "alibi"
    assert found[-1] == "learned"
    assert '"as rope"' in json.dumps(chart.to_dict())


def test_accuracy_counts_upwards() -> None:
    document = comparison(measure="accuracy")
    chart = plots.lab_lengths(document)
    text = json.dumps(chart.to_dict())
    assert "accuracy (share of right answers)" in text
    assert "task: passkey" in text
    assert top(chart.to_dict()) == 1.0
    costs = [row for row in rows(plots.lab_costs(document), "which") if row["side"] != "none"]
    assert costs[0]["name"] == "alibi"
    assert {row["side"] for row in costs} == {"left"}  # away from the higher value


def test_the_whole_is_drawn(tmp_path: Path) -> None:
    svg = plots.save(plots.lab(comparison(3)), tmp_path / "c.svg", theme="dark").read_text()
    titles = ["Loss by evaluation length", "What each encoding gives and costs"]
    titles += ["How fast they learn", "on validation text, not the text of the table"]
    titles += ["Loss by position in texts of 2048 bytes", "trained at 128", "Some CPU"]
    assert [title for title in titles if title not in svg] == []


def test_the_whole_leaves_out_what_was_not_measured() -> None:
    document = comparison(3)
    for row in document["rows"]:
        del row["by_position"]
        row["curve"] = None
    text = json.dumps(plots.lab(document).to_dict())
    assert "Loss by evaluation length" in text
    assert "Loss by position" not in text
    assert "How fast they learn" not in text


def test_axes_name_their_units() -> None:
    wanted = {
        plots.lab_lengths: ["evaluation length (bytes, log scale)", "loss (nats per byte)"],
        plots.lab_positions: ["position (bytes, log scale)", "loss (nats per byte)"],
        plots.lab_training: ["steps", "loss (nats per byte)"],
        plots.lab_costs: ["tokens/s in training", "peak memory (MB)", "loss (nats per byte)"],
    }
    for chart, titles in wanted.items():
        text = json.dumps(chart(comparison()).to_dict())
        assert [title for title in titles if f'"{title}"' not in text] == []


def test_long_and_broken_titles_of_a_corpus() -> None:
    document = comparison(2)
    document["corpus"]["title"] = "/data/\udcff" + "x" * 100
    text = json.dumps(plots.lab_lengths(document).to_dict(), ensure_ascii=False)
    assert "/data/?xxx" in text.encode().decode()
    assert "x" * 60 not in text


def test_lengths_that_leave_out_the_training_length() -> None:
    document = comparison(2)
    document["settings"]["lengths"] = [512]
    svg = plots.svg(plots.lab_lengths(document))
    assert "trained at 128" in svg


@pytest.mark.parametrize("chart", CHARTS)
def test_nothing_to_draw(chart: Any) -> None:
    with pytest.raises(ValueError, match=r"plots\.lab_\w+: the comparison has no rows; let one"):
        chart({**comparison(), "rows": []})
    document = comparison(2)
    for row in document["rows"]:
        row.update(by_length={}, by_position=None, curve=None)
    if chart is not plots.lab_costs:
        with pytest.raises(ValueError, match=r"plots\.lab_\w+: no row of the comparison has num"):
            chart(document)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=12), st.floats(0.01, 2))
def test_labels_are_apart_in_order_and_inside(places: list[float], step: float) -> None:
    ordered = sorted(places, reverse=True)
    found = move_apart(ordered, step, low=0.0)
    assert all(a - b >= step * (1 - 1e-9) for a, b in pairwise(found))
    assert min(found) >= 0.0
    if all(a - b >= step for a, b in pairwise(ordered)):
        assert found == pytest.approx(ordered)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40))
def test_the_ceiling_keeps_three_quarters(values: list[float]) -> None:
    found = choose_axis_end(values)
    if found is None:
        return
    assert found in values
    assert found < max(values)
    assert sum(value <= found for value in values) >= 0.75 * len(values)


def test_no_values_have_no_ceiling() -> None:
    assert choose_axis_end([]) is None


def test_long_names_above_panels_are_whole() -> None:
    """Rows of one encoding may differ in the last option only."""
    document = comparison(12)
    names = [f"rope(scaling=yarn(factor={n},original_context=128))" for n in (4, 8)]
    for row, name in zip(document["rows"], names, strict=False):
        row["name"] = row["encoding"] = row["trained_as"] = name
    picture = ElementTree.fromstring(plots.svg(plots.lab_lengths(document)))
    text = "".join(each.text for each in picture.iter() if each.text)
    assert all(name in text for name in names)
    assert "\u2026" not in text
