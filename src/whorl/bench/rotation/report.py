"""Report of the rotation benchmark: its tables, and the parts of the README files."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCellResult
from whorl.bench.render import (
    TextTable,
    format_duration,
    format_ratio,
    format_threads,
    render_markdown,
    render_terminal,
)
from whorl.bench.report import BenchmarkReport
from whorl.bench.targets import BenchmarkTarget

from . import targets
from .accuracy import Accuracy
from .peers import COPY, NAMES, OURS, TITLES
from .results import FORMS, CellResult

__all__ = ["Report", "render_readme_parts"]

# Positions in the table of accuracy; a saved report has more.
_SHOWN = (1, 257, 4_000, 131_071, 1_000_000, 2**24 - 1)
LEGEND = (
    "Medians of samples taken alternately. The number in a shape's name is the batch size for"
    " decode, else the length; training is forward + backward and is in the fresh rows. Bound once"
    " is a call that was prepared for its tensors before the timing. whorl in place is compared"
    " with each peer's fastest mode that accepts new tensors, every other mode with the same mode."
)


@dataclass(frozen=True)
class Report(BenchmarkReport[CellResult]):
    """Results of the rotation benchmark, and the accuracy of the tables."""

    accuracy: Accuracy | None = None

    FORMAT: ClassVar[int | str] = 1
    CELL_RESULT: ClassVar[type[BenchmarkCellResult[Any, Any]]] = CellResult

    def check_targets(self) -> list[BenchmarkTarget]:
        return targets.check_targets(self.cells)

    def find_losses(self) -> list[targets.PeerComparison]:
        """Every comparison in which whorl is slower by more than noise, the worst first."""
        return targets.find_losses(self.cells)

    def build_tables(self, *, merged: bool = True) -> list[TextTable]:
        """Tables of speed and accuracy; merged: both layouts in one table."""
        return [*build_speed_tables(self, merged=merged), build_accuracy_table(self)]

    def render_markdown(self) -> str:
        """The report as Markdown: environment, speed, accuracy, what was lost or not timed."""
        parts = [
            self.render_headline(),
            *(render_markdown(table) for table in self.build_tables() if table.rows),
            *([self.summarize_targets()] if self.build_target_table().rows else []),
            *(render_markdown(table) for table in self._list_failures()),
        ]
        if self.cells:
            notes = "; ".join(f"{name}: {note}" for name, note in self.environment["notes"].items())
            parts.append(f"{LEGEND} {notes}.")
        return "\n\n".join(parts) + "\n"

    def build_terminal_tables(self) -> Iterator[Any]:
        found = [*self.build_tables(merged=False), self.build_target_table()]
        found = [table for table in found if table.rows] + self._list_failures()
        end = self.count_targets() if self.cells else ""
        return render_terminal(self.render_headline(), found, end)

    def count_targets(self) -> str:
        """Sentences: how many targets were reached, and how many comparisons lost."""
        losses = self.find_losses()
        single = sum(loss.cell.endswith("/1") for loss in losses)
        more = len(losses) - single
        lost = "1 comparison" if single == 1 else f"{single or 'no'} comparisons"
        rest = f", on more threads in {more}" if more else ""
        return f"{super().count_targets()} Slower than a peer beyond noise in {lost}{rest}."

    def summarize_targets(self) -> str:
        """The same sentences, and which targets were missed."""
        missed = [
            f"{t.name}: {t.measured:.3g} ({t.limit})" for t in self.check_targets() if t.ok is False
        ]
        return self.count_targets() + (f" Missed: {'; '.join(missed)}." if missed else "")

    def build_problem_table(self) -> TextTable:
        """Table of peers that cannot be imported or were not timed in a cell, and why."""
        table, missing = super().build_problem_table(), self.environment["missing"]
        absent = [("all", TITLES[name], why) for name, why in missing.items()]
        return table._replace(rows=[*absent, *table.rows])

    def _list_failures(self) -> list[TextTable]:
        """Tables of comparisons that were lost and of contestants that were not timed."""
        found = (build_loss_table(self), self.build_problem_table())
        return [table for table in found if table.rows]

    def cell_to_dict(self, cell: CellResult) -> dict[str, Any]:
        compared = [comparison._asdict() for comparison in targets.compare_with_peers(cell)]
        return {**cell.to_dict(), "comparisons": compared}

    def build_extras(self) -> dict[str, Any]:
        return {
            "accuracy": None if self.accuracy is None else self.accuracy.to_dict(),
            **super().build_extras(),
            "losses": [loss._asdict() for loss in self.find_losses()],
        }

    @classmethod
    def read_extras(cls, data: dict[str, Any]) -> dict[str, Any]:
        found = data["accuracy"]
        return {"accuracy": None if found is None else Accuracy.from_dict(found)}


def render_readme_parts(report: Report) -> dict[str, str]:
    """Markdown for the README files by place: "headline" and "speed" and so on."""
    lost = build_loss_table(report)
    tables = [table for table in build_speed_tables(report, merged=True) if table.rows]
    full = [table for table in tables if table.title.startswith("float32")]
    halves = [table for table in tables if table not in full]
    headline = report.render_headline()
    speed = [
        headline,
        *map(render_markdown, full),
        LEGEND,
        report.summarize_targets(),
    ]
    return {
        "headline": "\n\n".join([headline, *_describe_best(report)]),
        "speed": "\n\n".join(speed),
        "halves": "\n\n".join(map(render_markdown, halves)),
        "accuracy": render_markdown(build_accuracy_table(report)),
        "losses": render_markdown(lost) if lost.rows else "None.",
    }


def _describe_best(report: Report) -> list[str]:
    """A sentence with the most important figures, or nothing if they were not measured."""
    start = "prefill-4096 float32 in place, "
    found = {
        t.name.removeprefix(start): t.measured for t in report.check_targets() if t.ok is not None
    }
    wanted = ("time / copy_", "times faster than Hugging Face", "times faster than HF compiled")
    if not all(name in found for name in wanted):
        return []
    copy, eager, compiled = (found[name] for name in wanted)
    return [
        f"Rotating 4096 tokens in place in float32 takes {copy:.2g} of the time of copying them,"
        f" and is {eager:.0f} times faster than Hugging Face eager and {compiled:.0f} times faster"
        " than Hugging Face compiled."
    ]


def build_speed_tables(report: Report, *, merged: bool) -> list[TextTable]:
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
    report: Report, threads: int, dtype: str, layouts: tuple[str, ...]
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


def build_accuracy_table(report: Report) -> TextTable:
    """Table of the largest errors of cos and sin."""
    title = "Largest error of cos and sin by position"
    found = report.accuracy
    if found is None:
        return TextTable(title, ("",), [])
    shown = [n for n, p in enumerate(found.positions) if p in _SHOWN] or range(len(found.positions))
    rows = [(name, *(f"{values[n]:.0e}" for n in shown)) for name, values in found.errors.items()]
    return TextTable(title, ("", *(_shorten(found.positions[n]) for n in shown)), rows)


def build_loss_table(report: Report) -> TextTable:
    """Table of the comparisons in which whorl is slower by more than noise."""
    rows = [
        (cell, FORMS[mode], f"{TITLES[peer]} {FORMS[peer_mode]}", f"{value:.2f}")
        for cell, mode, peer, peer_mode, value, _ in report.find_losses()
    ]
    heads = ("cell", "whorl", "peer", "time / peer")
    return TextTable("Slower than a peer", heads, rows, numbers=False)


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
