"""A report as Markdown for a README and as tables for the terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import grids
from .grids import Grid

if TYPE_CHECKING:
    from .report import Report

__all__ = ["headline", "markdown", "readme", "tables"]

LEGEND = (
    "Medians of samples taken in turn. The number in a shape's name is the batch size for decode,"
    " else the length; training is forward + backward and stands in the fresh rows. Bound once runs"
    " on tensors that were shown to it before and never move. whorl in place is judged against each"
    " peer's fastest form for new tensors, its other forms against the same form."
)

# Titles of grids that hold words rather than numbers.
_WORDY = ("Targets", "Slower", "Not timed")


def markdown(report: "Report") -> str:
    """Where it was measured, then speed, accuracy, and what was lost or not timed."""
    parts = [headline(report)]
    for grid in grids.grids(report, merged=True):
        if grid.title.startswith("Targets"):
            parts.append(_summary(report))
        else:
            parts.append(_markdown(grid))
    if report.cells:
        notes = "; ".join(f"{name}: {note}" for name, note in report.environment["notes"].items())
        parts.append(f"{LEGEND} {notes}.")
    return "\n\n".join(parts) + "\n"


def readme(report: "Report") -> dict[str, str]:
    """The same in parts, for places in Markdown files: "speed", "accuracy" and "losses"."""
    accuracy = grids.accuracy_grid(report)
    others = [grid for grid in grids.grids(report, merged=True) if "multiples" in grid.title]
    lost = grids.loss_grid(report)
    speed = [headline(report), *_best(report), *map(_markdown, others), LEGEND, _summary(report)]
    return {
        "speed": "\n\n".join(speed),
        "accuracy": _markdown(accuracy),
        "losses": _markdown(lost) if lost.rows else "None.",
    }


def _best(report: "Report") -> list[str]:
    """One sentence with the figure that most people look for."""
    start = "prefill-4096 float32 in place, "
    found = {t.name.removeprefix(start): t.measured for t in report.targets() if t.ok is not None}
    wanted = ("time / copy_", "times faster than Hugging Face", "times faster than HF compiled")
    if not all(name in found for name in wanted):
        return []
    copy, eager, compiled = (found[name] for name in wanted)
    return [
        f"Rotating 4096 tokens in place in float32 takes {copy:.2g} of the time of copying them,"
        f" and is {eager:.0f} times faster than Hugging Face eager and {compiled:.0f} times faster"
        " than Hugging Face compiled."
    ]


def tables(report: "Report") -> Iterator[Any]:
    """One renderable for each grid; needs rich."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    yield Text(headline(report), style="bold")
    for grid in grids.grids(report, merged=False):
        table = Table(title=grid.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        table.collapse_padding = True
        for n, head in enumerate(grid.heads):
            words = grid.title.startswith(_WORDY) or n == 0
            table.add_column(
                head,
                justify="left" if words else "right",
                no_wrap=n == 0 and not grid.heads[0],
                overflow="fold",
            )
        for row in grid.rows:
            style = "red" if "missed" in row else None
            table.add_row(*(Text(text) for text in row), style=style)
        yield table
    if report.cells:
        yield Text(_counts(report))


def headline(report: "Report") -> str:
    """CPU, date, versions and command in one paragraph."""
    where = report.environment
    versions = ", ".join(f"{name} {found}" for name, found in where["peers"].items())
    text = (
        f"{where['cpu']}, {where['cores']} cores, {where['date']}; torch {where['torch']},"
        f" {versions}; kernel: {where['kernel']}."
    )
    if where["command"]:
        text += f" Command: `{where['command']}`."
    return text if report.complete else text + " The run was not finished."


def _markdown(grid: Grid) -> str:
    lines = [f"**{grid.title}**", "", _line(grid.heads)]
    aligned = "---" if grid.title.startswith(_WORDY) else "---:"
    lines.append(_line(["---"] + [aligned] * (len(grid.heads) - 1)))
    lines += [_line(row) for row in grid.rows]
    return "\n".join(lines)


def _line(texts: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _summary(report: "Report") -> str:
    """How many targets were reached, and which were not."""
    missed = [f"{t.name}: {t.measured:.3g} ({t.limit})" for t in report.targets() if t.ok is False]
    return _counts(report) + (f" Missed: {'; '.join(missed)}." if missed else "")


def _counts(report: "Report") -> str:
    judged = [target.ok for target in report.targets() if target.ok is not None]
    count = len(report.losses())
    lost = "1 comparison" if count == 1 else f"{count or 'no'} comparisons"
    return (
        f"Targets reached on one thread: {sum(judged)} of {len(judged)} measured."
        f" Slower than a peer beyond noise in {lost}."
    )
