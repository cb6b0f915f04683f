"""The live view of ``whorl compare``: every run that is under way, and how far all of them are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from whorl._support.launch import is_main_process

from ._options import replace_names
from ._setup import CONFIG_NAMES
from ._training import format_seconds

if TYPE_CHECKING:
    from whorl.lab.compare import RunStatus

__all__ = ["open_live_view"]

# Rows of the view: what is running, and around it what fits on a small screen.
_ROWS = 16


@contextmanager
def open_live_view() -> Iterator[Callable[[Sequence[RunStatus]], None]]:
    """A function that draws the status of all runs on standard error, or prints lines."""
    if not is_main_process():
        yield _show_nothing
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _print_lines(console)
        return
    started = time.monotonic()
    with Live(console=console, transient=True, refresh_per_second=5) as live:
        yield lambda statuses: live.update(_render_statuses(statuses, time.monotonic() - started))


def _show_nothing(statuses: Sequence[RunStatus]) -> None:
    pass


def _render_statuses(statuses: Sequence[RunStatus], seconds: float) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("run", "state", ""):
        table.add_column(head, no_wrap=True)
    for head in ("loss", "tokens/s", "left"):
        table.add_column(head, justify="right", no_wrap=True)
    for status in _select_statuses(statuses):
        table.add_row(*_render_status(status))
    runs = [status for status in statuses if status.is_run]
    ended = sum(status.state in ("done", "failed") for status in runs)
    line = f"{ended} of {len(runs)} runs done, {format_seconds(seconds)}"
    hidden = len(statuses) - min(len(statuses), _ROWS)
    failed = [
        Text(f"{x.name} failed: {replace_names(x.reason, CONFIG_NAMES)}", "red")
        for x in statuses
        if x.state == "failed"
    ]
    end = Text(line + (f"; {hidden} not shown" if hidden else ""), "dim")
    return Group(table, *failed, end)


def _select_statuses(statuses: Sequence[RunStatus]) -> list[RunStatus]:
    """Those that are running, the latest that ended and the next that wait, in their order."""
    order = {"running": 0, "failed": 1, "interrupted": 1, "waiting": 3, "done": 2}
    ended = [n for n, status in enumerate(statuses) if status.state == "done"]
    rank = {n: len(ended) - order for order, n in enumerate(ended)}
    keys = [(order[status.state], rank.get(n, n), n) for n, status in enumerate(statuses)]
    return [statuses[n] for n in sorted(key[2] for key in sorted(keys)[:_ROWS])]


def _render_status(status: RunStatus) -> tuple[Text | ProgressBar, ...]:
    style = {"done": "green", "failed": "red", "waiting": "dim"}.get(status.state, "")
    what = status.phase if status.state == "running" else status.state
    bar = ProgressBar(total=status.total, completed=status.done, width=16)
    speed = "" if status.tokens_per_second is None else f"{status.tokens_per_second:,.0f}"
    loss = "" if status.loss is None else f"{status.loss:.3f}"
    left = "" if status.seconds_left is None else format_seconds(status.seconds_left)
    running = status.state == "running"
    return (
        Text(status.name, style),
        Text(what, style),
        bar if running else Text(),
        Text(loss if running or status.state == "done" else ""),
        Text(speed if running else ""),
        Text(left if running else ""),
    )


def _print_lines(console: Console) -> Callable[[Sequence[RunStatus]], None]:
    told: set[str] = set()

    def show(statuses: Sequence[RunStatus]) -> None:
        for status in statuses:
            mark = f"{status.name}: {status.state}"
            if status.state in ("running", "done", "failed", "interrupted") and mark not in told:
                told.add(mark)
                reason = replace_names(status.reason, CONFIG_NAMES)
                console.print(Text(mark + (f" ({reason})" if reason else "")))

    return show
