"""Tables of text that every report has, as Markdown and for the terminal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from whorl._support.markdown import table as markdown_table

from ._report import BaseReport

__all__ = [
    "Grid", "duration", "headline", "markdown", "ratio", "tables", "target_counts", "target_grid",
    "thread_count",
]  # fmt: skip


class Grid(NamedTuple):
    """A title, the heads of the columns, and rows of as many texts.

    numbers: whether that is what stands in the columns after the first.
    """

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numbers: bool = True


def markdown(grid: Grid) -> str:
    """The title in bold, and the table."""
    return f"**{grid.title}**\n\n{markdown_table(grid.heads, grid.rows, numbers=grid.numbers)}"


def tables(head: str, grids: Iterable[Grid], end: str) -> Iterator[Any]:
    """A renderable for each grid, between two paragraphs; needs rich."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    yield Text(head, style="bold")
    for grid in grids:
        yield Text(f"\n{grid.title}", style="italic")  # a title of the table would be folded
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.collapse_padding = True
        for n, name in enumerate(grid.heads):
            table.add_column(
                name,
                justify="right" if n and grid.numbers else "left",
                no_wrap=n == 0 and not name,
                overflow="fold",
            )
        for row in grid.rows:
            style = "red" if "missed" in row else None
            table.add_row(*(Text(text) for text in row), style=style)
        yield table
    if end:
        yield Text(end)


def headline(report: BaseReport[Any], note: str = "") -> str:
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


def target_grid(report: BaseReport[Any]) -> Grid:
    """Targets that were measured."""
    words = {True: "reached", False: "missed"}
    rows = [
        (name, limit, f"{measured:.3g}", words[ok])
        for name, limit, measured, ok in report.targets()
        if measured is not None and ok is not None
    ]
    return Grid("Targets, 1 thread", ("target", "limit", "measured", ""), rows, numbers=False)


def target_counts(report: BaseReport[Any]) -> str:
    """How many targets were reached."""
    judged = [target.ok for target in report.targets() if target.ok is not None]
    return f"Targets reached on one thread: {sum(judged)} of {len(judged)} measured."


def thread_count(threads: int) -> str:
    """Such as "1 thread", "2 threads"."""
    return f"{threads} thread{'s' * (threads != 1)}"


def duration(seconds: float) -> str:
    """Three digits in a unit that suits: "12.3 ms", "4.56 us".

    >>> duration(0.0123), duration(4.56e-6), duration(1.5)
    ('12.3 ms', '4.56 us', '1.5 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def ratio(value: float | None) -> str:
    """Two decimals below 10, one below 100."""
    if value is None:
        return "-"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
