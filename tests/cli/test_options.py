"""Errors of the library name options of the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from whorl.cli._options import replace_names

Whorl = Callable[..., Any]


def test_words_are_replaced_at_the_beginning_only() -> None:
    names = {"seeds": "--seeds", "data.files": "--data", "force=True": "--force"}
    assert replace_names("seeds must be 1.", names) == "--seeds must be 1."
    assert replace_names("seedsmen and seeds", names) == "seedsmen and seeds"
    assert replace_names("give data.files", names) == "give --data"
    assert replace_names("or pass force=True.", names) == "or pass --force."
    ends = {"plots.save:": "--out:", " Pass x= to y.": "", "memory=,": "--memory,"}
    assert replace_names("plots.save: no. Pass x= to y. Or memory=, z", ends) == (
        "--out: no. Or --memory, z"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("compare", "--seeds", "0"), "--seeds must be a whole number of at least 1; got 0."),
        (("compare", "--encodings", "rop"), "--encodings: 'rop' is unknown; did you mean 'rope'?"),
        (("compare", "--scalings", "yan"), "--scalings: 'yan' cannot be applied to a trained"),
        (("compare", "--workers", "0"), "--workers must be at least 1; got 0."),
        (("compare", "--minutes", "-1"), "--minutes must be above 0; got -1."),
        (("compare", "--data", "none"), "--data: 'none' cannot be read: No such file"),
        (("train", "--threads", "0"), "--threads must be at least 1; got 0."),
        (("train", "--scalings", "yan"), "--scalings: 'yan' cannot be applied to a trained"),
        (("train", "--data", "none"), "--data: 'none' cannot be read: No such file"),
        (("train", "--export", "."), "--export must not be the current one"),
        (("train", "--batch", "0"), "--batch must be a whole number of at least 1; got 0."),
        (("compare", "--steps", "0"), "--steps must be a whole number of at least 1; got 0."),
        (("experiment", "base", "--steps", "0"), "--steps must be a whole number of at least 1"),
        (("compare", "--chart", "a.gif"), "--chart: 'a.gif' must end in .png, .svg, .html or"),
        (("inspect", "llama-2-7b", "--plot", "a.gif"), "--plot: 'a.gif' must end in .png"),
        (("explore", "llama-2-7b", "--picture", "a.gif"), "--picture: 'a.gif' must end in"),
        (("plot", "decay", "--out", "no/a.png"), "--out: the folder 'no' of 'a.png' does not"),
        (("plot", "decay", "--json", "--config", "none"), "--config: there is no file 'none'"),
        (("plot", "decay", "--json", "--dim", "7"), "--dim must be even and at least 2, because"),
        (("plot", "decay", "--json", "--set", "length=3x"), "--length must be a length such as"),
        (
            ("plot", "wavelengths", "--json", "--set", "context=x"),
            "--set context must be a length such as 4096, 128k or 1e5; got 'x'.",
        ),
        (
            ("plot", "decay", "--json", "--config", "gemma-3-4b"),
            "the layers of gemma3_text rotate in 2 different ways; add --set layer_type=NAME, one",
        ),
        (
            ("plot", "decay", "--json", "--config", "llama-2-7b", "--dim", "64"),
            "--config sets --dim and --base; leave those out.",
        ),
        (("plot", "stream", "--json"), "chart 'stream' shows losses of a trained model: add --run"),
        (("explain", "rope", "--dim", "7"), "--dim must be even and at least 2, because"),
        (("explain", "rope", "--position", "-1"), "--position must be an int >= 0"),
        (("explain", "alibi", "--base", "5"), "explain: 'alibi' does not use --base;"),
        (("explain", "yarn", "--factor", "0.5"), "--factor must be a number from 1 to"),
        (("explain", "yarn", "--base", "1"), "--base must be above 1; got 1."),
        (("explain", "rope+yarn"), "'yarn' is a scaling, which is explained alone: whorl explain"),
        (("inspect", "llama-2-7b", "--factor", "4"), "--factor needs --extend NAME, that of the"),
        (
            ("inspect", "llama-2-7b", "--extend", "yarn"),
            "--extend needs --factor, the new length divided by the trained length, or --length,",
        ),
        (
            ("explore", "llama-2-7b", "--picture", "a.png", "--method", "yan"),
            "--method: unknown extension 'yan'",
        ),
        (("detect", ".", "--head-dim", "0"), "--head-dim must be an int >= 1; got 0."),
        (("detect", ".", "--pattern", "q"), "--pattern 'q' must be ROLE=REGEX"),
        (("check", "os:path", "--base", "-1"), "--base must be above 0; got -1."),
        (
            ("plan", "--length", "4k", "--parameters", "7e9", "--memory", "-1"),
            "--memory must be above 0 GB; got -1.",
        ),
        (("extend", "nowhere", "--to", "4x", "--text", "text.txt"), "CONFIG: there is no file"),
    ],
)
def test_errors_name_the_option(
    whorl: Whorl,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    message: str,
) -> None:
    for package in ("safetensors", "tomli_w"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("some text")
    done = whorl(*args)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"error: {message}")


def test_a_folder_of_another_run_asks_for_force(
    whorl: Whorl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("safetensors", "tomli_w"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("".join(f"{n} is a number. " for n in range(2000)))
    tiny = ("--layers=1", "--width=32", "--heads=2", "--length=16", "--batch=2", "--out=run")
    more = ("--data=text.txt", "--steps=1")
    assert whorl("train", *tiny, *more).code == 0
    done = whorl("train", *tiny, *more, "--seed=1")
    assert done.code == 2
    assert "or pass --force to delete that run and start again." in done.err
