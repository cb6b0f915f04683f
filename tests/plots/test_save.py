"""Four formats from one chart, whole or not at all."""

import json
import os
import re
import struct
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from whorl import plots

alt = pytest.importorskip("altair")
pytest.importorskip("vl_convert")


@pytest.fixture
def chart() -> Any:
    rows = [{"position": 2**n, "error": 1e-8 * 2**n, "of": who} for n in range(4) for who in "ab"]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line()
        .encode(
            alt.X("position:Q", title="position (tokens)"),
            alt.Y("error:Q", title="error (absolute)"),
            alt.Color("of:N"),
        )
        .properties(width=100, height=60)
    )


def loads_from_network(page: str) -> list[str]:
    """What a browser would fetch by itself: scripts, styles, images, imports."""
    tags = r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)\s*=\s*[\"']?(?:https?:)?//[^>]*>"
    # From `import ... from "https://..."`, `import("https://...")` and CSS `@import`, `url(...)`.
    code = r"(?:\bfrom|\bimport|@import|\burl)\s*\(?\s*[\"']?https?://[^\"')\s]+"
    return re.findall(tags, page) + re.findall(code, page)


def test_png_has_the_asked_scale(chart: Any, tmp_path: Path) -> None:
    sizes = []
    for scale in (1, 2):
        content = plots.save(chart, tmp_path / f"{scale}.png", scale=scale).read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        sizes.append(struct.unpack(">2I", content[16:24]))  # width and height in the IHDR chunk
    (w1, h1), (w2, h2) = sizes
    assert abs(w2 - 2 * w1) <= 1
    assert abs(h2 - 2 * h1) <= 1


def test_svg_parses_and_keeps_the_titles(chart: Any, tmp_path: Path) -> None:
    root = ElementTree.fromstring(plots.save(chart, tmp_path / "c.svg").read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"position (tokens)", "error (absolute)"} <= {e.text for e in root.iter()}


def test_html_stands_alone(chart: Any, tmp_path: Path) -> None:
    page = plots.save(chart, str(tmp_path / "c.html")).read_text()
    assert "<html" in page
    assert "position (tokens)" in page
    assert loads_from_network(page) == []


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example/vega.js"></script>',
        "<link rel=stylesheet href='//cdn.example/a.css'>",
        '<script>import vegaEmbed from "https://esm.example/vega-embed"</script>',
        "<style>@import url(https://fonts.example/css)</style>",
    ],
)
def test_the_network_detector_can_fail(page: str) -> None:
    assert loads_from_network(page)


def test_json_is_the_specification_with_data_and_theme(chart: Any, tmp_path: Path) -> None:
    spec = json.loads(plots.save(chart, tmp_path / "c.JSON").read_text())
    assert spec["mark"]["type"] == "line"
    assert spec["config"] == plots.theme("light")
    assert "position" in json.dumps(spec.get("datasets", spec["data"]))


@pytest.mark.parametrize("name", ["light", "dark"])
def test_theme_colours_are_drawn(chart: Any, tmp_path: Path, name: plots.Theme) -> None:
    svg = plots.save(chart, tmp_path / "c.svg", theme=name).read_text().lower()
    config = plots.theme(name)
    assert config["background"].lower() in svg
    assert config["axis"]["titleColor"].lower() in svg
    for colour in config["range"]["category"][:2]:
        assert colour.lower() in svg


def test_the_charts_own_configuration_wins(chart: Any, tmp_path: Path) -> None:
    own = chart.configure_axis(titleColor="#123456")
    config = json.loads(plots.save(own, tmp_path / "c.json").read_text())["config"]
    assert config["axis"]["titleColor"] == "#123456"
    assert config["axis"]["labelColor"] == plots.theme()["axis"]["labelColor"]


def test_altair_keeps_its_state(chart: Any, tmp_path: Path) -> None:
    with alt.theme.enable("opaque"):
        before = (alt.theme.active, alt.theme.options, alt.theme.names())
        data = (alt.data_transformers.active, alt.data_transformers.options)
        plots.save(chart, tmp_path / "c.json", theme="dark")
        assert (alt.theme.active, alt.theme.options, alt.theme.names()) == before
        assert (alt.data_transformers.active, alt.data_transformers.options) == data
        spec = json.loads(plots.save(chart, tmp_path / "c.json", theme=None).read_text())
        assert spec["config"]["background"] == "white"  # what "opaque" is
    assert alt.theme.active == "default"


def test_more_rows_than_altair_allows(tmp_path: Path) -> None:
    rows = [{"x": n} for n in range(6000)]
    big = alt.Chart(alt.Data(values=rows)).mark_point().encode(alt.X("x:Q"))
    assert plots.save(big, tmp_path / "c.json").stat().st_size > 6000


@pytest.mark.parametrize("name", ["chart.pdf", "chart"])
def test_an_unknown_suffix_names_the_four(chart: Any, tmp_path: Path, name: str) -> None:
    message = rf"plots.save: '{name}' must end in \.png, \.svg, \.html or \.json\."
    with pytest.raises(ValueError, match=message):
        plots.save(chart, tmp_path / name)


def test_a_path_without_a_name() -> None:
    with pytest.raises(ValueError, match=r"plots\.save: '\.' must end in \.png"):
        plots.check_path(".")


def test_a_missing_folder(chart: Any, tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"folder '.*none' of 'c\.png' does not exist; create"
    ):
        plots.save(chart, tmp_path / "none" / "c.png")


def test_a_folder_instead_of_a_file(chart: Any, tmp_path: Path) -> None:
    (tmp_path / "c.png").mkdir()
    with pytest.raises(IsADirectoryError, match=r"c\.png' is a folder; name a file in it"):
        plots.save(chart, tmp_path / "c.png")


def test_what_is_no_chart(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"chart must be an Altair chart; got list\."):
        plots.save([1, 2], tmp_path / "c.png")


@pytest.mark.parametrize("module", ["altair", "vl_convert"])
def test_a_missing_package_names_the_pip_line(
    chart: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"whorl\.plots needs {module}: pip install 'whorl\[plots\]'\."
    with pytest.raises(ModuleNotFoundError, match=message):
        plots.save(chart, tmp_path / "c.png")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    chart: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.json"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        plots.save(chart, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_chart_that_does_not_render_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "c.png"
    path.write_text("old")
    broken = alt.Chart.from_dict({"mark": "bar", "data": {"values": []}}, validate=False)
    broken.mark = "no such mark"
    with pytest.raises(Exception, match=r"no such mark"):
        plots.save(broken, path)
    assert path.read_text() == "old"


def test_a_saved_file_has_ordinary_permissions(chart: Any, tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    saved = plots.save(chart, tmp_path / "c.json")
    assert saved.stat().st_mode == ordinary.stat().st_mode


def test_a_place_that_cannot_be_written_is_named(chart: Any) -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("needs a folder that nobody can write to")
    with pytest.raises(
        OSError, match=r"cannot write '/proc/x\.json': .*; choose a path that you may"
    ):
        plots.save(chart, Path("/proc/x.json"))
