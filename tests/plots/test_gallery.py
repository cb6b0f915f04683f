"""The gallery shows every chart, and pictures of the pages are small."""

import re
from pathlib import Path

import pytest

from whorl.plots import catalogue

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery.md"


@pytest.mark.parametrize("name", catalogue.CHARTS)
def test_every_chart_is_in_the_gallery(name: str) -> None:
    text = GALLERY.read_text(encoding="utf-8")
    assert f"\n## {name}\n" in text, "run scripts/gallery"
    assert f"](gallery/{name}.png)" in text
    assert f"whorl plot {name} " in text
    assert (GALLERY.parent / "gallery" / f"{name}.png").stat().st_size < 60_000


def test_the_gallery_has_no_others() -> None:
    files = {file.stem for file in (GALLERY.parent / "gallery").iterdir()}
    assert files == set(catalogue.CHARTS)
    heads = re.findall(r"^## (.+)$", GALLERY.read_text(encoding="utf-8"), re.MULTILINE)
    assert heads == list(catalogue.CHARTS)


def test_pictures_of_the_readme_are_there_and_small() -> None:
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert "docs/gallery/scalings.png" in pictures
    assert len(pictures) >= 3
    sizes = {picture: (ROOT / picture).stat().st_size for picture in pictures}
    assert max(sizes.values()) < 150_000, "run scripts/shrink on the large ones"
