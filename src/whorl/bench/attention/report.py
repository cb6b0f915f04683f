"""Report of the attention benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCellResult
from whorl.bench.render import TextTable, format_duration, format_ratio, format_threads
from whorl.bench.report import BenchmarkReport
from whorl.bench.targets import BenchmarkTarget

from . import targets
from .plan import TITLES, UNIT, AttentionCellKind, CellResult, Result

__all__ = ["Report"]

_TITLES: dict[AttentionCellKind, str] = {
    "causal": "Causal, forward: multiples of SDPA without bias",
    "training": "Causal, forward + backward: multiples of SDPA without bias",
    "linear": "Linear attention, causal: multiples of SDPA",
    "memory": "Peak memory beyond q, k and v at",
    "doubling": "Linear attention alone",
    "recurrent": "Linear attention, time for one token after",
    "streaming": "Stream of sinks and window, time for one token after",
    "stepped": "Frequencies that follow the length, time for one token after",
}
_WIDE: tuple[AttentionCellKind, ...] = ("causal", "training", "linear")


@dataclass(frozen=True)
class Report(BenchmarkReport[CellResult]):
    """Results of the attention benchmark."""

    FORMAT: ClassVar[int | str] = "attention 1"
    NOTE: ClassVar[str] = "8 heads of 64, batch 1, float32."
    PROBLEMS: ClassVar[str] = "Not measured"
    CELL_RESULT: ClassVar[type[BenchmarkCellResult[Any, Any]]] = CellResult

    def check_targets(self) -> list[BenchmarkTarget]:
        return targets.check_targets(self.cells)

    def build_tables(self) -> list[TextTable]:
        """A table for each kind of work and thread count; for some kinds, one for each cell."""
        found = []
        for count in sorted({c.cell.threads for c in self.cells}):
            for kind, title in _TITLES.items():
                cells = [c for c in self.cells if (c.cell.kind, c.cell.threads) == (kind, count)]
                threads = format_threads(count)
                if kind in _WIDE and cells:
                    found.append(_build_length_table(f"{title}, {threads}", cells))
                elif kind not in _WIDE:
                    found += [_build_contestant_table(title, threads, cell) for cell in cells]
        return found


def _build_length_table(title: str, cells: Sequence[CellResult]) -> TextTable:
    """A table with a column for each length: seconds of the unit, ratios of the others."""
    unit = UNIT[cells[0].cell.kind]
    seen = {r.name for c in cells for r in c.results if r.value is not None}
    rows = []
    for name in (name for name in TITLES if name in seen):
        texts = []
        for cell in cells:
            seconds = cell.get_value(name) if name == unit else None
            texts.append(
                format_ratio(cell.compute_ratio(name))
                if seconds is None
                else format_duration(seconds)
            )
        rows.append((TITLES[name], *texts))
    return TextTable(title, ("", *(str(c.cell.length) for c in cells)), rows)


def _build_contestant_table(title: str, plural: str, cell: CellResult) -> TextTable:
    """A table with a row for each contestant: seconds or bytes, and the ratio to the first."""
    done = [r for r in cell.results if r.value is not None]
    if not cell.cell.lengths:
        title += f" {cell.cell.length} tokens"
    what = "memory" if cell.cell.kind == "memory" else "time"
    rows = [
        (r.title, _format_amount(r), format_ratio(cell.compute_ratio(r.name, done[0].name)))
        for r in done
    ]
    return TextTable(f"{title}, {plural}", ("", what, "multiple"), rows)


def _format_amount(result: Result) -> str:
    if result.timing is not None:
        return format_duration(result.timing.median)
    assert result.peak is not None
    return f"{result.peak / 1e6:,.0f} MB"
