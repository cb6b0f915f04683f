"""Tables of a rotation report, as plain text."""

from typing import TYPE_CHECKING

from whorl.bench.render import TextTable, format_duration, format_ratio, format_threads

from .peers import COPY, NAMES, OURS, TITLES
from .results import FORMS, CellResult

if TYPE_CHECKING:
    from .report import Report

__all__ = [
    "build_accuracy_table",
    "build_loss_table",
    "build_speed_tables",
    "list_missing_peers",
]

# Positions in the table of accuracy; a saved report has more.
_SHOWN = (1, 257, 4_000, 131_071, 1_000_000, 2**24 - 1)


def build_speed_tables(report: "Report", *, merged: bool) -> list[TextTable]:
    """A table of speed for each thread count and dtype.

    merged: both layouts in one table, as "half / interleaved"; else one for each layout.
    """
    found = []
    cells = [cell.cell for cell in report.cells]
    for threads in sorted({cell.threads for cell in cells}):
        for dtype in dict.fromkeys(cell.dtype for cell in cells):
            layouts = tuple(dict.fromkeys(cell.layout for cell in cells))
            for group in (layouts,) if merged else tuple((layout,) for layout in layouts):
                found.append(_build_speed_table(report, threads, dtype, group))
    return found


def _build_speed_table(
    report: "Report", threads: int, dtype: str, layouts: tuple[str, ...]
) -> TextTable:
    """A table with a column for each shape: seconds of ``copy_``, ratios of the others."""
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
        rows.append((TITLES[COPY], *(_format_copy(group) for group in shapes.values())))
    for name, mode in _list_contestants(cells):
        texts = [_format_layouts(group, layouts, name, mode) for group in shapes.values()]
        rows.append((_format_contestant(name, mode), *texts))
    title = f"{dtype}, {' / '.join(layouts)}, {format_threads(threads)}: multiples of copy_"
    return TextTable(title, ("", *(name.replace("-", " ") for name in shapes)), rows)


def build_accuracy_table(report: "Report") -> TextTable:
    """Table of the largest errors of cos and sin."""
    title = "Largest error of cos and sin by position"
    found = report.accuracy
    if found is None:
        return TextTable(title, ("",), [])
    shown = [n for n, p in enumerate(found.positions) if p in _SHOWN] or range(len(found.positions))
    rows = [(name, *(f"{values[n]:.0e}" for n in shown)) for name, values in found.errors.items()]
    return TextTable(title, ("", *(_shorten(found.positions[n]) for n in shown)), rows)


def build_loss_table(report: "Report") -> TextTable:
    """Table of the comparisons in which whorl is slower by more than noise."""
    rows = [
        (cell, FORMS[mode], f"{TITLES[peer]} {FORMS[peer_mode]}", f"{value:.2f}")
        for cell, mode, peer, peer_mode, value, _ in report.find_losses()
    ]
    heads = ("cell", "whorl", "peer", "time / peer")
    return TextTable("Slower than a peer", heads, rows, numbers=False)


def list_missing_peers(report: "Report") -> list[tuple[str, str, str]]:
    """Rows of the table of problems for peers that cannot be imported."""
    return [("all", TITLES[name], why) for name, why in report.environment["missing"].items()]


def _list_contestants(cells: list[CellResult]) -> list[tuple[str, str]]:
    """Contestant and mode of each row; training is in the rows of fresh results."""
    seen = {
        (r.name, "fresh" if r.mode == "training" else r.mode)
        for cell in cells
        for r in cell.results
        if r.timing is not None and r.name != COPY
    }
    order = [(name, mode) for name in (OURS, *NAMES) for mode in FORMS]
    return [row for row in order if row in seen]


def _shorten(position: int) -> str:
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if position >= size:
            return f"{position / size:.3g}{unit}"
    return str(position)


def _format_copy(by_layout: dict[str, CellResult]) -> str:
    copies = [s for cell in by_layout.values() if (s := cell.get_copy_seconds()) is not None]
    return format_duration(min(copies)) if copies else "-"


def _format_contestant(name: str, mode: str) -> str:
    if name == OURS:
        return f"whorl {FORMS[mode]}"
    return TITLES[name] if mode == "fresh" else f"{TITLES[name]} {FORMS[mode]}"


def _format_layouts(
    by_layout: dict[str, CellResult], layouts: tuple[str, ...], name: str, mode: str
) -> str:
    texts = []
    for layout in layouts:
        cell = by_layout.get(layout)
        trains = cell is not None and cell.cell.shape.kind == "training" and mode == "fresh"
        value = cell and cell.compute_copy_ratio(name, "training" if trains else mode)
        texts.append(format_ratio(value or None))
    return "-" if set(texts) == {"-"} else " / ".join(texts)
