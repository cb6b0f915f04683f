"""A comparison as one HTML file that stands alone: no script, font or image from elsewhere.

Charts are inside as SVG, once light and once dark, and the reader's colour scheme chooses. A
policy in the head forbids the browser to load anything. Names and paths are the user's and are
escaped; links go to http and https addresses only.
"""

import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from whorl import plots

from ._page_style import SCRIPT, STYLE
from ._page_table import results
from ._reading import Reading
from .tables import headline

__all__ = ["page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(comparison: Mapping[str, Any]) -> str:
    """The report as HTML; needs altair and vl-convert for its charts."""
    comparison = _printable(comparison)
    reading = Reading(comparison)
    rows = comparison["rows"]
    count = f"{len(rows)} position encoding{'' if len(rows) == 1 else 's'}"
    reach = f"trained at {reading.near}, read up to {reading.far} {reading.unit}"
    date = comparison["environment"]["date"]
    parts = [
        "<h1>How far do position encodings carry?</h1>",
        f'<p class="quiet">{_text(f"{count}, {reach}; whorl compare, {date}")}</p>',
        f'<p class="lead">{_text(reading.summary())}</p>',
        *(_results(reading) if rows else ()),
        _claims(comparison),
        _scope(reading),
        _settings(comparison),
        _reproduce(comparison),
        _notes(comparison),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{_text(f'whorl compare: {count}, {reach}')}</title>\n"
        f"<style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main><script>{SCRIPT}</script></body></html>\n"
    )


def _results(reading: Reading) -> list[str]:
    comparison = reading.comparison
    what = "Accuracy" if reading.accuracy else f"Loss in {reading.nats} (lower is better)"
    several = len(reading.settings["seeds"]) > 1
    interval = ", \u00b1 half the interval over the seeds" if several else ""
    found = [
        "<h2>Results</h2>",
        _lines("lengths", plots.lab_lengths, comparison, "lines by evaluation length"),
        f'<p class="quiet">{_text(what)}{interval}. Best of a column in bold; shade grows with'
        " the distance from the best of the table. Click a head to sort.</p>",
        results(reading),
        *_differences(reading),
        _figure({"costs": plots.lab_costs(comparison)}, "dots and bars by encoding"),
    ]
    if any(row.get("by_position") for row in comparison["rows"]):
        found.append(_lines("positions", plots.lab_positions, comparison, "lines by position"))
    if any(row.get("curve") for row in comparison["rows"]):
        chart = _lines("training", plots.lab_training, comparison, "training loss by step")
        found.append(f"<details><summary>Training curves</summary>{chart}</details>")
    return found


def _differences(reading: Reading) -> list[str]:
    """Rows of differences paired by seed, where there are several seeds."""
    found = reading.differences()
    if found is None:
        return []
    title, heads, body = found
    cells = ["".join(f"<td>{_text(text)}</td>" for text in row[1:]) for row in body]
    lines = [
        f'<tr><th scope="row">{_text(row[0])}</th>{line}</tr>'
        for row, line in zip(body, cells, strict=True)
    ]
    tops = "".join(f"<th>{_text(head)}</th>" for head in heads)
    return [
        f"<details><summary>{_text(title)}</summary>"
        f'<div class="scroll"><table><thead><tr>{tops}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    ]


def _lines(name: str, draw: Callable[..., Any], comparison: Mapping[str, Any], words: str) -> str:
    """A chart of lines for wide screens, and for phones, where its labels would be off screen."""
    narrow = draw(comparison, narrow=True)
    return _figure({f"{name} wide": draw(comparison), f"{name} narrow": narrow}, words)


def _figure(charts: Mapping[str, Any], words: str) -> str:
    """Charts in both themes; style shows one of the themes, and one of "wide" and "narrow"."""
    themes: tuple[plots.Theme, ...] = ("light", "dark")
    found = []
    for name, chart in charts.items():
        images = []
        for theme in themes:
            image = plots.svg(chart, theme=theme)
            # Ids count from 1 in every image, but are one name space in a page.
            own = f"{name.replace(' ', '-')}-{theme}-"
            image = re.sub(r'\bid="', f'id="{own}', image)
            image = re.sub(r"url\(#", f"url(#{own}", image)
            images.append(f'<div class="{theme}">{image}</div>')
        found.append(f'<div class="{name.partition(" ")[2]}">{"".join(images)}</div>')
    return f'<figure role="img" aria-label="{escape(words)}">{"".join(found)}</figure>'


def _claims(comparison: Mapping[str, Any]) -> str:
    if not comparison.get("claims"):
        return ""
    items = []
    for claim in comparison["claims"]:
        outcome = str(claim["outcome"])
        name = outcome.replace(" ", "-")
        published = _link(claim["published"], claim.get("url"))
        items.append(
            f'<li><p class="outcome {escape(name)}">{_text(Reading(comparison).outcome(claim))}</p>'
            f"<div><p><strong>{_text(claim['claim'])}</strong></p>"
            f"<p>Here: {_text(claim['evidence'])}</p>"
            f'<p class="quiet">Published: {published}</p></div></li>'
        )
    return f'<h2>Published claims, tested here</h2><ul class="claims">{"".join(items)}</ul>'


def _scope(reading: Reading) -> str:
    settings = reading.settings
    sizes = [row["parameters"] for row in reading.comparison["rows"] if row.get("parameters")]
    size = f", {max(sizes):,} parameters at most" if sizes else ""
    seen = settings["steps"] * settings["batch"] * settings["length"]
    return (
        "<h2>What this size can show</h2>"
        f"<p>A model of {reading.shape}{size}, trained on"
        f" {seen:,} {_text(reading.unit)}, shows what becomes of an encoding at lengths and"
        " positions that it has not seen: whether it holds, weakens or breaks. It also shows what"
        " an encoding costs in time and memory at this shape.</p>"
        "<p>It cannot rank encodings for large models. Small differences within the training"
        " length change with the learning rate, the seed and the length of training; a low loss"
        " far out may come from looking at near text only; and nothing here tests recall over"
        " long distances unless the task does.</p>"
    )


def _settings(comparison: Mapping[str, Any]) -> str:
    settings = comparison["settings"]
    corpus = comparison.get("corpus") or {}
    entries = {
        "task": settings["task"],
        "model": f"{settings['kind']}, {settings['attention']} attention",
        "shape": f"{Reading(comparison).shape}, heads {settings['heads']}",
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
        f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
        for name, value in entries.items()
        if value
    )
    return f"<h2>Settings</h2><dl>{items}</dl>"


def _reproduce(comparison: Mapping[str, Any]) -> str:
    where = comparison["environment"]
    install = f"pip install 'whorl[lab]=={where['whorl']}'"
    return (
        f"<h2>Reproduce</h2><pre>{_text(install)}\n{_text(where.get('command') or '')}</pre>"
        f'<p class="quiet">{_text(headline({"environment": {**where, "command": ""}}))} Equal'
        " settings, corpus and threads give the same numbers on the same machine.</p>"
    )


def _notes(comparison: Mapping[str, Any]) -> str:
    items = [f"Not finished: {one['name']}: {one['reason']}" for one in comparison["unfinished"]]
    items += [str(note) for note in comparison["notes"]]
    if not items:
        return ""
    listed = "".join(f"<li>{_text(item)}</li>" for item in items)
    return f'<h2>Notes</h2><ul class="plain">{listed}</ul>'


def _link(words: object, url: object) -> str:
    if isinstance(url, str) and re.match(r"https?://", url):
        return f'<a href="{escape(url)}" rel="noreferrer">{_text(words)}</a>'
    return _text(words)


def _text(value: object) -> str:
    return escape(str(value))


def _printable(value: Any) -> Any:
    """The same with every text fit for UTF-8: a path may hold bytes that are not."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {key: _printable(inner) for key, inner in value.items()}
    return [_printable(inner) for inner in value] if isinstance(value, (list, tuple)) else value
