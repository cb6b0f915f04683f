"""The page of corrections: every entry is short, listed in the contents, and runs by itself."""

import doctest
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "corrections.md").read_text(encoding="utf-8")
OPENING, *PARTS = PAGE.split("\n## ")
ENTRIES = {part.partition("\n")[0]: part for part in PARTS}


def run(text: str, names: dict[str, object]) -> doctest.TestResults:
    """Run the examples of a text; what they define stays in ``names``."""
    found = doctest.DocTestParser().get_doctest(text, {}, "corrections", None, 0)
    found.globs = names
    return doctest.DocTestRunner(verbose=False).run(found, clear_globs=False)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_short_and_runs_after_the_first_lines_alone(name: str) -> None:
    assert sum(bool(line) for line in ENTRIES[name].splitlines()) < 15
    names: dict[str, object] = {}
    assert run(OPENING, names).failed == 0
    result = run(ENTRIES[name], names)
    assert result.attempted >= 2
    assert result.failed == 0


def test_an_entry_that_is_wrong_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(">>> 1 + 1\n3\n", {}).failed == 1
    assert "Expected" in capsys.readouterr().out


def test_the_contents_list_every_entry() -> None:
    listed = re.findall(r"^\[(.+?)\]\(#(.+?)\)", OPENING, re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", name).lower().replace(" ", "-") for name in ENTRIES]
    assert listed == list(zip(ENTRIES, anchors, strict=True))
