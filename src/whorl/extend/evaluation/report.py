"""Verdict and tables of an evaluation on weights.

Two rows are compared on the same runs of tokens. Their difference counts if it exceeds twice its
standard error; smaller ones are too close to call.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from whorl._support.markdown import render_table
from whorl.configs.inspection.words import join_words

from .settings import PUBLISHED, SLIDING_WINDOW

__all__ = ["find_best", "format_cells", "list_rows", "render_markdown", "write_verdict"]

Document = Mapping[str, Any]


def find_best(document: Document, length: int) -> list[str]:
    """Methods with the lowest loss at ``length``, the lowest first, and those too close to call.

    Only methods that a framework can run, and the published rotation.
    """
    rows = [row for row in document["rows"] if row["name"] != SLIDING_WINDOW]
    rows = [row for row in rows if row["run_by"] or row["name"] == PUBLISHED]
    cells = {row["name"]: row["by_length"][str(length)] for row in rows}
    order = sorted(cells, key=lambda name: float(cells[name]["loss"]))
    first = cells[order[0]]["blocks"]
    return [order[0], *(n for n in order[1:] if not is_clear(first, cells[n]["blocks"]))]


def is_clear(lower: Sequence[float], higher: Sequence[float]) -> bool:
    """Whether the mean of ``higher`` exceeds that of ``lower`` by two standard errors, paired."""
    differences = [b - a for a, b in zip(lower, higher, strict=True)]
    if len(differences) < 2:
        return False
    error = stdev(differences) / math.sqrt(len(differences))
    return fmean(differences) > 2 * error


def write_verdict(document: Document) -> tuple[str, str]:
    """What the numbers say, in two sentences: the best method at the target, and its price."""
    target, trained = document["target"], document["trained"]
    rows = {row["name"]: row["by_length"] for row in document["rows"]}
    best = find_best(document, target)
    name, where = best[0], f"at {target:,} tokens"
    values = {each: _perplexity(row[str(target)]) for each, row in rows.items()}
    if PUBLISHED in best:
        first = (
            f"No method is clearly better than the published rotation {where}: perplexity"
            f" {values[PUBLISHED]} as published"
            f"{f', {values[name]} with {name}' if name != PUBLISHED else ''}."
        )
        name = PUBLISHED
    else:
        close = f" ({join_words(best[1:])}: too close to call)" if best[1:] else ""
        first = (
            f"{name} has the lowest perplexity {where}, {values[name]}{close}; as published it is"
            f" {values[PUBLISHED]}."
        )
    window = rows[SLIDING_WINDOW][str(target)]["blocks"]
    lower = is_clear(window, rows[name][str(target)]["blocks"])
    but = ", which is lower, but cannot find what lies before the window" if lower else ""
    second = f"A sliding window of {trained:,} tokens gives {values[SLIDING_WINDOW]} there{but}."
    if name != PUBLISHED:
        old, new = (_perplexity(rows[each][str(trained)]) for each in (PUBLISHED, name))
        second = f"In texts of {trained:,} tokens {name} changes it from {old} to {new}. {second}"
    return first, second


def list_rows(document: Document) -> list[Mapping[str, Any]]:
    """The rows by loss at the target, the lowest first."""
    target = str(document["target"])
    return sorted(document["rows"], key=lambda row: float(row["by_length"][target]["loss"]))


def format_cells(document: Document, row: Mapping[str, Any]) -> list[str]:
    """Perplexities of a row at every length, and its shares of right answers if there are any."""
    lengths = [str(n) for n in document["lengths"]]
    cells = [_perplexity(row["by_length"][n]) for n in lengths]
    shares = (document["retrieval"] or {}).get("shares")
    if shares:
        found = shares.get(row["name"], {})
        cells += [_format_share(found.get(n)) for n in lengths]
    return cells


def render_markdown(document: Document) -> str:
    """The report as Markdown: verdict, table, and how it was measured."""
    first, second = write_verdict(document)
    lengths = document["lengths"]
    header = ["method", *(_name_length(document, n) for n in lengths)]
    if (document["retrieval"] or {}).get("shares"):
        header += [f"passkey {n:,}" for n in lengths]
    rows = [[row["name"], *format_cells(document, row)] for row in list_rows(document)]
    parts = [f"{first} {second}", render_table(header, rows), *describe_measurement(document)]
    return "\n\n".join(parts) + "\n"


def describe_measurement(document: Document) -> list[str]:
    """How the numbers were measured, as paragraphs."""
    windows, scored = document["windows"], document["scored"]
    found = [
        f"Perplexity per token of {document['model']}, on the last {scored:,} tokens of"
        f" {windows} window{'s' if windows > 1 else ''} of text, the same tokens at every length;"
        f" * trained length. sliding_window: at most the last {document['trained']:,} tokens are"
        " read."
    ]
    why = (document["retrieval"] or {}).get("why")
    if why:
        found.append(f"Retrieval was not measured: {why}")
    return found


def _name_length(document: Document, length: int) -> str:
    return f"{length:,}{'*' if length == document['trained'] else ''}"


def _perplexity(cell: Mapping[str, Any]) -> str:
    """exp(loss) with three or four digits; losses beyond 20 nats as a power."""
    loss = float(cell["loss"])
    return f"{math.exp(loss):,.2f}" if loss < 20 else f"e^{loss:.0f}"


def _format_share(shares: Sequence[float] | None) -> str:
    return "-" if not shares else f"{sum(shares) / len(shares):.0%}"
