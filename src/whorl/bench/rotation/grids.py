"""A report as plain tables of text, which ``render`` turns into Markdown or a terminal table."""

from typing import TYPE_CHECKING

from whorl.bench._render import Grid, duration, ratio, target_grid, thread_count

from .peers import COPY, NAMES, OURS, TITLES
from .results import FORMS, CellResult

if TYPE_CHECKING:
    from .report import Report

__all__ = ["accuracy_grid", "grids", "loss_grid", "problem_grid", "speed_grid"]

# Positions of the accuracy that are shown; a saved report holds all.
_SHOWN = (1, 257, 4_000, 131_071, 1_000_000, 2**24 - 1)


def grids(report: "Report", *, merged: bool) -> list[Grid]:
    """Everything a report has to say; grids without rows are left out.

    merged: both layouts in one table, as "half / interleaved"; else a narrow table for each.
    """
    found = []
    cells = [cell.cell for cell in report.cells]
    for threads in sorted({cell.threads for cell in cells}):
        for dtype in dict.fromkeys(cell.dtype for cell in cells):
            layouts = tuple(dict.fromkeys(cell.layout for cell in cells))
            for group in (layouts,) if merged else tuple((layout,) for layout in layouts):
                found.append(speed_grid(report, threads, dtype, group))
    found += [accuracy_grid(report), target_grid(report), loss_grid(report), problem_grid(report)]
    return [grid for grid in found if grid.rows]


def speed_grid(report: "Report", threads: int, dtype: str, layouts: tuple[str, ...]) -> Grid:
    """Time of ``copy_`` for each shape, and below it the others as multiples of that."""
    cells = [
        cell
        for cell in report.cells
        if (cell.cell.threads, cell.cell.dtype) == (threads, dtype) and cell.cell.layout in layouts
    ]
    shapes: dict[str, dict[str, CellResult]] = {}
    for cell in cells:
        shapes.setdefault(cell.cell.shape.name, {})[cell.cell.layout] = cell
    rows = []
    if cells:
        rows.append((TITLES[COPY], *(_copy_text(group) for group in shapes.values())))
    for name, mode in _contestants(cells):
        texts = [_layouts_text(group, layouts, name, mode) for group in shapes.values()]
        rows.append((_head(name, mode), *texts))
    title = f"{dtype}, {' / '.join(layouts)}, {thread_count(threads)}: multiples of copy_"
    return Grid(title, ("", *(name.replace("-", " ") for name in shapes)), rows)


def accuracy_grid(report: "Report") -> Grid:
    """Largest error of cos and sin at some of the positions."""
    title = "Largest error of cos and sin by position"
    found = report.accuracy
    if found is None:
        return Grid(title, ("",), [])
    shown = [n for n, p in enumerate(found.positions) if p in _SHOWN] or range(len(found.positions))
    rows = [(name, *(f"{values[n]:.0e}" for n in shown)) for name, values in found.errors.items()]
    return Grid(title, ("", *(_short(found.positions[n]) for n in shown)), rows)


def loss_grid(report: "Report") -> Grid:
    """Comparisons lost beyond noise."""
    rows = [
        (cell, FORMS[mode], f"{TITLES[peer]} {FORMS[peer_mode]}", f"{value:.2f}")
        for cell, mode, peer, peer_mode, value, _ in report.losses()
    ]
    heads = ("cell", "whorl", "peer", "time / peer")
    return Grid("Slower than a peer", heads, rows, numbers=False)


def problem_grid(report: "Report") -> Grid:
    """Contestants that were not timed, and why."""
    rows = [("all", TITLES[name], why) for name, why in report.environment["missing"].items()]
    for cell in report.cells:
        for result in cell.results:
            if result.problem is not None:
                who = f"{TITLES[result.name]} {FORMS.get(result.mode, '')}".strip()
                rows.append((cell.cell.key, who, result.problem))
    return Grid("Not timed", ("cell", "contestant", "reason"), rows, numbers=False)


def _contestants(cells: list[CellResult]) -> list[tuple[str, str]]:
    """Contestant and mode of each row; training stands in the row of fresh results."""
    seen = {
        (r.name, "fresh" if r.mode == "training" else r.mode)
        for cell in cells
        for r in cell.results
        if r.timing is not None and r.name != COPY
    }
    order = [(name, mode) for name in (OURS, *NAMES) for mode in FORMS]
    return [row for row in order if row in seen]


def _short(position: int) -> str:
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if position >= size:
            return f"{position / size:.3g}{unit}"
    return str(position)


def _copy_text(by_layout: dict[str, CellResult]) -> str:
    copies = [s for cell in by_layout.values() if (s := cell.copy_seconds()) is not None]
    return duration(min(copies)) if copies else "-"


def _head(name: str, mode: str) -> str:
    if name == OURS:
        return f"whorl {FORMS[mode]}"
    return TITLES[name] if mode == "fresh" else f"{TITLES[name]} {FORMS[mode]}"


def _layouts_text(
    by_layout: dict[str, CellResult], layouts: tuple[str, ...], name: str, mode: str
) -> str:
    texts = []
    for layout in layouts:
        cell = by_layout.get(layout)
        trains = cell is not None and cell.cell.shape.kind == "training" and mode == "fresh"
        value = cell and cell.to_copy(name, "training" if trains else mode)
        texts.append(ratio(value or None))
    return "-" if set(texts) == {"-"} else " / ".join(texts)
