"""A report as tables of text: Markdown for a README, rich ones for the terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from whorl.bench import _render
from whorl.bench._render import Grid, duration, ratio, target_grid, thread_count

from .plan import Kind
from .results import TITLES, UNIT, CellResult, Result

if TYPE_CHECKING:
    from .report import Report

__all__ = ["grids", "markdown", "tables"]

_TITLES: dict[Kind, str] = {
    "causal": "Causal, forward: multiples of SDPA without bias",
    "training": "Causal, forward + backward: multiples of SDPA without bias",
    "linear": "Linear attention, causal: multiples of SDPA",
    "memory": "Peak memory beyond q, k and v at",
    "doubling": "Linear attention alone",
    "recurrent": "Linear attention, time for one token after",
    "streaming": "Stream of sinks and window, time for one token after",
    "stepped": "Frequencies that follow the length, time for one token after",
}
_WIDE: tuple[Kind, ...] = ("causal", "training", "linear")
_SIZES = "8 heads of 64, batch 1, float32."


def grids(report: "Report") -> list[Grid]:
    """Everything a report has to say; grids without rows are left out."""
    found = []
    for threads in sorted({c.cell.threads for c in report.cells}):
        for kind, title in _TITLES.items():
            cells = [c for c in report.cells if (c.cell.kind, c.cell.threads) == (kind, threads)]
            plural = thread_count(threads)
            if kind in _WIDE and cells:
                found.append(_wide(f"{title}, {plural}", cells))
            elif kind not in _WIDE:
                found += [_tall(title, plural, cell) for cell in cells]
    found += [target_grid(report), _problem_grid(report)]
    return [grid for grid in found if grid.rows]


def markdown(report: "Report") -> str:
    """Where it was measured, every table, and how many targets were reached."""
    parts = [_render.headline(report, _SIZES), *map(_render.markdown, grids(report))]
    return "\n\n".join([*parts, *_counts(report)]) + "\n"


def tables(report: "Report") -> Iterator[Any]:
    """One renderable for each grid; needs rich."""
    return _render.tables(_render.headline(report, _SIZES), grids(report), "".join(_counts(report)))


def _wide(title: str, cells: Sequence[CellResult]) -> Grid:
    """A column for each length; the unit in seconds, the others as multiples of it."""
    unit = UNIT[cells[0].cell.kind]
    seen = {r.name for c in cells for r in c.results if r.value is not None}
    rows = []
    for name in (name for name in TITLES if name in seen):
        texts = []
        for cell in cells:
            seconds = cell.value(name) if name == unit else None
            texts.append(ratio(cell.ratio(name)) if seconds is None else duration(seconds))
        rows.append((TITLES[name], *texts))
    return Grid(title, ("", *(str(c.cell.length) for c in cells)), rows)


def _tall(title: str, plural: str, cell: CellResult) -> Grid:
    """A row for each contestant: seconds or bytes, and the multiple of the first one."""
    done = [r for r in cell.results if r.value is not None]
    if not cell.cell.lengths:
        title += f" {cell.cell.length} tokens"
    what = "memory" if cell.cell.kind == "memory" else "time"
    rows = [(r.title, _amount(r), ratio(cell.ratio(r.name, done[0].name))) for r in done]
    return Grid(f"{title}, {plural}", ("", what, "multiple"), rows)


def _amount(result: Result) -> str:
    if result.timing is not None:
        return duration(result.timing.median)
    assert result.peak is not None
    return f"{result.peak / 1e6:,.0f} MB"


def _problem_grid(report: "Report") -> Grid:
    rows = [
        (cell.cell.key, result.title, result.problem)
        for cell in report.cells
        for result in cell.results
        if result.problem is not None
    ]
    return Grid("Not measured", ("cell", "contestant", "reason"), rows, numbers=False)


def _counts(report: "Report") -> list[str]:
    judged = any(target.ok is not None for target in report.targets())
    return [_render.target_counts(report)] if judged else []
