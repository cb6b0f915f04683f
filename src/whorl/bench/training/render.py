"""A report as tables of text: Markdown for a README, rich ones for the terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from whorl.bench import _render
from whorl.bench._render import Grid, duration, ratio, target_grid

from .plan import BASELINE
from .results import CellResult

if TYPE_CHECKING:
    from .report import Report

__all__ = ["grids", "markdown", "tables", "title_of"]

_NOTE = "A step is forward, backward, clipping and AdamW, in float32."
_HEADS = ("", "parameters", "of positions", "step", "tokens/s", "time / GPT")


def title_of(name: str) -> str:
    """What people call a contestant."""
    return "plain GPT" if name == BASELINE else f"lab, {name}"


def grids(report: "Report") -> list[Grid]:
    """Everything a report has to say; grids without rows are left out."""
    found = [_cell_grid(cell) for cell in report.cells]
    found += [target_grid(report), _problem_grid(report)]
    return [grid for grid in found if grid.rows]


def markdown(report: "Report") -> str:
    """Where it was measured, every table, and how many targets were reached."""
    parts = [_render.headline(report, _NOTE), *map(_render.markdown, grids(report))]
    return "\n\n".join([*parts, *_counts(report)]) + "\n"


def tables(report: "Report") -> Iterator[Any]:
    """One renderable for each grid; needs rich."""
    head = _render.headline(report, _NOTE)
    return _render.tables(head, grids(report), "".join(_counts(report)))


def _cell_grid(cell: CellResult) -> Grid:
    rows = []
    for result in cell.results:
        speed = cell.tokens_per_second(result.name)
        if result.timing is None or speed is None:
            continue
        sizes = (f"{result.parameters or 0:,}", f"{result.positional or 0:,}")
        times = (duration(result.timing.median), f"{speed:,.0f}", ratio(cell.ratio(result.name)))
        rows.append((title_of(result.name), *sizes, *times))
    return Grid(cell.cell.label, _HEADS, rows)


def _problem_grid(report: "Report") -> Grid:
    rows = [
        (cell.cell.key, title_of(result.name), result.problem)
        for cell in report.cells
        for result in cell.results
        if result.problem is not None
    ]
    return Grid("Not timed", ("cell", "contestant", "reason"), rows, numbers=False)


def _counts(report: "Report") -> list[str]:
    judged = any(target.ok is not None for target in report.targets())
    return [_render.target_counts(report)] if judged else []
