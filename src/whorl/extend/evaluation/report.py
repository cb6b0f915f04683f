"""Verdict and tables of an evaluation on weights, in words and as Markdown."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from whorl._support.markdown import render_table
from whorl.configs.inspection.words import join_words
from whorl.lab.compare.html import ReportTable

from .effective import OWN_SHARE, RULER_THRESHOLD
from .ranking import Document, find_best, get_cell, is_clear, list_rows
from .settings import PUBLISHED, SLIDING_WINDOW

__all__ = [
    "describe_measurement",
    "list_tables",
    "render_markdown",
    "write_verdict",
]


def write_verdict(document: Document) -> tuple[str, ...]:
    """What the numbers say: the best method at the target, its cost, and what finds most."""
    best = find_best(document, document["target"])
    if not best or get_cell(document, PUBLISHED, document["target"]) is None:
        return (
            f"Nothing can be said about {document['target']:,} tokens yet: the time was too short"
            " for the published rotation there. The same command goes on.",
        )
    name, first = _write_first_sentence(document, best)
    found = [first, _write_cost(document, name), *_describe_retrieval(document, name)]
    written = (document.get("recipes") or {}).get("method", name)
    if written != name:
        found.append(f"Of those too close to call, {written} finds most: write that.")
    return tuple(sentence for sentence in found if sentence)


def _write_first_sentence(document: Document, best: Sequence[str]) -> tuple[str, str]:
    """The best method, and the sentence about it."""
    target = document["target"]
    where, name = f"at {target:,} tokens", best[0]
    values = {each: _format_perplexity(get_cell(document, each, target)) for each in best}
    published = _format_perplexity(get_cell(document, PUBLISHED, target))
    if PUBLISHED in best:
        other = f", {values[name]} with {name}" if name != PUBLISHED else ""
        return PUBLISHED, (
            f"No method is clearly better than the published rotation {where}: perplexity"
            f" {published} as published{other}."
        )
    close = f" ({join_words([*best[1:]])}: too close to call)" if best[1:] else ""
    return name, (
        f"{name} has the lowest perplexity {where}, {values[name]}{close}; as published it is"
        f" {published}."
    )


def _write_cost(document: Document, name: str) -> str:
    """What the method changes within the trained length, and what a sliding window gives."""
    trained, found = document["trained"], []
    old, new = (get_cell(document, each, trained) for each in (PUBLISHED, name))
    if name != PUBLISHED and old and new:
        found.append(
            f"In texts of {trained:,} tokens {name} changes it from {_format_perplexity(old)} to"
            f" {_format_perplexity(new)}."
        )
    window = get_cell(document, SLIDING_WINDOW, document["target"])
    mine = get_cell(document, name, document["target"])
    if window and mine:
        lower = is_clear(window["blocks"], mine["blocks"])
        but = ", which is lower, but cannot find what lies before the window" if lower else ""
        found.append(
            f"A sliding window of {trained:,} tokens gives {_format_perplexity(window)} there{but}."
        )
    return " ".join(found)


def _describe_retrieval(document: Document, name: str) -> list[str]:
    """Which row finds most at the target."""
    means = (document["retrieval"] or {}).get("means") or {}
    target = str(document["target"])
    found = {row: cells[target] for row, cells in means.items() if target in cells}
    if name not in found:
        return []
    runs = {row["name"] for row in document["rows"] if row["run_by"]} | {PUBLISHED}
    most = max((row for row in found if row in runs), key=lambda row: found[row])
    words = f"With {name} it finds {found[name]:.0%} of what was hidden in such texts"
    if name == PUBLISHED:
        words = f"As published it finds {found[name]:.0%} of what was hidden in such texts"
    if found[most] > found[name]:
        words += f", with {most} {found[most]:.0%}"
    if SLIDING_WINDOW in found:
        words += f", in the sliding window {found[SLIDING_WINDOW]:.0%}"
    return [f"{words}."]


def list_tables(document: Document) -> list[ReportTable]:
    """Perplexity by length, the winner of each length, retrieval, and effective lengths."""
    found = [_build_perplexity(document), _build_winners(document)]
    found = [table for table in found if table.rows]
    if (document["retrieval"] or {}).get("means"):
        found.append(_build_retrieval(document))
    return found


def _build_perplexity(document: Document) -> ReportTable:
    lengths, rows = document["lengths"], list_rows(document)
    best = {n: find_best(document, n)[:1] for n in lengths}
    cells = [
        (row["name"], *(_format_perplexity(row["by_length"].get(str(n))) for n in lengths))
        for row in rows
    ]
    bold = {
        (n, m + 1)
        for n, row in enumerate(rows)
        for m, length in enumerate(lengths)
        if row["name"] in best[length]
    }
    heads = ("perplexity at", *(_name_length(document, n) for n in lengths))
    return ReportTable("Perplexity by length", heads, tuple(cells), frozenset(bold))


def _build_winners(document: Document) -> ReportTable:
    """The best method of each length, and what it costs in short texts."""
    trained = document["trained"]
    short = [n for n in document["lengths"] if n <= trained]
    rows = []
    for length in document["lengths"]:
        best = find_best(document, length)
        if length <= trained or not best:
            continue
        cells = [get_cell(document, each, length) for each in (best[0], PUBLISHED, SLIDING_WINDOW)]
        costs = [_format_cost(document, best[0], n) for n in short]
        rows.append((f"{length:,}", _shorten_names(best), *map(_format_perplexity, cells), *costs))
    heads = ("length", "best", "perplexity", "as published", "sliding window")
    costs_heads = tuple(f"change at {_name_length(document, n)}" for n in short)
    note = (
        "Best: the lowest perplexity of a method that a framework runs; +N: so many others are too"
        " close to call. Change: of the first one, against the published rotation in short texts."
    )
    return ReportTable("Best by length", (*heads, *costs_heads), tuple(rows), note=note)


def _build_retrieval(document: Document) -> ReportTable:
    found = document["retrieval"]
    lengths = [n for n in document["lengths"] if n >= document["trained"]]
    names = [row["name"] for row in list_rows(document) if row["name"] in found["means"]]
    ordered = sorted(names, key=lambda name: -found["means"][name].get(str(lengths[-1]), -1.0))
    rows = []
    for name in ordered:
        means, effective = found["means"][name], found["effective"].get(name, {})
        shares = [f"{means[str(n)]:.0%}" if str(n) in means else "-" for n in lengths]
        limits = [_format_limit(effective.get(rule)) for rule in ("threshold", "own")]
        rows.append((name, *shares, *limits))
    heads = ("right answers at", *(_name_length(document, n) for n in lengths))
    heads += (f"over {RULER_THRESHOLD:.1%}", f"{OWN_SHARE:.0%} of own")
    forms = join_words([form.replace("_", " ") for form in found["forms"]])
    note = (
        f"Mean over {forms} at {len(found['depths'])} depths. Over {RULER_THRESHOLD:.1%}: the"
        " largest length with a larger mean, RULER's threshold on other texts than RULER's, so not"
        f" its score. {OWN_SHARE:.0%} of own: the largest length with at least that share of the"
        " mean as published at the trained length."
    )
    return ReportTable("Retrieval and effective lengths", heads, tuple(rows), note=note)


def render_markdown(document: Document) -> str:
    """The report as Markdown: verdict, tables, what to write, and how it was measured."""
    parts = [" ".join(write_verdict(document))]
    for table in list_tables(document):
        rows = [
            [f"**{text}**" if (n, m) in table.bold else text for m, text in enumerate(row)]
            for n, row in enumerate(table.rows)
        ]
        parts += [f"## {table.title}", render_table(table.heads, rows), table.note]
    parts += ["## How it was measured", document["trained_why"], *describe_measurement(document)]
    for title, text in list_recipes(document):
        parts += [f"## {title}", f"```\n{text}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def list_recipes(document: Document) -> list[tuple[str, str]]:
    """What to write for the best method: a title and the text for each framework."""
    found = document.get("recipes") or {"recipes": []}
    return [
        (
            f"{found['method']} for {recipe['framework']},"
            f" {'config.json' if recipe['form'] == 'lines' else 'command'}",
            str(recipe["text"] or recipe["note"]),
        )
        for recipe in found["recipes"]
    ]


def describe_measurement(document: Document) -> list[str]:
    """How the numbers were measured and what is missing, as paragraphs."""
    windows, scored = document["windows"], document["scored"]
    found = [
        f"Perplexity per token of {document['model']}, on the last {scored:,} tokens of"
        f" {windows} window{'s' if windows > 1 else ''} of text, the same tokens at every length;"
        f" * trained length. sliding_window: at most the last {document['trained']:,} tokens are"
        " read."
    ]
    for form, why in ((document["retrieval"] or {}).get("why") or {}).items():
        found.append(f"Retrieval, {form.replace('_', ' ')}, was not measured: {why}")
    missing = document.get("missing") or []
    if missing:
        shown = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if missing[6:] else "")
        found.append(f"Missing, because the time was too short: {shown}. The same command goes on.")
    return found


def _name_length(document: Document, length: int) -> str:
    return f"{length:,}{'*' if length == document['trained'] else ''}"


def _format_perplexity(cell: Mapping[str, Any] | None) -> str:
    """exp(loss) with three or four digits; losses beyond 20 nats as a power; - for none."""
    if cell is None:
        return "-"
    loss = float(cell["loss"])
    return f"{math.exp(loss):,.2f}" if loss < 20 else f"e^{loss:.0f}"


def _format_cost(document: Document, name: str, length: int) -> str:
    """By how much a method changes the perplexity at a length, in percent."""
    old, new = (get_cell(document, each, length) for each in (PUBLISHED, name))
    if old is None or new is None:
        return "-"
    return f"{math.expm1(min(20.0, new['loss'] - old['loss'])):+.1%}"


def _shorten_names(names: Sequence[str]) -> str:
    """The first name, and how many others there are."""
    return names[0] + (f" +{len(names) - 1}" if names[1:] else "")


def _format_limit(length: int | None) -> str:
    return "none" if length is None else f"{length:,}"
