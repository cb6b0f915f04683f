"""Results of a training cell: seconds of a step of each contestant, and its model's size."""

from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCell, BenchmarkCellResult, BenchmarkResult
from whorl.bench.measure import Timing

from .plan import BASELINE, Cell

__all__ = ["CellResult", "Result"]


@dataclass(frozen=True)
class Result(BenchmarkResult):
    """Seconds of a step of a contestant, or the problem why it was not timed.

    parameters: number of all parameters. positional: of those that encode positions.
    """

    name: str
    timing: Timing | None = None
    parameters: int | None = None
    positional: int | None = None
    problem: str | None = None

    @property
    def title(self) -> str:
        return "plain GPT" if self.name == BASELINE else f"lab, {self.name}"


@dataclass(frozen=True)
class CellResult(BenchmarkCellResult[Cell, Result]):
    """All results of one cell."""

    CELL: ClassVar[type[BenchmarkCell]] = Cell
    RESULT: ClassVar[type[BenchmarkResult]] = Result

    @property
    def unit(self) -> str:
        return BASELINE

    def compute_speed(self, name: str) -> float | None:
        """Tokens per second of a contestant, or None if it was not timed."""
        seconds = self.get_value(name)
        return None if not seconds else self.cell.tokens / seconds

    def derive(self, result: Result) -> dict[str, Any]:
        speed = self.compute_speed(result.name)
        return {"tokens_per_second": speed, **super().derive(result)}
