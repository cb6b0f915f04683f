"""A report as tables of text: Markdown for a README, rich ones for the terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from whorl.bench.grids import Grid, duration, ratio

from .plan import Kind
from .results import TITLES, UNIT, CellResult, Result

if TYPE_CHECKING:
    from .report import Report

__all__ = ["grids", "headline", "markdown", "tables"]

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
# Titles of grids that hold words rather than numbers.
_WORDY = ("Targets", "Not measured")


def grids(report: "Report") -> list[Grid]:
    """Everything a report has to say; grids without rows are left out."""
    found = []
    for threads in sorted({c.cell.threads for c in report.cells}):
        for kind, title in _TITLES.items():
            cells = [c for c in report.cells if (c.cell.kind, c.cell.threads) == (kind, threads)]
            plural = f"{threads} thread{'s' * (threads != 1)}"
            if kind in _WIDE and cells:
                found.append(_wide(f"{title}, {plural}", cells))
            elif kind not in _WIDE:
                found += [_tall(title, plural, cell) for cell in cells]
    found += [_target_grid(report), _problem_grid(report)]
    return [grid for grid in found if grid.rows]


def markdown(report: "Report") -> str:
    """Where it was measured, every table, and how many targets were reached."""
    parts = [headline(report), *map(_markdown, grids(report)), _counts(report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def tables(report: "Report") -> Iterator[Any]:
    """One renderable for each grid; needs rich."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    yield Text(headline(report), style="bold")
    for grid in grids(report):
        yield Text(f"\n{grid.title}", style="italic")  # a title of the table would be folded
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.collapse_padding = True
        for n, head in enumerate(grid.heads):
            words = n == 0 or grid.title.startswith(_WORDY)
            table.add_column(head, justify="left" if words else "right", overflow="fold")
        for row in grid.rows:
            style = "red" if "missed" in row else None
            table.add_row(*(Text(text) for text in row), style=style)
        yield table
    if counts := _counts(report):
        yield Text(counts)


def headline(report: "Report") -> str:
    """CPU, date, versions and command in one paragraph."""
    where = report.environment
    text = (
        f"{where['cpu']}, {where['cores']} cores, {where['date']}; torch {where['torch']};"
        f" kernel: {where['kernel']}. 8 heads of 64, batch 1, float32."
    )
    if where["command"]:
        text += f" Command: `{where['command']}`."
    return text if report.complete else text + " The run was not finished."


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


def _target_grid(report: "Report") -> Grid:
    rows = [
        (name, limit, f"{measured:.3g}", "reached" if ok else "missed")
        for name, limit, measured, ok in report.targets()
        if measured is not None
    ]
    return Grid("Targets, 1 thread", ("target", "limit", "measured", ""), rows)


def _problem_grid(report: "Report") -> Grid:
    rows = [
        (cell.cell.key, result.title, result.problem)
        for cell in report.cells
        for result in cell.results
        if result.problem is not None
    ]
    return Grid("Not measured", ("cell", "contestant", "reason"), rows)


def _markdown(grid: Grid) -> str:
    aligned = "---" if grid.title.startswith(_WORDY) else "---:"
    rule = ["---"] + [aligned] * (len(grid.heads) - 1)
    lines = [f"**{grid.title}**", "", *map(_line, (grid.heads, rule, *grid.rows))]
    return "\n".join(lines)


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _counts(report: "Report") -> str:
    judged = [target.ok for target in report.targets() if target.ok is not None]
    if not judged:
        return ""
    return f"Targets reached on one thread: {sum(judged)} of {len(judged)} measured."
