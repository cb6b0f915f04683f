"""What docs/site puts into the pages: contents, reference, search. scripts/docs builds the rest."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import whorl
from tests import pages

SITE = pages.ROOT / "docs" / "site"
API = pages.ROOT / "docs" / "api"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of docs/site can be imported, and are gone after the test."""
    monkeypatch.syspath_prepend(str(SITE))
    yield
    for path in SITE.glob("*.py"):
        sys.modules.pop(path.stem, None)


def name_of(page: Path) -> str:
    """A page as the table of contents names it."""
    return page.relative_to(pages.ROOT).with_suffix("").as_posix()


@pytest.mark.usefixtures("site")
def test_every_page_is_in_the_contents_once() -> None:
    import navigation

    listed = [page for section in navigation.CONTENTS.values() for page in section]
    below = tuple(navigation.BELOW.values())
    names = {name_of(page) for page in pages.list_pages()} - {navigation.FRONT}
    assert len(listed) == len(set(listed))
    assert set(listed) == {n for n in names if n in navigation.BELOW or not n.startswith(below)}
    shown = navigation.render_contents("docs/api/README", names)
    assert "/docs/api/encodings\n" in shown
    assert "/docs/api/README\n" not in shown


@pytest.mark.usefixtures("site")
def test_the_reference_has_every_public_name() -> None:
    import reference

    text = "\n".join(path.read_text(encoding="utf-8") for path in API.glob("*.md"))
    marks = reference.MARK.findall(text)
    listed = {(home, name) for home, names in marks for name in reference.find_names(home, names)}
    assert len(listed) > 250
    shown = {name for _, name in listed}
    modules = {n for n in whorl.__all__ if isinstance(getattr(whorl, n), ModuleType)}
    missing = {*whorl.__all__} - shown - modules - {"__version__"}
    assert missing == set()
    assert modules <= {home.split(".")[1] for home, _ in marks if "." in home} | {"info"}


@pytest.mark.usefixtures("site")
def test_marks_become_directives() -> None:
    import reference

    page = reference.expand_marks("# A\n\n<!-- api: whorl RoPE make -->\n")
    assert ".. autoclass:: whorl.RoPE\n   :members:" in page
    assert ".. autofunction:: whorl.make\n```" in page
    assert reference.render_directive("whorl", "Layout") == ".. autodata:: whorl.Layout\n"


@pytest.mark.usefixtures("site")
def test_docstrings_mean_what_they_say() -> None:
    """Stars and bars stay what they are; sections, examples and drawings keep their form."""
    import reference

    text = "|i - j| * ``a`` to ``b``s\n\nArgs:\n    a, b: one\n        two_"
    text += "\n\n>>> 2**3\n8\n\nSee\n    x  y\nend"
    assert "\n".join(reference.convert_docstring(text.split("\n"))) == (
        "\\|i - j\\| \\* ``a`` to ``b``\\ s\n\n**Args:**\n\n\n``a, b``\n    one\n    two\\_"
        "\n\n>>> 2**3\n8\n\nSee\n\n::\n\n    x  y\n\nend"
    )


def test_pages_load_nothing_from_elsewhere() -> None:
    for path in [*SITE.rglob("*.css"), *SITE.rglob("*.html")]:
        assert not re.search(r"https?://|@import|//cdn", path.read_text(encoding="utf-8")), path
