"""A comparison as Markdown and in the terminal."""

import io
import math
from typing import Any

import pytest

from tests.plots.lab_document import comparison
from whorl.lab.compare._view import MISSING
from whorl.lab.compare.tables import build_terminal_tables, render_markdown


def table(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_markdown_says_where_and_what_then_rows_by_length() -> None:
    text = render_markdown(comparison())
    where, what, *_ = text.split("\n\n")
    assert where == (
        "Some CPU, 2 cores, 2026-11-16; whorl 0.1.0, torch 2.13.0+cpu, Python 3.11.2."
        " Command: `whorl compare`."
    )
    assert what == (
        "Python 3.11.2 standard library: loss in nats per byte by evaluation length; 3 layers,"
        " width 96, trained for 350 steps at 128 bytes, 1 seed."
    )
    heads, rule, *rows = table(text)
    assert heads == ["encoding", "64", "128 (trained)", "256", "512", "1024", "2048", "tokens/s"]
    assert rule == ["---"] + ["---:"] * 7
    assert [row[0] for row in rows][:3] == ["alibi", "kerple", "xpos"]
    best = ["**2.04**", "**2.05**", "**2.06**", "**2.08**"]
    assert rows[0] == ["alibi", "2.12", "2.02", *best, "13,600"]
    assert next(row for row in rows if row[0] == "rope+yarn")[-1] == "\u2013"
    assert "Not finished: deberta (the time of --minutes 8 was over)." in text
    assert text.endswith("windows only.\n")


def test_markdown_shows_words_of_users_as_they_are() -> None:
    document = comparison(2)
    document["rows"][0]["name"] = "a|b\n<script>"
    text = render_markdown(document)
    assert "| a\\|b &lt;script> |" in text
    assert "<script>" not in text


def test_markdown_of_accuracy_marks_the_most() -> None:
    heads, _, *rows = table(render_markdown(comparison(measure="accuracy")))
    assert rows[0][heads.index("2048")] == "**63.1%**"
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


def test_terminal_shows_the_table_the_summary_and_the_claims() -> None:
    text = rendered(comparison())
    assert text.index("alibi ") < text.index("kerple ") < text.index("learned ")
    for words in (
        "tokens/s",
        "15,700",
        "128*",
        "rope+yarn",
        "2.51",
        "Published claims",
        "not reproduced",
    ):
        assert words in text
    assert "Loss by position, in windows of 2048 bytes" in text
    assert "1024-2047" in text
    assert "params" in text
    assert "381,600" in text
    for width in (80, 100):  # each caveat in the line of its outcome
        text = rendered(comparison(), width)
        assert text.count("reproduced (1 seed, 3 layers)") == 2
        assert text.count("inconclusive (1 seed, 3 layers)") == 1
    assert "hold (a rise of at most 0.1" in " ".join(text.split())
    assert "Not finished: deberta" in text


def test_terminal_fits_80_columns_and_takes_no_markup() -> None:
    document = comparison()
    document["rows"][0]["name"] = "[red]x[/]"
    document["rows"][1]["by_length"]["512"]["mean"] = math.inf
    text = rendered(document, 80)
    assert "[red]x[/]" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\n sinusoidal " in text
    assert " tokens/s " in text
    assert "\u2026" not in text


def test_terminal_of_nothing() -> None:
    document = {**comparison(), "rows": [], "claims": [], "notes": [], "unfinished": []}
    text = rendered(document)
    assert "No run has finished" in text
    assert "params" not in text
