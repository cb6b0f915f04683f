"""Every chart of the catalogue: drawn from its numbers, titled, with units, and never blank."""

import json
import math
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from whorl import plots, scaling
from whorl.analysis import attended
from whorl.plots import catalogue
from whorl.plots._draw import list_colors
from whorl.plots.decay import _smooth

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

#: Options that make each chart small and quick.
SMALL: dict[str, dict[str, Any]] = {
    "frequencies": {"dim": 8},
    "wavelengths": {"dim": 16, "context": 100},
    "angles": {"dim": 8},
    "circle": {"dim": 16, "length": 6},
    "scores": {"dim": 8, "length": 6},
    "decay": {"dim": 8, "length": 12},
    "bases": {"dim": 8, "length": 12},
    "aliasing": {"dim": 8, "length": 200},
    "precision": {"dim": 8, "positions": "1,1000"},
    "recoverability": {"dims": "8,16", "noises": "0,1,2", "length": 32},
    "gradients": {"dim": 8, "length": 9},
    "scalings": {"dim": 8, "context": 64},
    "attention-scale": {"dim": 8, "context": 16, "factors": "1,2"},
    "similarity": {"dim": 8, "length": 6},
    "map": {"dim": 8, "length": 9},
    "bias": {"heads": 2, "length": 9},
    "terms": {"dim": 8, "heads": 2, "length": 6},
    "permutation": {"encodings": "nope,rope,xpos"},
    "entropy": {"encodings": "nope,alibi", "length": 128},
    "properties": {"encodings": "nope,rope"},
}
#: Charts of a trained model, which are drawn in other tests.
OF_RUNS = {"attention", "stream", "trained-frequencies", "gradient-norms"}


def drawn(name: str, tmp_path: Path) -> tuple[dict[str, Any], str]:
    """The specification and the text of the picture."""
    chart = catalogue.chart(name, **SMALL[name])
    spec = json.loads(plots.save(chart, tmp_path / "c.json").read_text())
    root = ElementTree.fromstring(plots.svg(chart, theme="dark"))
    return spec, " ".join(e.text for e in root.iter() if e.text)


def rows_of(spec: Any) -> int:
    """Rows of data anywhere in a specification."""
    if isinstance(spec, list):
        return sum(map(rows_of, spec))
    if not isinstance(spec, dict):
        return 0
    own = len(spec["values"]) if isinstance(spec.get("values"), list) else 0
    return own + sum(rows_of(v) for k, v in spec.items() if k != "values")


@pytest.mark.parametrize("name", [n for n in catalogue.CHARTS if n not in OF_RUNS])
def test_a_chart_has_a_title_numbers_and_axes(name: str, tmp_path: Path) -> None:
    spec, words = drawn(name, tmp_path)
    title = spec["title"]
    assert title["text"] in words
    assert len(title["text"]) <= 90
    assert title["subtitle"]
    assert all(len(line) <= 96 for line in title.get("subtitle") or [] if isinstance(line, str))
    assert rows_of(spec) >= 2
    assert "NaN" not in json.dumps(spec)
    assert "undefined" not in words


def test_all_charts_are_tested() -> None:
    assert set(SMALL) == set(catalogue.CHARTS) - OF_RUNS


def test_names_and_summaries_fit_a_line() -> None:
    for name, entry in catalogue.CHARTS.items():
        assert name == entry.name
        assert len(entry.summary) <= 60
        assert not entry.summary.endswith(".")


def test_the_numbers_are_those_of_the_analysis() -> None:
    found = catalogue.numbers("frequencies").to_dict()
    assert [round(f, 6) for f in found["inv_freq"][:5]] == [
        *(1.0, 0.865964, 0.749894, 0.649382, 0.562341),
    ]
    assert catalogue.numbers("attention_scale", dim=8, context=16, factors=(1, 2)) is not None


def test_attention_of_known_weights() -> None:
    even = torch.ones(1, 2, 8, 8).tril()
    found = attended([even / even.sum(-1, keepdim=True)], name="two heads").to_dict()
    spec = catalogue.entry("attention").draw(found).to_dict()
    assert spec["title"]["subtitle"][0] == "two heads"
    values = spec["data"]["values"]
    assert {row["who"] for row in values} == {"0.0", "0.1", "uniform"}
    assert sum(row["share"] for row in values if row["who"] == "0.1") == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("similarity", {"encoding": "nope", "length": 4}, "it does not tell positions apart"),
        ("aliasing", {"dim": 2, "length": 3}, "the further away a token is, the less alike"),
        ("aliasing", {"dim": 2, "length": 3}, "no: past its fall, nothing looks as near as 2"),
        ("aliasing", {"dim": 8, "base": 10.0}, "yes: 37 apart looks 0.498 alike, 2 apart 0.44"),
        ("decay", {"dim": 8, "length": 64}, "mean |score| / (|q| |k|), so at most 1"),
        ("similarity", {"encoding": "xpos", "length": 4}, "no score for later keys: it is for"),
        ("scores", {"dim": 8, "length": 1000}, "one position in 16"),
        ("similarity", {"dim": 8, "length": 640}, "one position in 10"),
    ],
)
def test_a_chart_without_contrast_says_why(name: str, options: dict[str, Any], why: str) -> None:
    subtitle = catalogue.chart(name, **options).to_dict()["title"]["subtitle"]
    assert any(why in line for line in subtitle)


@pytest.mark.parametrize(("heads", "names"), [(3, 3), (16, 16), (32, 0)])
def test_heads_have_colours_of_their_own(heads: int, names: int) -> None:
    """An ordered palette, one each; few heads are named at the ends of their lines."""
    chart = catalogue.chart("bias", heads=heads, length=9)
    spec = chart.to_dict()
    lines = spec["layer"][0]["encoding"]["color"]
    assert lines["type"] == "ordinal"
    assert len(set(lines["scale"]["range"])) == len(lines["scale"]["domain"]) == heads
    texts = [e.text for e in ElementTree.fromstring(plots.svg(chart)).iter() if e.text]
    assert sum(text.startswith("head ") for text in texts) == names
    assert (lines["legend"] is None) is (names > 0)


def test_colours_of_an_order_are_seen_on_both_grounds() -> None:
    def light(colour: str) -> float:
        parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lights = [light(colour) for colour in list_colors(9)]
    assert lights == sorted(lights)
    dark = light(plots.theme("dark")["background"])
    assert all(1.05 / (each + 0.05) > 2.1 for each in lights)
    assert all((each + 0.05) / (dark + 0.05) > 3.0 for each in lights)


def test_every_scaling_is_on_the_chart() -> None:
    found = catalogue.numbers("scalings").to_dict()
    assert [each["name"] for each in found["extensions"]] == scaling.names()
    assert found["left_out"] == []


def test_narrow_heads_show_the_pairs_they_have() -> None:
    assert catalogue.numbers("circle", dim=8).to_dict()["pairs"] == [0, 1, 2, 3]
    assert len(catalogue.numbers("angles", dim=8).to_dict()["pairs"]) == 4


def test_the_context_is_not_written_over_the_legend() -> None:
    for base, below in ((100.0, True), (10_000.0, False)):
        svg = ElementTree.fromstring(plots.svg(catalogue.chart("wavelengths", base=base)))
        (words,) = [e for e in svg.iter() if e.text == "context 4,096"]
        line = re.search(r"translate\(\S+?,(-?[\d.]+)\)", words.attrib["transform"])
        assert line
        assert (float(line[1]) >= 0) is True
        assert (float(line[1]) < 20) is below


def test_wavelengths_before_and_after_a_scaling_with_both_lengths() -> None:
    found = catalogue.numbers("wavelengths", config="llama-3.1-8b").to_dict()
    assert (found["unscaled"]["context"], found["context"]) == (8192, 131_072)
    assert found["unscaled"]["wavelengths"][-1] == pytest.approx(found["wavelengths"][-1] / 8)
    spec = catalogue.entry("wavelengths").draw(found).to_dict()
    marks, points, _ = (layer["data"]["values"] for layer in spec["layer"])
    assert [row["words"] for row in marks] == ["trained length 8,192", "context 131,072"]
    assert {row["state"] for row in points} == {"before", "after"}
    assert spec["title"]["subtitle"][1:] == [
        "before: 35 of 64 pairs rotate fully within 8,192 tokens",
        "after: 39 of 64 pairs rotate fully within 131,072 tokens",
    ]


def test_decay_goes_to_the_context_with_a_colour_for_each_method() -> None:
    assert catalogue.numbers("decay", dim=8).to_dict()["distances"][-1] == 4096
    found = catalogue.numbers("decay", config="llama-3.1-8b", length=300).to_dict()
    assert found["unscaled"]["encoding"] == "RoPE(128, base=500000.0)"
    spec = catalogue.entry("decay").draw(found).to_dict()
    rows = [row for data in spec["datasets"].values() for row in data] if "datasets" in spec else []
    rows = rows or spec["layer"][1]["data"]["values"]
    lines = {(row["name"], row["hue"], row["dash"]) for row in rows}
    assert lines == {
        (f"{quantity}, {method}", method, str(dash))
        for method in ("with scaling", "without")
        for dash, quantity in enumerate(("f(m) / f(0)", "random, q = k", "random q and k"))
    }


def test_smooth_lines_are_means_with_the_range_of_their_values() -> None:
    distances = [0, 1, 2, 3, 100, 110, 120, 200]
    values = [9.0, 5.0, 4.0, 3.0, 1.0, 3.0, 2.0, 7.0]
    points = _smooth("x", "x", 0, distances, values).points
    assert [point.y for point in points] == [5.0, 4.0, 3.0, 2.0, 7.0]
    assert points[3].x == pytest.approx(math.sqrt(100 * 120))
    assert points[3][1:] == (2.0, 1.0, 3.0)


def test_scalings_of_a_config() -> None:
    found = catalogue.numbers("scalings", config="llama-3.1-8b").to_dict()
    assert (found["original_context"], found["factor"]) == (8192, 16.0)
    assert (found["rotary_dim"], found["base"]) == (128, 500_000.0)
    assert catalogue.numbers("scalings", config="qwen3-8b", factor=2).to_dict()["factor"] == 2.0
    plain = catalogue.numbers("scalings", config="qwen3-8b").to_dict()
    assert (plain["original_context"], plain["factor"]) == (40_960, 8.0)
    other = catalogue.numbers("scalings", config="llama-3.1-8b", context=4096).to_dict()
    assert (other["original_context"], other["factor"]) == (4096, 8.0)


def test_flat_biases_say_so() -> None:
    found = {"encoding": "x", "distances": [0, 1], "curves": [[0.0, 0.0]], "trained_parameters": 3}
    assert (
        "every bias is 0" in catalogue.entry("bias").draw(found).to_dict()["title"]["subtitle"][1]
    )


def test_nothing_to_draw_says_so(tmp_path: Path) -> None:
    found = catalogue.numbers("scalings", dim=8).to_dict() | {"extensions": []}
    spec = catalogue.entry("scalings").draw(found).to_dict()
    assert "no scaling could be made" in spec["title"]["subtitle"][0]
    assert spec["data"]["values"] == [{"why": spec["title"]["subtitle"][0]}]


def test_charts_of_a_config(tmp_path: Path) -> None:
    preset = catalogue.numbers("wavelengths", config="qwen3-8b-yarn").to_dict()
    assert (preset["context"], len(preset["inv_freq"])) == (40_960, 64)
    assert "YaRN" in preset["encoding"]
    file = tmp_path / "config.json"
    shape = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 512}
    file.write_text(json.dumps({"model_type": "llama", "rope_theta": 5e5, **shape}))
    for name in ("frequencies", "angles", "circle", "scores", "decay", "aliasing", "precision"):
        found = catalogue.numbers(name, config=str(file)).to_dict()
        assert found["encoding"] == "RoPE(16, base=500000.0)", name
    assert catalogue.numbers("wavelengths", config=str(file)).to_dict()["context"] == 512
    layers = catalogue.numbers("frequencies", config="gemma-3-4b", layer_type="full_attention")
    assert "Linear" in layers.to_dict()["encoding"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("decay", {"config": "qwen3-8b", "dim": 64}, r"'config' sets dim and base; leave"),
        ("decay", {"config": "qwen3-8b", "run": "x"}, r"a run has its own RoPE; leave config out"),
        (
            "decay",
            {"config": "gemma-3-4b"},
            r"2 different ways; set option 'layer_type' to one of 'sliding",
        ),
        ("decay", {"config": "nowhere.json"}, r"option 'config': there is no file 'nowhere\.json'"),
        ("decay", {"config": "lama-3.1-8b"}, r"did you mean 'llama-3\.1-8b'\?"),
        ("decy", {}, r"unknown chart 'decy'; did you mean 'decay'\? Known: frequencies, wave"),
        ("zzz", {}, r"unknown chart 'zzz'\. Known: "),
        (
            "decay",
            {"lenght": 3},
            r"'decay' has no option 'lenght'; did you mean 'length'\? It has: d",
        ),
        ("decay", {"dim": "x"}, r"option 'dim' must be a whole number, such as 128; got 'x'\."),
        ("decay", {"base": "x"}, r"option 'base' must be a number, such as 10000\.0; got 'x'\."),
        (
            "precision",
            {"peers": "perhaps"},
            r"'peers' must be yes or no, such as no; got 'perhaps'",
        ),
        ("angles", {"positions": "a"}, r"must be values with commas between them, such as 0,1,4,8"),
        ("precision", {"peers": "yes", "dim": 8}, r"peers are measured at dim=128 and base=10000"),
        ("circle", {"dim": 8, "pairs": "9"}, r"each of pairs must be .* at most 3; got 9"),
        ("angles", {"dim": 8, "pairs": "99"}, r"pairs must be an int >= 1 and at most 4; got 99"),
        (
            "similarity",
            {"encoding": "alibi", "dim": 8},
            r"chart 'similarity': 'alibi' does not use",
        ),
        ("map", {"heads": 3}, r"chart 'map': 'rope' does not use heads; leave it out"),
        ("entropy", {"encodings": "nope", "dim": 8}, r"'nope' does not use dim"),
        ("attention", {}, r"shows a trained model: set run=FOLDER of whorl train, or model=FOLDER"),
        ("attention", {"run": "a", "model": "b"}, r"but not both\."),
        ("attention", {"model": "nowhere"}, r"model: there is no file 'nowhere'"),
        ("gradient-norms", {}, r"chart 'gradient-norms' shows a training: set run=FOLDER of whorl"),
        (
            "trained-frequencies",
            {"run": "nowhere"},
            r"'nowhere' is not the folder of a run: it has no config\.toml",
        ),
        (
            "attention",
            {"run": "nowhere"},
            r"'nowhere' is not the folder of a run: it has no config\.toml",
        ),
    ],
)
def test_errors(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        catalogue.numbers(name, **options)


def test_no_two_ways_of_a_table_share_a_colour() -> None:
    found = catalogue.numbers("precision", positions="1,10").to_dict()
    error = next(iter(found["errors"].values()))
    many = {**found, "errors": {f"way {n}": [e * 2**n for e in error] for n in range(9)}}
    spec = catalogue.entry("precision").draw(many).to_dict()
    assert len(set(spec["layer"][0]["encoding"]["color"]["scale"]["range"])) == 9


def test_short_distances_have_whole_ticks() -> None:
    spec = catalogue.chart("decay", dim=8, length=3).to_dict()
    lines = spec["layer"][1]
    axis = (lines.get("encoding") or lines["layer"][0]["encoding"])["x"]["axis"]
    assert (axis["values"], axis["format"]) == ([1, 3], "d")


def test_peers_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    import whorl
    from whorl.bench.rotation.accuracy import list_table_functions

    module = sys.modules[list_table_functions.__module__]

    def tables(positions: list[int]) -> Any:
        return whorl.RoPE(128).tables(torch.tensor(positions))

    monkeypatch.setattr(module, "list_table_functions", lambda: {"whorl": tables, "Peer": tables})
    found = catalogue.numbers("precision", peers="yes", positions="10").to_dict()
    assert list(found["errors"])[-1] == "Peer"
    assert "whorl" not in found["errors"]
