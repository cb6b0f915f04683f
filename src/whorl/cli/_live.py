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

from ._training import format_seconds

if TYPE_CHECKING:
    from whorl.lab.compare import RunStatus

__all__ = ["open_live_view"]

# Rows of the view: what is running, and around it what fits on a small screen.
_ROWS = 16


@contextmanager
def open_live_view() -> Iterator[Callable[[Sequence[RunStatus]], None]]:
    """A function of all lanes that draws them on standard error; without a terminal, lines."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _print_lines(console)
        return
    started = time.monotonic()
    with Live(console=console, transient=True, refresh_per_second=5) as live:
        yield lambda lanes: live.update(_render_lanes(lanes, time.monotonic() - started))


def _render_lanes(lanes: Sequence[RunStatus], seconds: float) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("run", "state", ""):
        table.add_column(head, no_wrap=True)
    for head in ("loss", "tokens/s", "left"):
        table.add_column(head, justify="right", no_wrap=True)
    for lane in _select_lanes(lanes):
        table.add_row(*_render_lane(lane))
    runs = [lane for lane in lanes if lane.is_run]
    ended = sum(lane.state in ("done", "failed") for lane in runs)
    line = f"{ended} of {len(runs)} runs done, {format_seconds(seconds)}"
    hidden = len(lanes) - min(len(lanes), _ROWS)
    failed = [Text(f"{x.name} failed: {x.reason}", "red") for x in lanes if x.state == "failed"]
    end = Text(line + (f"; {hidden} not shown" if hidden else ""), "dim")
    return Group(table, *failed, end)


def _select_lanes(lanes: Sequence[RunStatus]) -> list[RunStatus]:
    """Those that are running, the latest that ended and the next that wait, in their order."""
    order = {"running": 0, "failed": 1, "interrupted": 1, "waiting": 3, "done": 2}
    ended = [n for n, lane in enumerate(lanes) if lane.state == "done"]
    rank = {n: len(ended) - order for order, n in enumerate(ended)}
    keys = [(order[lane.state], rank.get(n, n), n) for n, lane in enumerate(lanes)]
    return [lanes[n] for n in sorted(key[2] for key in sorted(keys)[:_ROWS])]


def _render_lane(lane: RunStatus) -> tuple[Text | ProgressBar, ...]:
    style = {"done": "green", "failed": "red", "waiting": "dim"}.get(lane.state, "")
    what = lane.phase if lane.state == "running" else lane.state
    bar = ProgressBar(total=lane.total, completed=lane.done, width=16)
    speed = "" if lane.tokens_per_second is None else f"{lane.tokens_per_second:,.0f}"
    loss = "" if lane.loss is None else f"{lane.loss:.3f}"
    left = "" if lane.seconds_left is None else format_seconds(lane.seconds_left)
    running = lane.state == "running"
    return (
        Text(lane.name, style),
        Text(what, style),
        bar if running else Text(),
        Text(loss if running or lane.state == "done" else ""),
        Text(speed if running else ""),
        Text(left if running else ""),
    )


def _print_lines(console: Console) -> Callable[[Sequence[RunStatus]], None]:
    told: set[str] = set()

    def show(lanes: Sequence[RunStatus]) -> None:
        for lane in lanes:
            mark = f"{lane.name}: {lane.state}"
            if lane.state in ("running", "done", "failed", "interrupted") and mark not in told:
                told.add(mark)
                console.print(Text(mark + (f" ({lane.reason})" if lane.reason else "")))

    return show
