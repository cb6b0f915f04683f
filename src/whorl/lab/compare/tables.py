"""A comparison as Markdown for a README and as tables for the terminal."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from whorl._support.markdown import table as markdown_table

from ._reading import MISSING, Reading, number

__all__ = ["describe_outcome", "headline", "markdown", "terminal"]

_COSTS = ("memory_mb", "parameters")
_OUTCOMES = {"reproduced": "green", "not reproduced": "red", "inconclusive": "yellow"}


def markdown(comparison: Mapping[str, Any], *, claims: bool = False) -> str:
    """Where it was measured, what is judged, then rows by lengths; the best of a column is bold.

    claims: also what became of published claims.
    """
    reading = Reading(comparison)
    rows = reading.rows
    columns = []
    for length in reading.lengths:
        texts = [reading.words(reading.value(row, length)) for row in rows]
        values = [reading.value(row, length) for row in rows]
        best = reading.best(texts, values, reading.accuracy)
        columns.append([f"**{text}**" if n in best else text for n, text in enumerate(texts)])
    heads = [_head(reading, length) for length in reading.lengths]
    if reading.has_speed:
        columns.append([reading.speed(row) for row in rows])
        heads.append("tokens/s")
    body = [(_plain(row["name"]), *cells) for row, *cells in zip(rows, *columns, strict=True)]
    found = [
        _plain(headline(comparison)),
        f"{_plain(_what(reading))}.",
        markdown_table(["encoding", *heads], body),
    ]
    if differences := reading.differences():
        title, tops, lines = differences
        found += [
            f"{_plain(title)}:",
            markdown_table(tops, [[_plain(cell) for cell in line] for line in lines]),
        ]
    if claims and comparison.get("claims"):
        lines = [
            [_plain(cell) for cell in (claim["claim"], reading.outcome(claim), claim["evidence"])]
            for claim in comparison["claims"]
        ]
        found += ["Published claims:", markdown_table(["claim", "here", "evidence"], lines)]
    found += [_plain(text) for text in _ends(comparison)]
    return "\n\n".join(found) + "\n"


def terminal(comparison: Mapping[str, Any]) -> Iterator[Any]:
    """Renderables of the same, with the claims; needs rich."""
    from rich.text import Text

    yield Text(headline(comparison), style="bold")
    if comparison["rows"]:
        yield _results(Reading(comparison))
    if any(row.get("by_position") for row in comparison["rows"]):
        yield _positions(Reading(comparison))
    if differences := Reading(comparison).differences():
        yield _differences(*differences)
    yield Text(f"{Reading(comparison).summary()}\n")
    if comparison.get("claims"):
        yield _claims(comparison)
    for text in _ends(comparison):
        yield Text(text, style="dim")


def describe_outcome(comparison: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    """What became of a claim, and on how little that rests: "reproduced (1 seed, 3 layers)"."""
    return Reading(comparison).outcome(claim)


def headline(comparison: Mapping[str, Any]) -> str:
    """CPU, date, versions and command in one paragraph."""
    where = comparison["environment"]
    cores = where["cores"]
    text = (
        f"{where['cpu']}, {cores} core{'' if cores == 1 else 's'}, {where['date']};"
        f" whorl {where['whorl']}, torch {where['torch']}, Python {where['python']}."
    )
    return f"{text} Command: `{where['command']}`." if where.get("command") else text


def _what(reading: Reading) -> str:
    """What the numbers of the table are."""
    settings = reading.settings
    corpus = reading.comparison.get("corpus") or {}
    task = corpus.get("title") or "text" if settings["task"] == "text" else settings["task"]
    measure = "accuracy" if reading.accuracy else f"loss in {reading.nats}"
    seeds = len(settings["seeds"])
    return (
        f"{task}: {measure} by evaluation length; {reading.shape}, trained for"
        f" {settings['steps']} steps at {reading.near} {reading.unit},"
        f" {seeds} seed{'' if seeds == 1 else 's'}"
    )


def _results(reading: Reading) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=_what(reading), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = True  # so that names fit 80 columns whole
    table.caption, table.caption_justify = "* the training length", "left"
    table.add_column("encoding", overflow="fold")
    for length in reading.lengths:
        mark = "*" if length == reading.near else ""
        table.add_column(f"{length}{mark}", justify="right", no_wrap=True)
    for head in (*(["tokens/s"] if reading.has_speed else []), "MB", "params"):
        table.add_column(head, justify="right", no_wrap=True)
    rows = reading.rows
    best = []
    for length in reading.lengths:
        values = [reading.value(row, length) for row in rows]
        best.append(reading.best([*map(reading.words, values)], values, reading.accuracy))
    for n, row in enumerate(rows):
        cells = [
            Text(
                reading.words(reading.value(row, length)),
                style="bold green" if n in found else "",
            )
            for length, found in zip(reading.lengths, best, strict=True)
        ]
        costs = [reading.speed(row)] if reading.has_speed else []
        costs += [_count(row.get(key)) for key in _COSTS]
        table.add_row(Text(str(row["name"])), *cells, *costs)
    return table


def _positions(reading: Reading) -> Any:
    """Loss by position in the longest windows, between one length and the next."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = f"Loss by position, in windows of {reading.far} {reading.unit}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("encoding", overflow="fold")
    spans = list(pairwise([0, *reading.lengths]))
    for start, end in spans:
        table.add_column(f"{start}-{end - 1}", justify="right", no_wrap=True)
    for row in reading.rows:
        cells = [reading.words(reading.between(row, *span)) for span in spans]
        table.add_row(Text(str(row["name"])), *cells)
    return table


def _differences(title: str, heads: list[str], rows: list[list[str]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(heads[0], overflow="fold")
    for head in heads[1:]:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _claims(comparison: Mapping[str, Any]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Published claims", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("here, and the claim", overflow="fold", min_width=33)
    table.add_column("evidence, and what was published", overflow="fold")
    for claim in comparison["claims"]:
        style = _OUTCOMES.get(str(claim["outcome"]), "")
        table.add_row(
            Text.assemble((describe_outcome(comparison, claim), style), "\n", str(claim["claim"])),
            Text.assemble(str(claim["evidence"]), "\n", (str(claim["published"]), "dim")),
            end_section=True,
        )
    return table


def _ends(comparison: Mapping[str, Any]) -> list[str]:
    """What is missing, and the notes."""
    missing = [
        f"Not finished: {one['name']} ({one['reason']})."
        for one in comparison.get("unfinished", ())
    ]
    return missing + [str(note) for note in comparison.get("notes", ())]


def _head(reading: Reading, length: int) -> str:
    return f"{length} (trained)" if length == reading.near else str(length)


def _count(value: Any) -> str:
    found = number(value)
    return MISSING if found is None else f"{found:,.0f}"


def _plain(text: object) -> str:
    """Text that Markdown shows as it is, on one line."""
    return " ".join(str(text).split()).replace("<", "&lt;")
