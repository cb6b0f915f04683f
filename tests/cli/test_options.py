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
