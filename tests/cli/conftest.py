"""Runs the command in this process, as the installed script does."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from whorl.cli import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Whorl = Callable[..., Outcome]


@pytest.fixture
def whorl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Whorl:
    """``whorl("info", "--json")`` -> exit code, standard output, standard error."""
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        code = main(list(args))
        return Outcome(code, *capsys.readouterr())

    return run
