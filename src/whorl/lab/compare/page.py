"""A comparison as a single HTML file, which loads no script, font or image.

``html`` has what it shares with other reports. All names and paths are escaped; only http and https
addresses become links.
"""

import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from whorl import plots

from ._page_table import render_results
from ._view import ComparisonView
from .html import (
    escape_text,
    render_command,
    render_document,
    render_figure,
    render_notes,
    replace_invalid_text,
)
from .tables import describe_last_tenth, group_claims
from .verdict import write_verdict

__all__ = ["render_page"]


def render_page(comparison: Mapping[str, Any]) -> str:
    """The report of a comparison as HTML; its charts need altair and vl-convert."""
    comparison = replace_invalid_text(comparison)
    view = ComparisonView(comparison)
    rows = comparison["rows"]
    count = view.count_rows()
    span = f"trained at {view.trained_length}, read up to {view.longest} {view.unit}"
    date = comparison["environment"]["date"]
    parts = [
        "<h1>How far do position encodings carry?</h1>",
        f'<p class="quiet">{escape_text(f"{count}, {span}; whorl compare, {date}")}</p>',
        f'<p class="lead">{escape_text(write_verdict(view))}</p>',
        *(_render_results(view) if rows else ()),
        _render_claims(view),
        *(_render_details(view) if rows else ()),
        _render_limits(view),
        _render_settings(comparison),
        render_command(comparison),
        render_notes(comparison),
    ]
    return render_document(f"whorl compare: {count}, {span}", parts)


def _render_results(view: ComparisonView) -> list[str]:
    """Charts by length and by step beside each other, the table, and the costs."""
    comparison = view.comparison
    charts = [
        _render_line_chart("lengths", plots.lab_lengths, comparison, "lines by evaluation length")
    ]
    if any(row.get("curve") for row in comparison["rows"]):
        words = "lines by step of training"
        charts.append(_render_line_chart("training", plots.lab_training, comparison, words))
    what = "Accuracy" if view.is_accuracy else f"Loss in {view.loss_unit} (lower is better)"
    several = len(view.settings["seeds"]) > 1
    interval = ", \u00b1 half the interval over the seeds" if several else ""
    return [
        f'<div class="pair">{"".join(charts)}</div>',
        "<h2>Results</h2>",
        f'<p class="quiet">{escape_text(what)}{interval}. Best of a column in bold; shade grows'
        f" with the distance from the best of the table. {describe_last_tenth()} Click a"
        " column heading to sort.</p>",
        render_results(view),
        render_figure({"costs": plots.lab_costs(comparison)}, "dots and bars by encoding"),
    ]


def _render_details(view: ComparisonView) -> list[str]:
    """Losses by position, and differences between seeds."""
    comparison = view.comparison
    found = []
    if any(row.get("by_position") for row in comparison["rows"]):
        found.append(
            _render_line_chart(
                "positions", plots.lab_positions, comparison, "lines by position", width="page"
            )
        )
    found += _render_differences(view)
    return ["<h2>In detail</h2>", *found] if found else []


def _render_differences(view: ComparisonView) -> list[str]:
    """The table of differences paired by seed; nothing if there is one seed."""
    found = view.list_differences()
    if found is None:
        return []
    title, heads, body = found
    cells = ["".join(f"<td>{escape_text(text)}</td>" for text in row[1:]) for row in body]
    lines = [
        f'<tr><th scope="row">{escape_text(row[0])}</th>{line}</tr>'
        for row, line in zip(body, cells, strict=True)
    ]
    tops = "".join(f"<th>{escape_text(head)}</th>" for head in heads)
    return [
        f"<details><summary>{escape_text(title)}</summary>"
        f'<div class="scroll"><table><thead><tr>{tops}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    ]


def _render_line_chart(
    name: str,
    draw: Callable[..., Any],
    comparison: Mapping[str, Any],
    words: str,
    width: str = "column",
) -> str:
    """A line chart in two widths; the narrow one is for phones."""
    wide, narrow = (draw(comparison, width=one) for one in (width, "phone"))
    return render_figure({f"{name} wide": wide, f"{name} narrow": narrow}, words)


def _render_claims(view: ComparisonView) -> str:
    groups = group_claims(view.comparison)
    if not groups:
        return ""
    found = ["<h2>Published claims, tested here</h2>"]
    for heading, claims in groups:
        items = "".join(_render_claim(view, claim) for claim in claims)
        found.append(f'<h3>{heading}</h3><ul class="claims">{items}</ul>')
    return "\n".join(found)


def _render_claim(view: ComparisonView, claim: Mapping[str, Any]) -> str:
    name = str(claim["outcome"]).replace(" ", "-")
    published = _render_link(claim["published"], claim.get("url"))
    return (
        f'<li><p class="outcome {escape(name)}">{escape_text(view.describe_outcome(claim))}</p>'
        f"<div><p><strong>{escape_text(claim['claim'])}</strong></p>"
        f"<p>Here: {escape_text(claim['evidence'])}</p>"
        f'<p class="quiet">Published: {published}</p></div></li>'
    )


def _render_limits(view: ComparisonView) -> str:
    settings = view.settings
    sizes = [row["parameters"] for row in view.comparison["rows"] if row.get("parameters")]
    size = f", {max(sizes):,} parameters at most" if sizes else ""
    seen = settings["steps"] * settings["batch"] * settings["length"]
    return (
        "<h2>What this size can show</h2>"
        f"<p>A model of {view.shape}{size}, trained on {seen:,} {escape_text(view.unit)}, answers"
        " two questions. How fast does an encoding learn: compare steps to the same loss, at this"
        " size and with learning rates that were tuned for each encoding. How well does it do when"
        " it has learned: compare what was the same with a third of the steps; what was not may"
        " change with more steps.</p>"
        "<p>What becomes of an encoding at lengths that it was not trained on depends on its"
        " formula more than on the size of the model. A low loss far out may still come from near"
        " text only, and nothing here tests recall over long distances unless the task does."
        " Differences within the trained length are small, and a large model may order them in"
        " another way.</p>"
    )


def _render_settings(comparison: Mapping[str, Any]) -> str:
    settings = comparison["settings"]
    corpus = comparison.get("corpus") or {}
    entries = {
        "task": settings["task"],
        "model": f"{settings['kind']}, {settings['attention']} attention",
        "shape": f"{ComparisonView(comparison).shape}, heads {settings['heads']}",
        "training": f"{settings['steps']} steps of {settings['batch']} x {settings['length']}",
        "seeds": ", ".join(map(str, settings["seeds"])),
        "evaluation": f"{settings['windows']} windows at each length",
        "precision": settings.get("precision"),
        "corpus": corpus.get("title"),
    }
    if corpus.get("tokens"):
        entries["corpus size"] = (
            f"{corpus['tokens']:,} {corpus['unit']} in {corpus['files']:,} files,"
            f" {corpus['held_out_files']:,} held out"
        )
    items = "".join(
        f"<div><dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd></div>"
        for name, value in entries.items()
        if value
    )
    return f"<h2>Settings</h2><dl>{items}</dl>"


def _render_link(words: object, url: object) -> str:
    if isinstance(url, str) and re.match(r"https?://", url):
        return f'<a href="{escape(url)}" rel="noreferrer">{escape_text(words)}</a>'
    return escape_text(words)
