"""Report of the benchmark of models, and its targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCellResult
from whorl.bench.render import TextTable, format_duration, format_ratio, format_threads
from whorl.bench.report import BenchmarkReport
from whorl.bench.targets import BenchmarkTarget

from .plan import INSTALLED, STOCK, Cell, CellResult

__all__ = ["Report", "check_targets"]

#: Least time of transformers / time with whorl, by model and number of tokens, of all at once.
_LEAST = {
    "bloom": {512: 1.05, 1024: 1.3, 2048: 1.8, 4096: 2.5},
    "mpt": {512: 1.05, 1024: 1.3, 2048: 1.8, 4096: 2.5},
    "t5": {512: 1.05, 1024: 1.4, 2048: 1.6, 4096: 2.0},
    "deberta-v2": {512: 1.4, 1024: 2.2, 2048: 2.8},
    "llama": dict.fromkeys((512, 1024, 2048, 4096), 0.98),
}
_TITLES = {
    "bloom": "BLOOM",
    "mpt": "MPT",
    "t5": "T5 encoder",
    "deberta-v2": "DeBERTa v3",
    "llama": "Llama",
}
_HEADS = ("", "transformers", "with whorl", "transformers / with whorl")


@dataclass(frozen=True)
class Report(BenchmarkReport[CellResult]):
    """Results of the benchmark of models."""

    FORMAT: ClassVar[int | str] = "models 1"
    NOTE: ClassVar[str] = "Two layers of width 768 with 12 heads, float32, no head."
    CELL_RESULT: ClassVar[type[BenchmarkCellResult[Any, Any]]] = CellResult

    def check_targets(self) -> list[BenchmarkTarget]:
        return check_targets(self.cells)

    def build_tables(self) -> list[TextTable]:
        """A table for each kind of work and number of threads."""
        kinds = dict.fromkeys((cell.cell.work, cell.cell.threads) for cell in self.cells)
        return [
            TextTable(
                f"{_describe_work(work)}, {format_threads(threads)}",
                _HEADS,
                [
                    _build_row(cell)
                    for cell in self.cells
                    if (cell.cell.work, cell.cell.threads) == (work, threads)
                    and cell.gain is not None
                ],
            )
            for work, threads in kinds
        ]


def _describe_work(work: str) -> str:
    return {
        "prefill": "All tokens at once",
        "decode": "One token after as many in the cache",
        "training": "Forward and backward",
        "memory": "Memory besides the weights",
    }[work]


def _build_row(cell: CellResult) -> tuple[str, ...]:
    name = f"{_TITLES[cell.cell.model]}, {cell.cell.batch} x {cell.cell.length}"
    values = [cell.get_value(contestant) or 0.0 for contestant in (STOCK, INSTALLED)]
    if cell.cell.work == "memory":
        words = [f"{value / 1e6:,.0f} MB" for value in values]
    else:
        words = [format_duration(value) for value in values]
    return (name, *words, format_ratio(cell.gain))


def check_targets(cells: Sequence[CellResult]) -> list[BenchmarkTarget]:
    """Every target, with what ``cells`` show of it on one thread."""
    gains = {cell.cell: cell.gain for cell in cells}
    found = []
    for model, limits in _LEAST.items():
        for length, least in limits.items():
            works = ("prefill", "decode") if model == "llama" else ("prefill",)
            for work in works:
                measured = gains.get(Cell(model, work, length, 1, 1))  # type: ignore[arg-type]
                name = f"{_TITLES[model]}, {work}, {length} tokens"
                found.append(BenchmarkTarget.at_least(name, least, measured))
    memory = [gain for cell, gain in gains.items() if cell.work == "memory" and cell.threads == 1]
    name = "BLOOM, memory of transformers / with whorl"
    return [*found, BenchmarkTarget.at_least(name, 10.0, *memory)]
