"""A comparison as a single HTML file, which loads no script, font or image.

It contains every chart as SVG, in light and in dark colors, and shows those of the reader's color
scheme. A content security policy forbids the browser to load anything. All names and paths are
escaped; only http and https addresses become links.
"""

import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from whorl import plots

from ._page_style import SCRIPT, STYLE
from ._page_table import render_results
from ._view import ComparisonView
from .tables import format_headline

__all__ = ["render_page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def render_page(comparison: Mapping[str, Any]) -> str:
    """The report of a comparison as HTML; its charts need altair and vl-convert."""
    comparison = _replace_invalid_text(comparison)
    view = ComparisonView(comparison)
    rows = comparison["rows"]
    count = f"{len(rows)} position encoding{'' if len(rows) == 1 else 's'}"
    span = f"trained at {view.trained_length}, read up to {view.longest} {view.unit}"
    date = comparison["environment"]["date"]
    parts = [
        "<h1>How far do position encodings carry?</h1>",
        f'<p class="quiet">{_escape_text(f"{count}, {span}; whorl compare, {date}")}</p>',
        f'<p class="lead">{_escape_text(view.summarize())}</p>',
        *(_render_results(view) if rows else ()),
        _render_claims(comparison),
        _render_limits(view),
        _render_settings(comparison),
        _render_command(comparison),
        _render_notes(comparison),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{_escape_text(f'whorl compare: {count}, {span}')}</title>\n"
        f"<style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main><script>{SCRIPT}</script></body></html>\n"
    )


def _render_results(view: ComparisonView) -> list[str]:
    comparison = view.comparison
    what = "Accuracy" if view.is_accuracy else f"Loss in {view.loss_unit} (lower is better)"
    several = len(view.settings["seeds"]) > 1
    interval = ", \u00b1 half the interval over the seeds" if several else ""
    found = [
        "<h2>Results</h2>",
        _render_line_chart("lengths", plots.lab_lengths, comparison, "lines by evaluation length"),
        f'<p class="quiet">{_escape_text(what)}{interval}. Best of a column in bold; shade grows'
        " with the distance from the best of the table. Click a head to sort.</p>",
        render_results(view),
        *_render_differences(view),
        _render_figure({"costs": plots.lab_costs(comparison)}, "dots and bars by encoding"),
    ]
    if any(row.get("by_position") for row in comparison["rows"]):
        found.append(
            _render_line_chart("positions", plots.lab_positions, comparison, "lines by position")
        )
    if any(row.get("curve") for row in comparison["rows"]):
        chart = _render_line_chart(
            "training", plots.lab_training, comparison, "training loss by step"
        )
        found.append(f"<details><summary>Training curves</summary>{chart}</details>")
    return found


def _render_differences(view: ComparisonView) -> list[str]:
    """The table of differences paired by seed; nothing if there is one seed."""
    found = view.list_differences()
    if found is None:
        return []
    title, heads, body = found
    cells = ["".join(f"<td>{_escape_text(text)}</td>" for text in row[1:]) for row in body]
    lines = [
        f'<tr><th scope="row">{_escape_text(row[0])}</th>{line}</tr>'
        for row, line in zip(body, cells, strict=True)
    ]
    tops = "".join(f"<th>{_escape_text(head)}</th>" for head in heads)
    return [
        f"<details><summary>{_escape_text(title)}</summary>"
        f'<div class="scroll"><table><thead><tr>{tops}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    ]


def _render_line_chart(
    name: str, draw: Callable[..., Any], comparison: Mapping[str, Any], words: str
) -> str:
    """A line chart in two widths; the narrow one is for phones."""
    narrow = draw(comparison, narrow=True)
    return _render_figure({f"{name} wide": draw(comparison), f"{name} narrow": narrow}, words)


def _render_figure(charts: Mapping[str, Any], words: str) -> str:
    """Charts in both themes; the style sheet shows the right theme and width."""
    themes: tuple[plots.Theme, ...] = ("light", "dark")
    found = []
    for name, chart in charts.items():
        images = []
        for theme in themes:
            image = plots.svg(chart, theme=theme)
            # Every image numbers its ids from 1, but ids must be unique in a page.
            own = f"{name.replace(' ', '-')}-{theme}-"
            image = re.sub(r'\bid="', f'id="{own}', image)
            image = re.sub(r"url\(#", f"url(#{own}", image)
            images.append(f'<div class="{theme}">{image}</div>')
        found.append(f'<div class="{name.partition(" ")[2]}">{"".join(images)}</div>')
    return f'<figure role="img" aria-label="{escape(words)}">{"".join(found)}</figure>'


def _render_claims(comparison: Mapping[str, Any]) -> str:
    if not comparison.get("claims"):
        return ""
    items = []
    for claim in comparison["claims"]:
        name = str(claim["outcome"]).replace(" ", "-")
        outcome = _escape_text(ComparisonView(comparison).describe_outcome(claim))
        published = _render_link(claim["published"], claim.get("url"))
        items.append(
            f'<li><p class="outcome {escape(name)}">{outcome}</p>'
            f"<div><p><strong>{_escape_text(claim['claim'])}</strong></p>"
            f"<p>Here: {_escape_text(claim['evidence'])}</p>"
            f'<p class="quiet">Published: {published}</p></div></li>'
        )
    return f'<h2>Published claims, tested here</h2><ul class="claims">{"".join(items)}</ul>'


def _render_limits(view: ComparisonView) -> str:
    settings = view.settings
    sizes = [row["parameters"] for row in view.comparison["rows"] if row.get("parameters")]
    size = f", {max(sizes):,} parameters at most" if sizes else ""
    seen = settings["steps"] * settings["batch"] * settings["length"]
    return (
        "<h2>What this size can show</h2>"
        f"<p>A model of {view.shape}{size}, trained on"
        f" {seen:,} {_escape_text(view.unit)}, shows what becomes of an encoding at lengths and"
        " positions that it has not seen: whether it holds, weakens or breaks. It also shows what"
        " an encoding costs in time and memory at this shape.</p>"
        "<p>It cannot rank encodings for large models. Small differences within the training"
        " length change with the learning rate, the seed and the length of training; a low loss"
        " far out may come from looking at near text only; and nothing here tests recall over"
        " long distances unless the task does.</p>"
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
        f"<div><dt>{_escape_text(name)}</dt><dd>{_escape_text(value)}</dd></div>"
        for name, value in entries.items()
        if value
    )
    return f"<h2>Settings</h2><dl>{items}</dl>"


def _render_command(comparison: Mapping[str, Any]) -> str:
    where = comparison["environment"]
    install = f"pip install 'whorl[lab]=={where['whorl']}'"
    command = where.get("command") or ""
    headline = format_headline({"environment": {**where, "command": ""}})
    return (
        f"<h2>Reproduce</h2><pre>{_escape_text(install)}\n{_escape_text(command)}</pre>"
        f'<p class="quiet">{_escape_text(headline)} Equal'
        " settings, corpus and threads give the same numbers on the same machine.</p>"
    )


def _render_notes(comparison: Mapping[str, Any]) -> str:
    items = [f"Not finished: {one['name']}: {one['reason']}" for one in comparison["unfinished"]]
    items += [str(note) for note in comparison["notes"]]
    if not items:
        return ""
    lines = "".join(f"<li>{_escape_text(item)}</li>" for item in items)
    return f'<h2>Notes</h2><ul class="plain">{lines}</ul>'


def _render_link(words: object, url: object) -> str:
    if isinstance(url, str) and re.match(r"https?://", url):
        return f'<a href="{escape(url)}" rel="noreferrer">{_escape_text(words)}</a>'
    return _escape_text(words)


def _escape_text(value: object) -> str:
    return escape(str(value))


def _replace_invalid_text(value: Any) -> Any:
    """``value`` with replacements for characters that UTF-8 does not have, as in some paths."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {key: _replace_invalid_text(inner) for key, inner in value.items()}
    return (
        [_replace_invalid_text(inner) for inner in value]
        if isinstance(value, (list, tuple))
        else value
    )
