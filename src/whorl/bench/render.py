"""Tables and sentences of every report, as Markdown and for the terminal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from whorl._support.markdown import render_table as markdown_table

if TYPE_CHECKING:
    from .report import BenchmarkReport

__all__ = [
    "TextTable", "build_problem_table", "build_target_table", "count_targets", "format_duration",
    "format_ratio", "format_threads", "render_headline", "render_markdown", "render_terminal",
]  # fmt: skip


class TextTable(NamedTuple):
    """A title, the heads of the columns, and rows with a text for each column.

    numbers: whether the columns after the first hold numbers.
    """

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: bool = True


def render_markdown(table: TextTable) -> str:
    """A table as Markdown, with its title in bold above it."""
    text = markdown_table(table.heads, table.rows, numbers=table.numbers)
    return f"**{table.title}**\n\n{text}"


def render_terminal(head: str, tables: Iterable[TextTable], end: str) -> Iterator[Any]:
    """Yield the headline, every table and the last line as objects that rich can print."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    yield Text(head, style="bold")
    for each in tables:
        yield Text(f"\n{each.title}", style="italic")  # not as the table's title: it would wrap
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.collapse_padding = True
        for n, name in enumerate(each.heads):
            table.add_column(
                name,
                justify="right" if n and each.numbers else "left",
                no_wrap=n == 0 and not name,
                overflow="fold",
            )
        for row in each.rows:
            style = "red" if "missed" in row else None
            table.add_row(*(Text(text) for text in row), style=style)
        yield table
    if end:
        yield Text(end)


def render_headline(report: "BenchmarkReport[Any]", note: str = "") -> str:
    """CPU, date, versions and command in one paragraph; ``note`` comes before the command."""
    where = report.environment
    versions = {"torch": where["torch"], **where["peers"]}
    with_what = ", ".join(f"{name} {found}" for name, found in versions.items())
    text = (
        f"{where['cpu']}, {where['cores']} cores, {where['date']}; {with_what};"
        f" kernel: {where['kernel']}."
    )
    if note:
        text += f" {note}"
    if where["command"]:
        text += f" Command: `{where['command']}`."
    return text if report.complete else text + " The run was not finished."


def build_target_table(report: "BenchmarkReport[Any]") -> TextTable:
    """Table of the targets that were measured, and whether they were reached."""
    words = {True: "reached", False: "missed"}
    rows = [
        (name, limit, f"{measured:.3g}", words[ok])
        for name, limit, measured, ok in report.check_targets()
        if measured is not None and ok is not None
    ]
    heads = ("target", "limit", "measured", "")
    return TextTable("Targets, 1 thread", heads, rows, numbers=False)


def build_problem_table(
    report: "BenchmarkReport[Any]", missing: Sequence[tuple[str, str, str]] = ()
) -> TextTable:
    """Table of contestants without a figure, and why; first those ``missing`` in all cells."""
    rows = [
        (cell.cell.key, result.title, result.problem)
        for cell in report.cells
        for result in cell.results
        if result.problem is not None
    ]
    heads = ("cell", "contestant", "reason")
    return TextTable(report.PROBLEMS, heads, [*missing, *rows], numbers=False)


def count_targets(report: "BenchmarkReport[Any]") -> str:
    """A sentence that says how many targets were reached."""
    judged = [target.ok for target in report.check_targets() if target.ok is not None]
    return f"Targets reached on one thread: {sum(judged)} of {len(judged)} measured."


def format_threads(threads: int) -> str:
    """A thread count with its noun: "1 thread", "2 threads"."""
    return f"{threads} thread{'s' * (threads != 1)}"


def format_duration(seconds: float) -> str:
    """Seconds with three digits, in s, ms or us.

    >>> format_duration(0.0123), format_duration(4.56e-6), format_duration(1.5)
    ('12.3 ms', '4.56 us', '1.5 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def format_ratio(value: float | None) -> str:
    """A ratio with two decimals below 10 and one below 100; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
