"""The result of an evaluation on weights as a single HTML file, which loads nothing."""

from collections.abc import Callable, Mapping
from typing import Any

from whorl import plots
from whorl.lab.compare.html import (
    escape_text,
    render_document,
    render_figure,
    render_report_table,
    replace_invalid_text,
)

from .report import describe_measurement, list_recipes, list_tables, write_verdict

__all__ = ["render_page"]


def render_page(document: Mapping[str, Any], *, command: str = "") -> str:
    """The report as HTML; its charts need altair and vl-convert."""
    document = replace_invalid_text(document)
    tables = list_tables(document)
    first, *others = write_verdict(document)
    name = f"{document['model']} to {document['target']:,} tokens"
    parts = [
        f"<h1>{escape_text(name)}</h1>",
        f'<p class="quiet">{escape_text(document["trained_why"])}</p>',
        f'<p class="lead">{escape_text(first)}</p>',
        *(f"<p>{escape_text(sentence)}</p>" for sentence in others),
        _render_lines(document),
        *map(render_report_table, tables),
        _render_retrieval(document),
        _render_recipes(document),
        "<h2>How it was measured</h2>",
        *(f"<p>{escape_text(words)}</p>" for words in describe_measurement(document)),
        f"<h2>Reproduce</h2><pre>{escape_text(command)}</pre>" if command else "",
    ]
    return render_document(f"whorl extend: {name}", parts)


def _render_lines(document: Mapping[str, Any]) -> str:
    """Loss by length and by position, beside each other."""
    figures = [_render_chart("lengths", plots.extension_lengths, document)]
    if any(row["by_position"] for row in document["rows"]):
        figures.append(_render_chart("positions", plots.extension_positions, document))
    return f'<div class="pair">{"".join(figures)}</div>'


def _render_chart(name: str, draw: Callable[..., Any], document: Mapping[str, Any]) -> str:
    wide, narrow = (draw(document, width=width) for width in ("column", "phone"))
    return render_figure(
        {f"{name} wide": wide, f"{name} narrow": narrow}, f"lines of loss by {name}"
    )


def _render_retrieval(document: Mapping[str, Any]) -> str:
    if not (document["retrieval"] or {}).get("forms"):
        return ""
    chart = {"retrieval": plots.extension_retrieval(document)}
    return render_figure(chart, "right answers by depth and length")


def _render_recipes(document: Mapping[str, Any]) -> str:
    """What to write for the best method."""
    found = list_recipes(document)
    if not found:
        return (
            "<h2>What to write</h2><p>Nothing: no method is clearly better than the published"
            " rotation at the target.</p>"
        )
    blocks = [
        f"<h3>{escape_text(title)}</h3><pre>{escape_text(text)}</pre>" for title, text in found
    ]
    return f"<h2>What to write</h2>{''.join(blocks)}"
