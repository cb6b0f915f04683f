"""Parts of a report as a single HTML file, which loads no script, font or image.

It contains every chart as SVG, in light and in dark colors, and shows those of the reader's color
scheme. A content security policy forbids the browser to load anything.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from whorl import plots

from ._page_style import SCRIPT, STYLE
from .tables import format_headline

__all__ = [
    "ReportTable",
    "escape_text",
    "render_command",
    "render_document",
    "render_figure",
    "render_notes",
    "render_report_table",
    "replace_invalid_text",
]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

# Style of cells with sentences, which are broken into lines.
_WRAPPED = ' style="white-space:normal;text-align:left;min-width:9rem"'


class ReportTable(NamedTuple):
    """A table of texts; bold: positions of the best cells. note: a sentence below it."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: Collection[tuple[int, int]] = frozenset()
    note: str = ""


def render_document(title: str, parts: Iterable[str]) -> str:
    """A whole page from its parts, which are HTML; empty ones are left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escape_text(title)}</title>\n"
        f"<style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main><script>{SCRIPT}</script></body></html>\n"
    )


def render_figure(charts: Mapping[str, Any], words: str) -> str:
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


def render_report_table(table: ReportTable, wrapped: Collection[str] = ()) -> str:
    """A table with its title and note; wrapped: heads of columns with sentences."""
    heads = "".join(f'<th scope="col">{escape_text(head)}</th>' for head in table.heads)
    body = []
    for n, row in enumerate(table.rows):
        cells = [
            f"<td><b>{escape_text(text)}</b></td>"
            if (n, m) in table.bold
            else f"<td{_WRAPPED if table.heads[m] in wrapped else ''}>{escape_text(text)}</td>"
            for m, text in enumerate(row)
        ]
        body.append(f'<tr><th scope="row">{escape_text(row[0])}</th>{"".join(cells[1:])}</tr>')
    note = f'<p class="quiet">{escape_text(table.note)}</p>' if table.note else ""
    return (
        f"<h2>{escape_text(table.title)}</h2>"
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>{note}"
    )


def render_command(comparison: Mapping[str, Any]) -> str:
    """How to run it again: the command, the versions and the machine."""
    where = comparison["environment"]
    install = f"pip install 'whorl[lab]=={where['whorl']}'"
    command = where.get("command") or ""
    headline = format_headline({"environment": {**where, "command": ""}})
    return (
        f"<h2>Reproduce</h2><pre>{escape_text(install)}\n{escape_text(command)}</pre>"
        f'<p class="quiet">{escape_text(headline)} Equal'
        " settings, corpus and threads give the same numbers on the same machine.</p>"
    )


def render_notes(comparison: Mapping[str, Any]) -> str:
    """Runs that are not finished, and the notes; nothing if there are none."""
    items = [f"Not finished: {one['name']}: {one['reason']}" for one in comparison["unfinished"]]
    items += [str(note) for note in comparison["notes"]]
    if not items:
        return ""
    lines = "".join(f"<li>{escape_text(item)}</li>" for item in items)
    return f'<h2>Notes</h2><ul class="plain">{lines}</ul>'


def escape_text(value: object) -> str:
    """``value`` as text in HTML."""
    return escape(str(value))


def replace_invalid_text(value: Any) -> Any:
    """``value`` with replacements for characters that UTF-8 does not have, as in some paths."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {key: replace_invalid_text(inner) for key, inner in value.items()}
    return (
        [replace_invalid_text(inner) for inner in value]
        if isinstance(value, (list, tuple))
        else value
    )
