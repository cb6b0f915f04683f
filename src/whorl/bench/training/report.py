"""Report of the training benchmark."""

from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCellResult
from whorl.bench.render import TextTable, format_duration, format_ratio
from whorl.bench.report import BenchmarkReport
from whorl.bench.targets import BenchmarkTarget

from . import targets
from .results import CellResult

__all__ = ["Report"]

_HEADS = ("", "parameters", "of positions", "step", "tokens/s", "time / GPT")


@dataclass(frozen=True)
class Report(BenchmarkReport[CellResult]):
    """Results of the training benchmark."""

    FORMAT: ClassVar[int | str] = "training 1"
    NOTE: ClassVar[str] = "A step is forward, backward, clipping and AdamW, in float32."
    CELL_RESULT: ClassVar[type[BenchmarkCellResult[Any, Any]]] = CellResult

    def check_targets(self) -> list[BenchmarkTarget]:
        return targets.check_targets(self.cells)

    def build_tables(self) -> list[TextTable]:
        """A table for each cell."""
        return [_build_cell_table(cell) for cell in self.cells]


def _build_cell_table(cell: CellResult) -> TextTable:
    rows = []
    for result in cell.results:
        speed = cell.compute_speed(result.name)
        if result.timing is None or speed is None:
            continue
        sizes = (f"{result.parameters or 0:,}", f"{result.positional or 0:,}")
        seconds, ratio = (
            format_duration(result.timing.median),
            format_ratio(cell.compute_ratio(result.name)),
        )
        rows.append((result.title, *sizes, seconds, f"{speed:,.0f}", ratio))
    return TextTable(cell.cell.label, _HEADS, rows)
