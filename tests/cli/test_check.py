"""``whorl check``: what it prints, and its exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Whorl = Callable[..., Any]

SOUND = """
import whorl
rope = whorl.RoPE(32, layout="interleaved")
def rotate(x, positions):
    return rope.rotate(x, positions)
def both(q, k, positions):
    return rope(q, k, positions)
def wrong(x, positions):
    return rope.rotate(x, positions + 1)
number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_rotations.py").write_text(SOUND)
    monkeypatch.chdir(tmp_path)
    return "my_rotations.py"


def test_a_sound_function(whorl: Whorl, module: str) -> None:
    done = whorl("check", f"{module}:rotate", "--head-dim", "32")
    assert (done.code, done.err) == (0, "")
    assert "nothing is wrong" in done.out
    assert (
        "whorl.make('rope', head_dim=32, base=10000.0, layout='interleaved')"
        in done.out.replace("\n              ", " ")
    )
    assert max(map(len, done.out.splitlines())) <= 80


def test_both_kinds_and_json(whorl: Whorl, module: str) -> None:
    done = whorl("check", f"{module}:both", "--head-dim", "32", "--kind", "qk", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert report["ok"] is True
    assert report["identified"]["layout"] == "interleaved"
    assert "keys" in report["properties"]


def test_something_wrong_has_its_own_exit_code(whorl: Whorl, module: str) -> None:
    done = whorl("check", f"{module}:wrong", "--head-dim", "32")
    assert done.code == 3
    assert "off-by-one: Positions are off by one" in done.out
    assert whorl("check", f"{module}:wrong", "--head-dim", "32", "--json").code == 3


def test_identify_only(whorl: Whorl, module: str) -> None:
    done = whorl("check", f"{module}:wrong", "--head-dim", "32", "--identify")
    assert done.code == 0
    assert "positions     as given +1" in done.out
    assert "property" not in done.out
    done = whorl("check", f"{module}:wrong", "--head-dim", "32", "--identify", "--json")
    assert json.loads(done.out)["offset"] == 1


def test_a_module_by_its_name(whorl: Whorl, module: str) -> None:
    assert whorl("check", "my_rotations:rope.rotate", "--head-dim", "32").code == 0


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("rotate", "check takes MODULE:FUNCTION, such as my.model:apply_rope; got 'rotate'"),
        ("my_rotations.py:rotat", "my_rotations.py has no 'rotat'; did you mean 'rotate'?"),
        ("my_rotations.py:number", "is no function; got int"),
        ("nonesuch.py:f", "cannot import nonesuch.py: FileNotFoundError"),
        ("no.such.module:f", "cannot import no.such.module: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_found(whorl: Whorl, module: str, argument: str, message: str) -> None:
    done = whorl("check", argument)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err


def test_a_file_may_import_what_lies_beside_it(whorl: Whorl, tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text(SOUND)
    (tmp_path / "outer_file.py").write_text("from beside_it import rotate\n")
    done = whorl("check", f"{tmp_path / 'outer_file.py'}:rotate", "--head-dim", "32")
    assert (done.code, done.err) == (0, "")
