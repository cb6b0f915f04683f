"""``whorl stream``: the table, the document, the chart, and errors in the words of the options."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whorl.plots import catalogue

from .test_generate import run  # noqa: F401  # a fixture

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

Whorl = Callable[..., Any]


def test_the_table_and_the_chart(whorl: Whorl, run: Path, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(ValueError, match=r"measure them with whorl stream"):
        catalogue.numbers("stream", run=str(run))
    chart = tmp_path / "chart.json"
    done = whorl("stream", str(run), "--length", "3x", "--streams", "2", "--chart", str(chart))
    assert done.code == 0, done.err
    heads, _, *rows = done.out.splitlines()
    assert heads.split("  ")[0] == "cache"
    assert "loss to 32" in heads
    assert "32 to 96" in heads
    assert [row.split()[0] for row in rows[:4]] == ["dense", "window", "sinks", "recomputed"]
    assert "4 sinks + 28 latest" in rows[2]
    assert "RoPE(16), trained on 32 bytes" in done.out
    found = catalogue.numbers("stream", run=str(run)).to_dict()
    beyond = found["policies"][0]["beyond"]["loss"]
    assert rows[0].split()[4] == f"{beyond:.3f}"
    assert "\u00b1" in rows[0]
    names = set(chart.read_text().split('"'))
    assert {"all keys", "window", "window + sinks", "window recomputed"} <= names


def test_the_document(whorl: Whorl, run: Path) -> None:  # noqa: F811
    options = ["--length", "96", "--streams", "2", "--window", "16", "--sinks", "2", "--json"]
    found = json.loads(whorl("stream", str(run), *options).out)
    assert (found["length"], found["window"], found["beyond"]) == (96, 16, 32)
    assert found["policies"][2]["keys"] == "2 sinks + 14 latest"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--length", "long"], "error: --length must be a number of tokens, such as 4096"),
        (["--sinks", "40"], "error: --sinks must be an int from 1 to 31, fewer than the window"),
        (["--streams", "0"], "error: --streams must be a whole number of at least 1; got 0."),
        (["--text", "nowhere.txt"], "error: --text: 'nowhere.txt' cannot be read"),
        (["--chart", "chart.bmp"], "error: --chart: 'chart.bmp' must end in .png"),
    ],
)
def test_errors_name_the_options(
    whorl: Whorl,
    run: Path,  # noqa: F811
    options: list[str],
    words: str,
) -> None:
    done = whorl("stream", str(run), *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(words)


def test_the_chart_needs_a_run() -> None:
    with pytest.raises(ValueError, match=r"chart 'stream' shows losses of a trained model: set"):
        catalogue.numbers("stream")


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match=r"plots.stream: no policy has losses that can be drawn"):
        catalogue.entry("stream").draw({"policies": []})
