"""A comparison as Markdown and in the terminal."""

import io
import math
from typing import Any

import pytest

from tests.plots.lab_document import comparison
from whorl.lab.compare._view import MISSING, ComparisonView
from whorl.lab.compare.tables import build_terminal_tables, render_markdown
from whorl.lab.compare.verdict import write_verdict


def table(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_markdown_begins_with_the_verdict_and_ends_with_the_machine() -> None:
    text = render_markdown(comparison(), claims=True)
    verdict, what, first, *_, where = text.strip().split("\n\n")
    assert verdict == write_verdict(ComparisonView(comparison()))
    assert what == (
        "Python 3.11.2 standard library: loss in nats per byte by evaluation length; 3 layers,"
        " width 96, trained for 350 steps at 128 bytes, 1 seed. Last tenth: how much the last"
        " tenth of the steps changed the validation loss, computed from this run and the one with"
        " a third of the steps."
    )
    assert where == (
        "Some CPU, 2 cores, 2026-11-16; whorl 0.1.0, torch 2.13.0+cpu, Python 3.11.2."
        " Command: `whorl compare`."
    )
    heads, rule, *rows = table(first)
    assert heads == [
        *("encoding", "64", "128 (trained)", "256", "512", "1024", "2048", "last tenth"),
        "tokens/s",
    ]
    assert rule == ["---"] + ["---:"] * 8
    assert [row[0] for row in rows][:3] == ["alibi", "kerple", "xpos"]
    best = ["**2.04**", "**2.05**", "**2.06**", "**2.08**"]
    assert rows[0] == ["alibi", "2.12", "2.02", *best, "-0.3 %", "13,600"]
    assert next(row for row in rows if row[0] == "rope+yarn")[-1] == "\u2013"
    assert "Not finished: deberta (the time of --minutes 8 was over)." in text


def test_the_heading_says_how_many_curves_are_flat() -> None:
    document = comparison()
    for row in document["rows"]:
        row["last_tenth"] = 0.004 if row["name"] == "rope" else 0.02
    assert "when it has learned (1 of 8 curves is flat)." in render_markdown(document, claims=True)


def test_rows_with_the_numbers_of_another_one_are_shown_once() -> None:
    """On text mrope is rope, and so is mrope with a scaling."""
    document = comparison()
    assert ComparisonView(document).count_rows() == "8 encodings and 1 scaling"
    scaled = next(row for row in document["rows"] if row["name"] == "rope+yarn")
    rope = next(row for row in document["rows"] if row["name"] == "rope")
    document["rows"] += [
        {**rope, "name": "mrope", "trained_as": "mrope"},
        {**scaled, "name": "mrope+yarn", "trained_as": "mrope"},
    ]
    text = render_markdown(document)
    names = [row[0] for row in table(text)[2:]]
    assert {"rope", "mrope", "rope+yarn"} <= {*names}
    assert "mrope+yarn" not in names
    assert "Not shown: mrope+yarn, because another encoding has the same numbers" in text
    document["rows"][-1] = {**scaled, "name": "mrope+ntk", "scaling": "ntk", "trained_as": "mrope"}
    assert "mrope+ntk" in [row[0] for row in table(render_markdown(document))]


def test_markdown_groups_claims_by_the_question_that_they_answer() -> None:
    text = render_markdown(comparison(), claims=True)
    speed = text.index("Published claims: how fast it learns.")
    learned = text.index(
        "Published claims: how well it does when it has learned (8 of 8 curves are flat)."
    )
    table_end = text.index("| rope |")
    notes = text.index("Not finished")
    places = [table_end, speed, text.index("| RoPE needs fewer"), learned]
    places += [text.index("| Learned positions break"), text.index("| T5's bias rises"), notes]
    assert places == sorted(places)
    document = comparison()
    document["claims"] = [one for one in document["claims"] if one["kind"] == "learned"]
    assert "how fast it learns" not in render_markdown(document, claims=True)
    assert "Published claims" not in render_markdown(document)


@pytest.mark.parametrize(
    ("last_tenth", "words"),
    [
        (0.0041, "-0.4 %"),
        (-0.0041, "+0.4 %"),
        (0.0001, "+0.0 %"),
        (None, MISSING),
        (math.nan, MISSING),
    ],
)
def test_the_last_tenth(last_tenth: float | None, words: str) -> None:
    document = comparison(1)
    document["rows"][0]["last_tenth"] = last_tenth
    heads, _, row = table(render_markdown(document))
    assert row[heads.index("last tenth")] == words


def test_markdown_shows_words_of_users_as_they_are() -> None:
    document = comparison(2)
    document["rows"][0]["name"] = "a|b\n<script>"
    text = render_markdown(document)
    assert "| a\\|b &lt;script> |" in text
    assert "<script>" not in text


def test_markdown_of_accuracy_marks_the_most() -> None:
    heads, _, *rows = table(render_markdown(comparison(measure="accuracy")))
    assert rows[0][heads.index("2048")] == "**63.1 %**"
    assert "passkey: accuracy by evaluation length" in render_markdown(
        comparison(measure="accuracy")
    )


def test_differences_are_paired_by_seed() -> None:
    document = comparison(2, seeds=3)
    assert "paired by seed" not in render_markdown(document)
    cell = {"mean": -0.25, "low": -0.5, "high": 0.0}
    by_length: dict[str, Any] = {str(n): dict(cell) for n in document["settings"]["lengths"]}
    by_length["64"]["mean"] = None
    document["rows"][1]["against"] = {"name": "rope", "by_length": by_length}
    text = render_markdown(document)
    assert "Difference to rope, paired by seed: mean and 95 % interval over 3 seeds:" in text
    last = [line for line in text.splitlines() if line.startswith("|")][-1]
    assert [cell.strip() for cell in last.strip("|").split("|")][1:3] == [MISSING, "-0.25 ±0.25"]
    assert "paired by seed" in " ".join(rendered(document, 80).split())


def rendered(document: dict[str, Any], width: int = 100) -> str:
    console = pytest.importorskip("rich.console").Console(width=width, file=io.StringIO())
    for part in build_terminal_tables(document):
        console.print(part)
    return str(console.file.getvalue())


def test_terminal_shows_table_claims_and_the_rest_and_ends_with_the_verdict() -> None:
    text = " ".join(rendered(comparison()).split())
    wanted = [
        "Python 3.11.2 standard library: loss in nats per byte",
        "last tokens encoding",  # the second line of these heads is "tenth" and "per s"
        "alibi 2.12 2.02 2.04 2.05 2.06 2.08 -0.3 % 13,600",
        "kerple 2.14",
        "learned 2.38",
        "* the trained length. Last tenth: how much the last tenth of the steps changed",
        "Published claims: how fast it learns",
        "not decidable (1 seed, 3 layers)",
        "Published claims: how well it does when it has learned",
        "Loss by position, of all tokens in windows of 2048 bytes",
        "Not finished: deberta",
        "Some CPU, 2 cores",
        "For texts longer than trained, choose alibi or kerple:",
        "(1 seed, 3 layers, width 96, 350 steps).",
    ]
    places = [text.index(words) for words in wanted]
    assert places == sorted(places)
    assert "1024-2047" in text
    assert "Press et al. 2021" in text
    assert "perplexity explodes" not in text  # in the page only
    for width in (80, 100):  # each caveat in the line of its outcome
        text = rendered(comparison(), width)
        assert text.count("reproduced (1 seed, 3 layers)") == 2
        for outcome in ("not decidable", "not yet"):
            assert text.count(f"{outcome} (1 seed, 3 layers)") == 1


def test_terminal_fits_80_columns_and_takes_no_markup() -> None:
    document = comparison()
    document["rows"][0]["name"] = "[red]x[/]"
    document["rows"][1]["by_length"]["512"]["mean"] = math.inf
    document["rows"][2]["name"] = "rope+alibi+dynamic"  # 18 letters
    text = rendered(add_other(document, "accuracy"), 80)
    assert "[red]x[/]" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\n sinusoidal " in text
    assert "\n rope+alibi+dynamic " in text
    assert " tokens \n" in text
    assert "-0.3 %" in text
    assert "\u2026" not in text


def add_other(document: dict[str, Any], measure: str) -> dict[str, Any]:
    """The document with another measure at every length, which differs from row to row."""
    for n, row in enumerate(document["rows"]):
        for length, cell in row["by_length"].items():
            cell[measure] = 0.5 + 0.01 * n if length == "128" else 0.0
    return document


def test_accuracy_stands_beside_the_loss() -> None:
    heads, _, *rows = table(render_markdown(add_other(comparison(), "accuracy")))
    assert heads[7:9] == ["accuracy at 128", "last tenth"]
    found = {row[0]: row[7] for row in rows}
    names = [row["name"] for row in comparison()["rows"]]
    assert [found[name] for name in names] == [f"{50 + n:.1f} %" for n in range(len(names))]
    document = add_other(comparison(2), "accuracy")
    document["rows"][1]["by_length"]["128"]["accuracy"] = None
    assert {row[7] for row in table(render_markdown(document))[2:]} == {"50.0 %", MISSING}
    text = rendered(add_other(comparison(), "accuracy"), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "\u2026" not in text
    assert "50.0 %" in text
    assert "accuracy" in text


def test_the_loss_stands_beside_accuracies() -> None:
    document = add_other(comparison(2, measure="accuracy"), "loss")
    heads, _, *rows = table(render_markdown(document))
    assert heads[7] == "loss at 128"
    assert sorted(row[7] for row in rows) == ["0.50", "0.51"]


def test_terminal_of_nothing() -> None:
    document = {**comparison(), "rows": [], "claims": [], "notes": [], "unfinished": []}
    text = rendered(document)
    assert "No run has finished" in text
    assert "last tenth" not in text
