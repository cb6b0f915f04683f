"""A report as plain tables of text, which ``render`` turns into Markdown or a terminal table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .peers import COPY, NAMES, OURS, TITLES
from .results import FORMS, CellResult

if TYPE_CHECKING:
    from .report import Report

__all__ = ["Grid", "accuracy_grid", "duration", "grids", "loss_grid", "ratio", "speed_grid"]

# Positions of the accuracy that are shown; a saved report holds all.
_SHOWN = (1, 257, 4_000, 131_071, 1_000_000, 2**24 - 1)


class Grid(NamedTuple):
    """A title, the heads of the columns, and rows of as many texts."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


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
    plural = "1 thread" if threads == 1 else f"{threads} threads"
    title = f"{dtype}, {' / '.join(layouts)}, {plural}: multiples of copy_"
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


def target_grid(report: "Report") -> Grid:
    """Targets that were measured."""
    words = {True: "reached", False: "missed"}
    rows = [
        (name, limit, f"{measured:.3g}", words[ok])
        for name, limit, measured, ok in report.targets()
        if measured is not None and ok is not None
    ]
    return Grid("Targets, 1 thread", ("target", "limit", "measured", ""), rows)


def loss_grid(report: "Report") -> Grid:
    """Comparisons lost beyond noise."""
    rows = [
        (cell, FORMS[mode], f"{TITLES[peer]} {FORMS[peer_mode]}", f"{value:.2f}")
        for cell, mode, peer, peer_mode, value, _ in report.losses()
    ]
    return Grid("Slower than a peer", ("cell", "whorl", "peer", "time / peer"), rows)


def problem_grid(report: "Report") -> Grid:
    """Contestants that were not timed, and why."""
    rows = [("all", TITLES[name], why) for name, why in report.environment["missing"].items()]
    for cell in report.cells:
        for result in cell.results:
            if result.problem is not None:
                who = f"{TITLES[result.name]} {FORMS.get(result.mode, '')}".strip()
                rows.append((cell.cell.key, who, result.problem))
    return Grid("Not timed", ("cell", "contestant", "reason"), rows)


def duration(seconds: float) -> str:
    """Three digits in a unit that suits: "12.3 ms", "4.56 us".

    >>> duration(0.0123), duration(4.56e-6), duration(1.5)
    ('12.3 ms', '4.56 us', '1.5 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def ratio(value: float | None) -> str:
    """Two decimals below 10, one below 100."""
    if value is None:
        return "-"
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


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
