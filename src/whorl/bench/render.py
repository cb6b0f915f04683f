"""Tables as Markdown and for the terminal, and numbers as people read them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from whorl._support.markdown import render_table as markdown_table

__all__ = [
    "TextTable",
    "format_duration",
    "format_ratio",
    "format_threads",
    "render_markdown",
    "render_terminal",
]


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
