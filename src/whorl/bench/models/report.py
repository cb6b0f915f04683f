"""Report of the benchmark of models, and its targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCellResult
from whorl.bench.render import TextTable, format_duration, format_ratio, format_threads
from whorl.bench.report import BenchmarkReport
from whorl.bench.targets import BenchmarkTarget

from .plan import INSTALLED, STOCK, CellResult

__all__ = ["Report", "check_targets"]

#: Least time of transformers / time with whorl, by model, work and size.
_ROTARY = {f"1x{length}": 0.98 for length in (512, 1024, 2048, 4096)}
_LEAST: dict[str, dict[str, dict[str, float]]] = {
    "bloom": {"prefill": {"1x512": 1.05, "1x1024": 1.3, "1x2048": 1.8, "1x4096": 2.5}},
    "mpt": {"prefill": {"1x512": 1.05, "1x1024": 1.3, "1x2048": 1.8, "1x4096": 2.5}},
    "t5": {"prefill": {"1x512": 1.05, "1x1024": 1.4, "1x2048": 1.6, "1x4096": 2.0}},
    "deberta-v2": {
        "prefill": {"1x512": 1.4, "8x512": 1.4, "1x1024": 2.2, "1x2048": 2.8},
        "training": {"1x512": 1.15, "1x1024": 1.6, "1x2048": 2.0},
    },
    "llama": {"prefill": _ROTARY, "decode": _ROTARY},
}
_TITLES = {
    "bloom": "BLOOM",
    "mpt": "MPT",
    "t5": "T5 encoder",
    "deberta-v2": "DeBERTa v3",
    "llama": "Llama",
}
_HEADS = ("", "transformers", "with whorl", "transformers / with whorl")
#: Of a column that is shown where a model was also timed without positions.
_MOST = "transformers / without positions"


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
        kinds: dict[tuple[str, int], list[CellResult]] = {}
        for cell in self.cells:
            if cell.gain is not None:
                kinds.setdefault((cell.cell.work, cell.cell.threads), []).append(cell)
        return [_build_table(work, threads, cells) for (work, threads), cells in kinds.items()]


def _describe_work(work: str) -> str:
    return {
        "prefill": "All tokens at once",
        "decode": "One token after as many in the cache",
        "training": "Forward and backward",
        "memory": "Memory besides the weights",
    }[work]


def _build_table(work: str, threads: int, cells: Sequence[CellResult]) -> TextTable:
    title = f"{_describe_work(work)}, {format_threads(threads)}"
    if all(cell.most is None for cell in cells):
        return TextTable(title, _HEADS, [_build_row(cell) for cell in cells])
    rows = [(*_build_row(cell), format_ratio(cell.most)) for cell in cells]
    return TextTable(title, (*_HEADS, _MOST), rows)


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
    gains = {cell.cell.key: cell.gain for cell in cells}
    found = []
    for model, works in _LEAST.items():
        for work, limits in works.items():
            for size, least in limits.items():
                measured = gains.get(f"{model}/{work}/{size}/1")
                name = f"{_TITLES[model]}, {work}, {size.replace('x', ' x ')} tokens"
                found.append(BenchmarkTarget.at_least(name, least, measured))
    memory = [cell.gain for cell in cells if cell.cell.work == "memory" and cell.cell.threads == 1]
    name = "BLOOM, memory of transformers / with whorl"
    return [*found, BenchmarkTarget.at_least(name, 10.0, *memory)]
