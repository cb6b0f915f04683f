"""The gallery shows every chart, and pictures of the pages are small."""

import ast
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


def read_line(name: str) -> tuple[str, dict[str, str]]:
    """The name and the options in the line of Python that the gallery has for a chart."""
    part = GALLERY.read_text(encoding="utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]
    (line,) = re.findall(r"^```python\n(.+)\n```$", part, re.MULTILINE)
    tree = ast.parse(line)
    (assign,) = tree.body
    assert isinstance(assign, ast.Assign)
    assert isinstance(assign.value, ast.Call)
    assert ast.unparse(assign.value.func) == "whorl.plots.catalogue.chart"
    (first,) = map(ast.literal_eval, assign.value.args)
    options = {str(each.arg): ast.literal_eval(each.value) for each in assign.value.keywords}
    (command,) = re.findall(r"^(whorl plot .+)$", part, re.MULTILINE)
    words = " ".join(f"--{key} {value}" for key, value in options.items())
    assert command.split() == f"whorl plot {first} {words} --out {first}.png".split()
    return first, options


#: Charts of a run need one; other tests draw them.
OF_RUNS = ("attention", "stream", "trained-frequencies", "gradient-norms")


@pytest.mark.parametrize("name", catalogue.CHARTS)
def test_the_line_of_python_is_the_command(name: str) -> None:
    first, options = read_line(name)
    assert first == name
    assert set(options) <= set(catalogue.entry(name).options)
    assert ("run" in options) == (name in OF_RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in catalogue.CHARTS if name not in OF_RUNS])
def test_the_line_of_python_draws_it(name: str) -> None:
    pytest.importorskip("altair")
    first, options = read_line(name)
    assert catalogue.chart(first, **options).to_dict()["title"]["text"]
