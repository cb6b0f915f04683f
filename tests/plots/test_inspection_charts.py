"""The chart of wavelengths: what is drawn for known models."""

from typing import Any

import pytest

from whorl import plots
from whorl.configs.inspection import inspect

pytest.importorskip("altair")


def layers(chart: Any) -> dict[str, list[dict[str, Any]]]:
    """The rows of each layer by what it is drawn with."""
    found: dict[str, list[dict[str, Any]]] = {"rings": []}
    for layer in chart.to_dict()["layer"]:
        kind = "rings" if layer["mark"].get("filled") is False else layer["mark"]["type"]
        found[kind] = found.get(kind, []) + layer["data"]["values"]
    return found


def words(rows: list[dict[str, Any]]) -> list[str]:
    return [row["words"] for row in sorted(rows, key=lambda row: row["wavelength"])]


def test_a_scaled_model_shows_where_its_pairs_were() -> None:
    document = inspect("llama-3.1-8b").to_dict()
    found = layers(plots.inspection(document))
    points, rings = found["point"], found["rings"]
    assert words(found["rule"]) == words(found["text"]) == ["trained 8,192", "claimed 131,072"]
    assert len(points) == 64
    assert {p["status"] for p in points} == {"kept", "blended", "interpolated"}
    assert len(rings) == 64 - 29
    assert rings[-1]["wavelength"] == pytest.approx(points[-1]["wavelength"] / 8)


def test_an_extension_shows_before_and_after() -> None:
    found = inspect("llama-3.1-8b", extend="yarn", factor=4, length=20_000)
    chart = plots.inspection(found.to_dict())
    drawn = layers(chart)
    points, rings = drawn["point"], drawn["rings"]
    lines = ["trained 8,192", "asked 20,000", "extended 32,768", "claimed 131,072"]
    assert words(drawn["rule"]) == words(drawn["text"]) == lines
    extension = found.groups[0].extension
    assert extension is not None
    assert points[-1]["wavelength"] == extension.after.pairs[-1].new_wavelength
    assert rings[-1]["wavelength"] == extension.before.pairs[-1].new_wavelength
    assert "as extended by yarn" in chart.to_dict()["title"]["subtitle"][0]
    assert "rings: as published" in chart.to_dict()["title"]["subtitle"][0]


def test_a_panel_for_each_kind_of_layer() -> None:
    spec = plots.inspection(inspect("gemma-3-4b").to_dict()).to_dict()
    titles = [panel["title"]["text"] for panel in spec["vconcat"]]
    assert titles == [
        "gemma3_text, sliding_attention: wavelengths",
        "gemma3_text, full_attention: wavelengths",
    ]


def test_an_unscaled_model_has_no_rings() -> None:
    chart = plots.inspection(inspect("llama-2-7b").to_dict())
    found = layers(chart)
    assert words(found["rule"]) == ["trained, claimed 4,096"]
    assert (len(found["point"]), found["rings"]) == (64, [])


def test_nothing_to_draw() -> None:
    config = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4}
    with pytest.raises(ValueError, match="nothing to draw, because no layers have rotary"):
        plots.inspection(inspect(config).to_dict())
