"""``whorl properties``: the report card of every encoding, measured here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

import whorl

from ._options import parse_lengths, split_words
from ._output import JsonFlag, print_result

__all__ = ["properties"]

Encodings = typer.Option(metavar="A,B", help="Only these, such as rope,alibi,rope+alibi.")
Lengths = typer.Option(metavar="A,B", help="Where cost is measured, such as 512,2k; or none.")

_STYLES = {"yes": "green", "no": "red", "untouched": "dim"}


def properties(
    encodings: Annotated[str | None, Encodings] = None,
    lengths: Annotated[str, Lengths] = "512,2048",
    as_json: JsonFlag = False,
) -> None:
    """Measure what people wish of an encoding, on the modules themselves.

    Unique, deterministic, extrapolates, relative, decays, n-D; norm kept, linear attention, cost.
    """
    card = whorl.analysis.properties(
        split_words(encodings), lengths=parse_lengths(lengths, "--lengths")
    )
    print_result(card, as_json, _render_page)


def _render_page(card: whorl.analysis.ReportCard) -> Iterator[Table | Text]:
    keys = list(card.rows[0].verdicts)
    yield _render_table(card, keys[:4])
    yield Text()
    yield _render_table(card, keys[4:])
    yield Text()
    if card.rows[0].costs:
        yield _render_costs(card)
        yield Text()
    yield Text("\n".join(_list_notes(card)), "dim")


def _render_table(card: whorl.analysis.ReportCard, keys: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("encoding", style="bold", no_wrap=True)
    for key in keys:
        table.add_column(key)
    for row in card.rows:
        table.add_row(row.name, *(_format_cell(row, key) for key in keys))
    return table


def _format_cell(row: whorl.analysis.Properties, key: str) -> Text:
    verdict = row.verdicts[key]
    text = Text(verdict, _STYLES.get(verdict, "yellow"))
    if row.evidence[key] != verdict:
        text.append(f"\n{row.evidence[key]}", "dim")
    return text


def _render_costs(card: whorl.analysis.ReportCard) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("encoding", style="bold", no_wrap=True)
    table.add_column("trained", justify="right", no_wrap=True)
    for cost in card.rows[0].costs:
        for head in (f"{cost.length}: ms", "x NoPE", "+MB"):
            table.add_column(head, justify="right", no_wrap=True)
    for row in card.rows:
        cells = [
            cell
            for cost in row.costs
            for cell in (
                f"{cost.milliseconds:.1f}",
                f"{cost.times_nope:.2f}",
                f"{cost.extra_megabytes:.1f}",
            )
        ]
        table.add_row(row.name, f"{row.parameters:,}", *cells)
    return table


def _list_notes(card: whorl.analysis.ReportCard) -> list[str]:
    notes = [
        f"{card.num_heads} heads of {card.head_dim}, {card.length} positions; random numbers in"
        " place of trained ones. What yes takes:",
        *(f"  {key}: {rule}" for key, rule in card.rules.items()),
        *card.words,
    ]
    if card.rows[0].costs:
        notes.append("cost: one causal call, the best of three, and memory beyond that of NoPE.")
    return notes
