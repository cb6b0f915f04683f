"""The README is short, its numbers were measured, and pages in Chinese say the same."""

import re
from pathlib import Path

import pytest

from tests import pages
from whorl.bench import Report
from whorl.bench.rotation.report import render_readme_parts
from whorl.lab.compare import load_comparison
from whorl.lab.compare.tables import render_verdict
from whorl.lab.experiments import load_result
from whorl.lab.experiments.tables import render_brief
from whorl.plots import catalogue

README = (pages.ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = pages.ROOT / "benchmarks"


def read_page(name: str) -> str:
    """The text of a page."""
    return (pages.ROOT / name).read_text(encoding="utf-8")


def read_marked(text: str, name: str) -> str:
    """What stands between the comments of a generated part."""
    return text.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0].strip()


def find_row(start: str) -> str:
    """The row of the table of claims that begins so."""
    (row,) = re.findall(rf"^\| {start}.*$", README, re.MULTILINE)
    return str(row)


def test_it_is_short_and_shows_the_commands_first() -> None:
    lines = README.splitlines()
    assert len(lines) <= 160
    top = "\n".join(lines[:40])
    for needed in ("scripts/whorl compare", "scripts/test", "git clone", "GPU", "![", ">>> "):
        assert needed in top, needed
    assert top.index("![") < top.index("git clone")


def test_the_tables_of_rotation_are_those_of_the_report() -> None:
    report = Report.load(str(BENCHMARKS / "2026-11-16-amd-epyc.json"))
    parts = render_readme_parts(report)
    assert read_marked(README, "bench:headline") == parts["headline"], "run scripts/readme-tables"
    table = read_page("benchmarks/README.md")
    for name in ("speed", "halves", "accuracy", "losses"):
        assert read_marked(table, f"bench:{name}") == parts[name], name
    row = find_row("Rotating is limited")
    for figure in re.findall(r"(\d[\d.]*) (?:of the time|times faster)", parts["headline"]):
        assert f"{figure} " in row, figure


def test_the_verdict_is_that_of_the_comparison() -> None:
    quick = load_comparison(BENCHMARKS / "2026-11-18-amd-epyc-compare.json")
    assert read_marked(README, "lab") == render_verdict(quick).strip(), "run scripts/readme-lab"


def test_claims_have_the_numbers_of_their_pages() -> None:
    models = read_page("docs/hf.md")
    row = find_row("Faster models")
    for model in ("T5 encoder", "BLOOM", "MPT", "DeBERTa v3"):
        figure = f"{float(find_ratio(models, model)):.1f}"
        assert f"{figure} (" in row, (model, figure)
    (memory,) = re.findall(
        r"^\| BLOOM, 1 x 8192 \| ([\d,]+ MB) \| ([\d,]+ MB)", models, re.MULTILINE
    )
    assert f"{memory[1]} instead of {memory[0]}" in find_row("Less memory")
    (alibi,) = re.findall(
        r"^\| whorl ALiBi \| (\d\..*) \|$", read_page("docs/attention.md"), re.MULTILINE
    )
    columns = alibi.split(" | ")
    assert f"{columns[3]} of the time without a bias at 4096 tokens, {columns[5]} at" in README
    (yarn,) = re.findall(
        r"- yarn minus none: -([\d.]+ ± [\d.]+) \(lower\)", read_page("docs/extend.md")
    )
    assert f"by {yarn} nats" in find_row("Extending works")
    (types,) = re.findall(r"\*\*(\d+ of \d+)\*\* model types", read_page("docs/configs.md"))
    assert f"{types} model types" in README
    assert f"[{len(catalogue.CHARTS)} charts]" in README


def read_rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables in a text, by each of the names in their first cell."""
    found: dict[str, list[str]] = {}
    for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE):
        first, *cells = row.split(" | ")
        found |= dict.fromkeys(first.split(", "), cells)
    return found


def test_longer_contexts_have_the_numbers_of_their_page() -> None:
    ours = read_rows(README.split("## Longer contexts")[1].split("![")[0])
    page = read_page("docs/extend.md").split("### Measured on a trained model")[1]
    novel, plays = (part.split("\n\n")[0] for part in page.split("**\n\n")[1:3])
    methods = [name for name in ours if name not in ("loss at", "---")]
    assert len(methods) == 8
    for method in methods:
        losses = read_rows(novel)[method][:3] + read_rows(plays)[method][:3]
        assert [float(cell) for cell in ours[method][:6]] == [
            pytest.approx(float(loss), abs=0.0051) for loss in losses
        ], method


def test_fine_tuning_has_the_numbers_of_its_page() -> None:
    ours = read_rows(README.split("A short training")[1].split("![")[0])
    page = read_page("docs/finetune.md")
    for method in ("none", "linear", "yarn"):
        row = rf"^\| {method}, (1024|PoSE at 256) \|.* \| ([^|]+) \|$"
        figures = dict(re.findall(row, page, re.MULTILINE))
        trained, pose = (cell.strip() for cell in ours[method][2:])
        assert (trained, pose) == (figures["1024"], figures.get("PoSE at 256", "")), method


def test_precision_has_the_numbers_of_its_table() -> None:
    rows = read_rows(read_marked(read_page("benchmarks/README.md"), "bench:accuracy"))
    (row,) = re.findall(r"^\| Exact \|.*$", README, re.MULTILINE)
    far, farthest = (float(rows["whorl float32"][n]) for n in (-3, -1))
    assert f"{float(rows['whorl'][-1]):.0e}".replace("e-0", "e-") in row
    assert f"{far:.0e} at 131k and {farthest:.1f} at 16.8M".replace("e-0", "e-") in row


def find_ratio(text: str, model: str) -> str:
    """How many times as long transformers takes for 1024 tokens at once."""
    return re.findall(rf"^\| {model}, 1 x 1024 \|.*\| ([\d.]+) \|$", text, re.MULTILINE)[0]


#: Chinese pages, each with the English page that it must keep up with.
PAIRS = [("README.md", "README.zh.md")] + [
    (f"docs/{path.name}", f"docs/zh/{path.name}")
    for path in sorted((pages.ROOT / "docs" / "zh").glob("*.md"))
]


def list_numbers(text: str) -> list[str]:
    """The numbers of a page, sorted: sentences in Chinese may have another order."""
    prose = re.sub(r"\]\([^)]*\)", "]", text)
    return sorted(re.findall(r"\d[\d,.]*\d|\d", prose))


def list_examples(text: str) -> list[str]:
    """The code of a page without comments, which are translated."""
    blocks = [body for _, _, body in pages.FENCE.findall(text)]
    return [re.sub(r" *#.*", "", block) for block in blocks]


def list_targets(page: str, text: str) -> list[Path]:
    """The pages and pictures that a page leads to, in English where there are both."""
    found = []
    for link in re.findall(r"\]\(([^)#]+)", text):
        if not link.startswith("http"):
            path = ((pages.ROOT / page).parent / link).resolve().relative_to(pages.ROOT)
            names = {Path(chinese): Path(english) for english, chinese in PAIRS}
            found.append(names.get(path, path))
    return sorted(found)


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_the_chinese_page_keeps_up(english: str, chinese: str) -> None:
    first, second = read_page(english), read_page(chinese)
    outline = [
        re.findall(r"^(#+) ", pages.FENCE.sub("", text), re.MULTILINE) for text in (first, second)
    ]
    assert outline[0] == outline[1]
    assert list_examples(first) == list_examples(second)
    assert list_numbers(first) == list_numbers(second)
    targets = list_targets(english, first), list_targets(chinese, second)
    assert targets[0] == targets[1]
    for shape in (r"^\|", r"^!\[", r"^- "):  # rows of tables, pictures, points of lists
        found = [len(re.findall(shape, text, re.MULTILINE)) for text in (first, second)]
        assert found[0] == found[1], shape


def test_a_page_that_lags_behind_is_noticed() -> None:
    assert list_numbers("1,024 tokens [x](y2.md), 2.5 times") == ["1,024", "2.5"]
    assert list_examples("```python\n>>> f(1)  # one\n1\n```\n") == [">>> f(1)\n1\n"]
    assert list_targets("docs/zh/choose.md", "[a](../lab.md#x) [b](extend-a-model.md)") == [
        *(Path("docs/extend-a-model.md"), Path("docs/lab.md")),
    ]


def test_results_of_experiments_are_those_of_the_files() -> None:
    page = read_page("docs/experiment-results.md")
    stems = re.findall(r"<!-- result: (\S+) -->", page)
    assert stems
    for stem in stems:
        wanted = render_brief(load_result(BENCHMARKS / f"{stem}.json"))
        assert f"<!-- result: {stem} -->\n\n{wanted}\n![" in page, "run scripts/experiment-tables"
