"""Pages of the documentation in messages: an address, or where the page is to be found."""

import re
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest

from whorl._support.documentation import build_page_address

SOURCES = Path(__file__).parents[2] / "src" / "whorl"


def installed(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    message = Message()
    for url in urls:
        message["Project-URL"] = url
    monkeypatch.setattr(metadata, "metadata", lambda name: message)


def test_the_address_of_the_package_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "Source, https://a.org/b", "Documentation, https://a.org/b/blob/main/")
    assert build_page_address("docs/x.md#y") == "https://a.org/b/blob/main/docs/x.md#y"


def test_without_an_address_it_says_where_the_page_is(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "Source, https://a.org/b")
    assert build_page_address("docs/x.md") == "docs/x.md in whorl's source"

    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", missing)
    assert build_page_address("docs/x.md") == "docs/x.md in whorl's source"


def test_no_message_has_a_bare_path() -> None:
    """In strings that are no docstrings, docs/*.md goes through the function or says where."""
    bare = []
    for file in SOURCES.rglob("*.py"):
        code = re.sub(r'"""(?:.|\n)*?"""|#.*', "", file.read_text(encoding="utf-8"))
        for match in re.finditer(r"docs/[\w/-]+\.md(?! in whorl's source)", code):
            line = code[code.rfind("\n", 0, match.start()) + 1 : code.find("\n", match.end())]
            if "build_page_address(" not in line and "PAGE =" not in line:
                bare.append(f"{file.name}: {line.strip()}")
    assert bare == []
