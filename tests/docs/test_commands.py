"""What the start pages show of a terminal is what the commands print."""

import os
import shlex
from pathlib import Path

import pytest

from tests import pages
from tests.pages import Command

#: The pages whose ```console blocks are run; others show long ones that train.
STARTS = [
    *(f"docs/{name}.md" for name in ("choose", "extend-a-model", "debug-a-port", "build-your-own")),
]
STARTS += [start.replace("docs/", "docs/zh/") for start in STARTS]


def run_command(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command of whorl prints in a terminal of 80 columns."""
    testing = pytest.importorskip("typer.testing")
    from whorl.cli.app import app

    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    program, *arguments = shlex.split(command)
    assert program == "whorl"
    result = testing.CliRunner().invoke(app, arguments, catch_exceptions=False)
    return str(result.output)


@pytest.mark.slow
@pytest.mark.parametrize("page", STARTS)
def test_commands_print_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    for name, content in pages.find_files(text).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for command in pages.find_commands(text):
        printed = run_command(command.text, tmp_path, monkeypatch)
        assert pages.matches(command.output, printed), f"{command.text} prints\n{printed}"


def test_the_start_pages_have_commands() -> None:
    texts = [(pages.ROOT / page).read_text(encoding="utf-8") for page in STARTS]
    assert sum(len(pages.find_commands(text)) for text in texts) >= 8
    assert os.path.basename(STARTS[0]) == "choose.md"


def test_other_output_is_noticed() -> None:
    shown = Command("whorl x", "one\n...\nthree\n")
    assert pages.matches(shown.output, "one\n2\n2\nthree  \n")
    assert pages.matches(shown.output, "one\nthree\n")
    assert not pages.matches(shown.output, "one\n2\nfour\n")
    assert not pages.matches(shown.output, "zero\none\nthree\n")
    text = (
        "<!-- file: a.py -->\n```python\nx = 1\n```\n\n```console\n$ whorl x\none\n$ whorl y\n```\n"
    )
    assert pages.find_files(text) == {"a.py": "x = 1\n"}
    assert pages.find_commands(text) == [Command("whorl x", "one\n"), Command("whorl y", "")]
