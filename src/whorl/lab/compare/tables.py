"""A comparison as Markdown, and as tables for the terminal."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from whorl._support.markdown import render_table as markdown_table

from ._columns import Column, Row, build_result_columns
from ._view import ComparisonView
from .thresholds import CLAIM_NOTE
from .verdict import write_verdict

__all__ = [
    "build_terminal_tables",
    "describe_last_tenth",
    "describe_outcome",
    "format_headline",
    "group_claims",
    "render_markdown",
    "render_verdict",
]

# Headings of claims by kind, in the order in which they are shown.
_CLAIM_HEADINGS = {
    "speed": "How fast it learns",
    "learned": "How well it does when it has learned",
}
_OUTCOMES = {
    "reproduced": "green",
    "not reproduced": "red",
    "not decidable": "yellow",
    "not yet": "cyan",
}


def render_verdict(comparison: Mapping[str, Any]) -> str:
    """The verdict as Markdown, with the machine and the command below it."""
    parts = write_verdict(ComparisonView(comparison)), format_headline(comparison)
    return "\n\n".join(map(_escape_markdown, parts)) + "\n"


def render_markdown(comparison: Mapping[str, Any], *, claims: bool = False) -> str:
    """The comparison as Markdown: verdict, values by length with the best in bold, environment.

    claims: also the published claims and their outcomes.
    """
    view = ComparisonView(comparison)
    rows, columns = view.rows, build_result_columns(view)
    cells = [_mark_best(column, rows) for column in columns]
    body = [
        (_escape_markdown(row["name"]), *texts) for row, *texts in zip(rows, *cells, strict=True)
    ]
    found = [
        _escape_markdown(write_verdict(view)),
        f"{_escape_markdown(_describe_table(view))}. {describe_last_tenth()}",
        markdown_table(["encoding", *(column.head for column in columns)], body),
    ]
    if claims:
        found += _render_claims(view)
    if differences := view.list_differences():
        title, tops, lines = differences
        found += [
            f"{_escape_markdown(title)}:",
            markdown_table(tops, [[_escape_markdown(cell) for cell in line] for line in lines]),
        ]
    notes = [x for x in _list_notes(comparison) if claims or not x.startswith(CLAIM_NOTE)]
    found += [_escape_markdown(text) for text in notes]
    found.append(_escape_markdown(format_headline(comparison)))
    return "\n\n".join(found) + "\n"


def _render_claims(view: ComparisonView) -> Iterator[str]:
    """A heading and a table for each kind of claims."""
    for heading, group in group_claims(view.comparison):
        lines = [
            [
                _escape_markdown(cell)
                for cell in (claim["claim"], view.describe_outcome(claim), claim["evidence"])
            ]
            for claim in group
        ]
        yield f"Published claims: {heading.lower()}."
        yield markdown_table(["claim", "here", "evidence"], lines, numbers=False)


def group_claims(comparison: Mapping[str, Any]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Headings, each with the claims of its kind; kinds without claims are left out."""
    claims = comparison.get("claims") or []
    groups = {kind: [one for one in claims if one["kind"] == kind] for kind in _CLAIM_HEADINGS}
    # "when it has learned" stands beside how many have.
    flat = {"learned": f" ({ComparisonView(comparison).count_flat()})"}
    return [
        (_CLAIM_HEADINGS[kind] + flat.get(kind, ""), group)
        for kind, group in groups.items()
        if group
    ]


def build_terminal_tables(comparison: Mapping[str, Any]) -> Iterator[Any]:
    """The comparison with its claims, as objects that rich can print.

    The verdict is last, because a terminal shows the end.
    """
    from rich.text import Text

    view = ComparisonView(comparison)
    if comparison["rows"]:
        yield _build_results(view)
    for heading, group in group_claims(comparison):
        yield _build_claims(view, heading, group)
    if any(row.get("by_position") for row in comparison["rows"]):
        yield _build_positions(view)
    if differences := view.list_differences():
        yield _build_differences(*differences)
    for text in (*_list_notes(comparison), format_headline(comparison)):
        yield Text(text, style="dim")
    yield Text(f"\n{write_verdict(view)}\n", style="bold")


def describe_last_tenth() -> str:
    """What the column "last tenth" says, in one sentence."""
    return (
        "Last tenth: how much the last tenth of the steps changed the validation loss, computed"
        " from this run and the one with a third of the steps."
    )


def describe_outcome(comparison: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    """The outcome of a claim with its basis: "reproduced (1 seed, 3 layers)"."""
    return ComparisonView(comparison).describe_outcome(claim)


def format_headline(comparison: Mapping[str, Any]) -> str:
    """CPU, date, versions and command in one paragraph."""
    where = comparison["environment"]
    cores = where["cores"]
    text = (
        f"{where['cpu']}, {cores} core{'' if cores == 1 else 's'}, {where['date']};"
        f" whorl {where['whorl']}, torch {where['torch']}, Python {where['python']}."
    )
    return f"{text} Command: `{where['command']}`." if where.get("command") else text


def _describe_table(view: ComparisonView) -> str:
    """Title of the table: task, measure, model and training."""
    settings = view.settings
    corpus = view.comparison.get("corpus") or {}
    task = corpus.get("title") or "text" if settings["task"] == "text" else settings["task"]
    measure = "accuracy" if view.is_accuracy else f"loss in {view.loss_unit}"
    seeds = len(settings["seeds"])
    return (
        f"{task}: {measure} by evaluation length; {view.shape}, trained for"
        f" {settings['steps']} steps at {view.trained_length} {view.unit},"
        f" {seeds} seed{'' if seeds == 1 else 's'}"
    )


def _build_results(view: ComparisonView) -> Any:
    from rich.text import Text

    rows, columns = view.rows, build_result_columns(view)
    heads = [_fold_head(column.head) for column in columns]
    table = _build_table(_describe_table(view), ["encoding", *heads])
    table.collapse_padding = True  # so that names fit into 80 columns
    table.caption, table.caption_justify = f"* the trained length. {describe_last_tenth()}", "left"
    best = [column.find_best(rows) if column.length else () for column in columns]
    for n, row in enumerate(rows):
        cells = [
            Text(column.words(row), style="bold green" if n in found else "")
            for column, found in zip(columns, best, strict=True)
        ]
        table.add_row(Text(str(row["name"])), *cells)
    return table


def _fold_head(head: str) -> str:
    """A head in two lines, so that names of 18 letters fit beside the numbers in 80 columns."""
    for long, short in (
        (" (trained)", "*"),
        (" at ", "\nat "),
        ("last tenth", "last\ntenth"),
        ("tokens/s", "tokens\nper s"),
    ):
        head = head.replace(long, short)
    return head


def _build_positions(view: ComparisonView) -> Any:
    """Table of the loss between one length and the next, in the longest windows."""
    from rich.text import Text

    title = f"Loss by position, of all tokens in windows of {view.longest} {view.unit}"
    spans = list(pairwise([0, *view.lengths]))
    table = _build_table(title, ["encoding", *(f"{start}-{end - 1}" for start, end in spans)])
    for row in view.rows:
        cells = [view.format_value(view.average_loss_between(row, *span)) for span in spans]
        table.add_row(Text(str(row["name"])), *cells)
    return table


def _build_differences(title: str, heads: list[str], rows: list[list[str]]) -> Any:
    from rich.text import Text

    table = _build_table(title, heads, no_wrap=False)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _build_claims(view: ComparisonView, heading: str, claims: Sequence[Row]) -> Any:
    """Outcomes and claims; the evidence is in the page, because it would fill a terminal."""
    from rich.text import Text

    table = _build_table(f"\nPublished claims: {heading.lower()}", [])
    outcomes = [view.describe_outcome(claim) for claim in claims]
    table.add_column("here", no_wrap=True, min_width=max(map(len, outcomes)))
    table.add_column("claim (evidence: report.html)", overflow="fold")
    for claim, outcome in zip(claims, outcomes, strict=True):
        style = _OUTCOMES.get(str(claim["outcome"]), "")
        words = Text.assemble(str(claim["claim"]), (f" ({_cite(claim)})", "dim"))
        table.add_row(Text(outcome, style), words)
    return table


def _cite(claim: Row) -> str:
    """Authors and year."""
    return re.split(r"(?<=\d{4})[:,]|:", str(claim["published"]), maxsplit=1)[0]


def _build_table(title: str, heads: Sequence[str], *, no_wrap: bool = True) -> Any:
    """An empty rich table: names in the first column, numbers in the others."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for n, head in enumerate(heads):
        if n == 0:
            table.add_column(head, overflow="fold")
        else:
            table.add_column(head, justify="right", no_wrap=no_wrap)
    return table


def _mark_best(column: Column, rows: Sequence[Row]) -> list[str]:
    """The texts of a column; in columns of results the best is bold."""
    best = column.find_best(rows) if column.length else ()
    texts = [column.words(row) for row in rows]
    return [f"**{text}**" if n in best else text for n, text in enumerate(texts)]


def _list_notes(comparison: Mapping[str, Any]) -> list[str]:
    """Sentences about rows that are not there, and the notes of the comparison."""
    missing = [
        f"Not finished: {one['name']} ({one['reason']})."
        for one in comparison.get("unfinished", ())
    ]
    if repeated := ComparisonView(comparison).repeated:
        missing.append(
            f"Not shown: {', '.join(repeated)}, because another encoding has the same numbers with"
            " that scaling."
        )
    return missing + [str(note) for note in comparison.get("notes", ())]


def _escape_markdown(text: object) -> str:
    """``text`` on one line, without what Markdown would take for HTML."""
    return " ".join(str(text).split()).replace("<", "&lt;")
