"""The result of an experiment as a single HTML file, in the style of a comparison's report."""

from collections.abc import Mapping
from typing import Any

from whorl import plots
from whorl.lab.compare.html import (
    escape_text,
    render_command,
    render_document,
    render_figure,
    render_notes,
    render_report_table,
    replace_invalid_text,
)

from .tables import list_tables

__all__ = ["render_page"]

# Settings that the page shows, with the words for them.
_SETTINGS = {
    "task": "task",
    "kind": "model",
    "attention": "attention",
    "layers": "layers",
    "width": "width",
    "heads": "heads",
    "steps": "steps",
    "batch": "sequences a step",
    "length": "trained length",
    "seeds": "seeds",
    "windows": "windows at each length",
    "optimizer": "optimizer of matrices",
}


def render_page(result: Mapping[str, Any]) -> str:
    """The report of an experiment as HTML; its charts need altair and vl-convert."""
    result = replace_invalid_text(result)
    tables = list_tables(result)
    date = result["environment"]["date"]
    about = f"whorl experiment {result['experiment']}, budget {result['budget']}, {date}"
    parts = [
        f"<h1>{escape_text(result['question'])}</h1>",
        f'<p class="quiet">{escape_text(about)}</p>',
        f'<p class="lead">{escape_text(result["sentence"])}</p>',
        _render_lines(result),
        *(render_report_table(table, ("why",)) for table in tables[:1]),
        _render_differences(result),
        *(render_report_table(table, ("why",)) for table in tables[1:]),
        _render_settings(result),
        render_command(result),
        render_notes(result),
    ]
    return render_document(f"whorl experiment: {result['experiment']}", parts)


def _render_lines(result: Mapping[str, Any]) -> str:
    """Line charts beside each other."""
    figures = []
    for key in plots.list_experiment_lines(result):
        wide, narrow = (
            plots.experiment_lines(result, key, width=width) for width in ("column", "phone")
        )
        figures.append(
            render_figure({f"{key} wide": wide, f"{key} narrow": narrow}, f"lines of {key}")
        )
    return f'<div class="pair">{"".join(figures)}</div>' if figures else ""


def _render_differences(result: Mapping[str, Any]) -> str:
    if not result["contrasts"]:
        return ""
    wide, narrow = (plots.experiment_differences(result, width=x) for x in ("page", "phone"))
    charts = {"differences wide": wide, "differences narrow": narrow}
    return render_figure(charts, "differences between rows with intervals")


def _render_settings(result: Mapping[str, Any]) -> str:
    """What all rows have in common."""
    found = {words: result["settings"].get(key) for key, words in _SETTINGS.items()}
    found["corpus"] = result["corpus"].get("title")
    items = "".join(
        f"<div><dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd></div>"
        for name, value in found.items()
        if value
    )
    return f"<h2>Settings that all rows share</h2><dl>{items}</dl>"
