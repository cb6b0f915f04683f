"""Links between pages lead to files and headings that exist, on GitHub as on the site."""

import re
from pathlib import Path

import pytest

from tests import pages

LINK = re.compile(r"(?<!\\)\[(?:[^\]\[]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?\)")
CODE = re.compile(r"^(```+).*?^\1$|(`+)(?!`).+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL)


def find_links(text: str) -> list[str]:
    """The addresses of all links and pictures outside of code."""
    return LINK.findall(CODE.sub("code", text))


def build_anchors(text: str) -> set[str]:
    """GitHub's names of the headings of a page."""
    found: dict[str, int] = {}
    anchors = set()
    outside = re.sub(r"^(```+).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} (.+?)\s*$", outside, re.MULTILINE):
        plain = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = found[slug] = found.get(slug, -1) + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


def find_broken(page: Path, text: str) -> list[str]:
    """Links of a page to files or headings that are not there; none leaves the repository."""
    broken = []
    for link in find_links(text):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        inside = target.is_relative_to(pages.ROOT) and target.exists()
        if inside and anchor and target.suffix == ".md":
            there = text if target == page else target.read_text(encoding="utf-8")
            inside = anchor in build_anchors(there)
        if not inside:
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", pages.list_pages(), ids=lambda p: str(p.relative_to(pages.ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert find_broken(page, page.read_text(encoding="utf-8")) == []


def test_a_broken_link_is_noticed() -> None:
    page = pages.ROOT / "docs" / "choose.md"
    text = "# A b\n[1](#a-b) [2](#a-c) [3](lab.md) [4](lib.md) [5](lab.md#budgets) ![6](no.png)"
    text += " `[7](x)` [8](../../x)\n```\n[9](x)\n```\n"
    assert find_broken(page, text) == ["#a-c", "lib.md", "lab.md#budgets", "no.png", "../../x"]
    assert build_anchors("## A\n## A\n```\n# no\n```\n## `x`: [y](z), 2.5") == {
        "a",
        "a-1",
        "x-y-25",
    }
