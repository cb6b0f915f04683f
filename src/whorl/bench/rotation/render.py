"""A report as Markdown for a README and as tables for the terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from whorl.bench import _render
from whorl.bench._render import headline, target_counts

from . import grids

if TYPE_CHECKING:
    from .report import Report

__all__ = ["markdown", "readme", "tables"]

LEGEND = (
    "Medians of samples taken in turn. The number in a shape's name is the batch size for decode,"
    " else the length; training is forward + backward and stands in the fresh rows. Bound once runs"
    " on tensors that were shown to it before and never move. whorl in place is judged against each"
    " peer's fastest form for new tensors, its other forms against the same form."
)


def markdown(report: "Report") -> str:
    """Where it was measured, then speed, accuracy, and what was lost or not timed."""
    parts = [headline(report)]
    for grid in grids.grids(report, merged=True):
        if grid.title.startswith("Targets"):
            parts.append(_summary(report))
        else:
            parts.append(_render.markdown(grid))
    if report.cells:
        notes = "; ".join(f"{name}: {note}" for name, note in report.environment["notes"].items())
        parts.append(f"{LEGEND} {notes}.")
    return "\n\n".join(parts) + "\n"


def readme(report: "Report") -> dict[str, str]:
    """The same in parts, for places in Markdown files: "speed", "halves", "accuracy", "losses"."""
    accuracy = grids.accuracy_grid(report)
    others = [grid for grid in grids.grids(report, merged=True) if "multiples" in grid.title]
    lost = grids.loss_grid(report)
    full = [grid for grid in others if grid.title.startswith("float32")]
    halves = [grid for grid in others if grid not in full]
    speed = [
        headline(report),
        *_best(report),
        *map(_render.markdown, full),
        LEGEND,
        _summary(report),
    ]
    return {
        "speed": "\n\n".join(speed),
        "halves": "\n\n".join(map(_render.markdown, halves)),
        "accuracy": _render.markdown(accuracy),
        "losses": _render.markdown(lost) if lost.rows else "None.",
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
    end = _counts(report) if report.cells else ""
    return _render.tables(headline(report), grids.grids(report, merged=False), end)


def _summary(report: "Report") -> str:
    """How many targets were reached, and which were not."""
    missed = [f"{t.name}: {t.measured:.3g} ({t.limit})" for t in report.targets() if t.ok is False]
    return _counts(report) + (f" Missed: {'; '.join(missed)}." if missed else "")


def _counts(report: "Report") -> str:
    single = [loss for loss in report.losses() if loss.cell.endswith("/1")]
    more = len(report.losses()) - len(single)
    lost = "1 comparison" if len(single) == 1 else f"{len(single) or 'no'} comparisons"
    rest = f", on more threads in {more}" if more else ""
    return f"{target_counts(report)} Slower than a peer beyond noise in {lost}{rest}."
