"""``whorl plot``: files in every format, numbers as JSON, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whorl.plots import catalogue

pytest.importorskip("altair")
pytest.importorskip("vl_convert")


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_one_chart_in_every_format(whorl: Callable[..., Any], tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"c.{suffix}"
    done = whorl("plot", "frequencies", "--dim", "8", "--out", str(out), "--theme", "dark")
    assert done == (0, f"{out}\n", "")
    content = out.read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<svg"}.get(suffix, b""))
    assert b"#15181C" in content or suffix == "png"


def test_json_is_the_numbers(whorl: Callable[..., Any], tmp_path: Path) -> None:
    done = whorl("plot", "wavelengths", "--json", "--set", "context=100", "--dim", "4")
    found = json.loads(done.out)
    assert (found["context"], len(found["inv_freq"])) == (100, 2)
    assert list(tmp_path.iterdir()) == []


def test_the_list_has_one_line_each(whorl: Callable[..., Any]) -> None:
    done = whorl("plot", "--list")
    lines = done.out.splitlines()
    for entry in catalogue.CHARTS.values():
        (line,) = [x for x in lines if x.split()[:1] == [entry.name]]
        assert entry.summary in line
    assert whorl("plot").out == done.out
    assert max(map(len, lines)) <= 80
    listed = json.loads(whorl("plot", "--list", "--json").out)
    assert [each["name"] for each in listed] == list(catalogue.CHARTS)
    assert listed[0]["options"] == {"dim": 128, "base": 10_000.0, "config": "", "layer_type": ""}


def test_the_options_of_one(whorl: Callable[..., Any]) -> None:
    out = whorl("plot", "angles", "--list").out
    assert "0,1,4,8" in out
    assert "decay" not in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["decy"], "unknown chart 'decy'; did you mean 'decay'?"),
        (["decay"], "say where the chart goes: whorl plot decay --out decay.png; or --json."),
        (["decay", "--out", "c.gif"], "'c.gif' must end in .png, .svg, .html or .json."),
        (["decay", "--json", "--set", "x"], "--set takes KEY=VALUE, such as --set context=8192"),
        (["entropy", "--json", "--base", "3"], "chart 'entropy' has no --base"),
        (["bias", "--json", "--encoding", "rop"], "unknown encoding 'rop'; did you mean 'rope'?"),
        (["bias", "--json", "--encoding", "rope"], "must have a bias by distance; got RoPE(64)"),
        (
            ["terms", "--json", "--length", "10000000"],
            "length 10,000,000 needs 160,000 TB of memory",
        ),
    ],
)
def test_what_it_refuses(whorl: Callable[..., Any], args: list[str], message: str) -> None:
    code, out, err = whorl("plot", *args)
    assert (code, out) == (2, "")
    assert message in err
