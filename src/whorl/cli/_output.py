"""What commands print: a page or one JSON document on standard output, progress on the other.

Text out of files cannot command the terminal: its control characters become escapes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import rich.console
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from whorl._support.words import escape_controls

__all__ = ["Console", "JsonFlag", "open_progress_bar", "print_json", "print_page", "print_result"]

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Found = TypeVar("Found")


class Console(rich.console.Console):
    """Rich's console; what rich itself sends to the terminal, such as colours, stays as it is."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of a renderable, their text without control characters but newlines."""
        for segment in super().render(renderable, options):
            safe = segment if segment.control else segment._replace(text=_escape(segment.text))
            yield safe


def _escape(text: str) -> str:
    return "\n".join(map(escape_controls, text.split("\n")))


def print_page(*parts: RenderableType) -> None:
    """Print the parts below each other on standard output."""
    console = Console(highlight=False)
    for part in parts:
        console.print(part)


def print_json(document: Any) -> None:
    """Print ``document``, indented: all that ``--json`` may put on standard output."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def print_result(
    found: Found, as_json: bool, render: Callable[[Found], Iterable[RenderableType]]
) -> None:
    """Print ``found.to_dict()`` as JSON, or else the parts that ``render`` makes of ``found``."""
    if as_json:
        print_json(found.to_dict())  # type: ignore[attr-defined]
    else:
        print_page(*render(found))


@contextmanager
def open_progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """A function of (done, total, label) that moves a bar; the bar goes when the block ends."""
    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    console = Console(stderr=True, highlight=False)
    # Without a terminal rich would leave one last bar in the log.
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=None)

        def show(done: int, total: int, label: str) -> None:
            progress.update(task, completed=done, total=total, description=escape(label))

        yield show
