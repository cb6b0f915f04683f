"""A progress bar on standard error, so that standard output stays clean."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ._console import Console

__all__ = ["open_progress_bar"]


@contextmanager
def open_progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """A function of (done, total, label) that moves the bar; the bar goes when the block ends."""
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
