"""Report of the training benchmark, and its targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCellResult
from whorl.bench.render import TextTable, format_duration, format_ratio
from whorl.bench.report import BenchmarkReport
from whorl.bench.targets import BenchmarkTarget

from .plan import CellResult, Plan

__all__ = ["SLOWEST", "Report", "check_targets"]

# RMSNorm and SwiGLU are several operators each, the baseline's LayerNorm and GELU one each.
SLOWEST = 1.15
_HEADS = ("", "parameters", "of positions", "step", "tokens/s", "time / GPT")


@dataclass(frozen=True)
class Report(BenchmarkReport[CellResult]):
    """Results of the training benchmark."""

    FORMAT: ClassVar[int | str] = "training 1"
    NOTE: ClassVar[str] = "A step is forward, backward, clipping and AdamW, in float32."
    CELL_RESULT: ClassVar[type[BenchmarkCellResult[Any, Any]]] = CellResult

    def check_targets(self) -> list[BenchmarkTarget]:
        return check_targets(self.cells)

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


def check_targets(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    """Every target, with what ``cells`` show of it on one thread.

    RoPE should take at most ``SLOWEST`` of the baseline's time at every shape, and ALiBi at most
    1.25 of RoPE's at 1024 tokens and a width of 512 or more.
    """
    single = {cell.cell: cell for cell in cells if cell.cell.threads == 1}
    shapes = dict.fromkeys([*Plan().select(threads=[1]).list_cells(), *single])
    found = []
    for shape in shapes:
        ratios = [single[shape].compute_ratio("rope")] if shape in single else []
        name = f"RoPE / plain GPT, {shape.size}"
        found.append(BenchmarkTarget.at_most(name, SLOWEST, *ratios))
    wide = [c for s, c in single.items() if s.length == 1024 and s.width >= 512]
    ratios = [cell.compute_ratio("alibi", "rope") for cell in wide]
    name = "ALiBi / RoPE, width >= 512, 1024 tokens"
    return [*found, BenchmarkTarget.at_most(name, 1.25, *ratios)]
