"""What a cell yields: seconds for a step of each contestant, and the size of its model."""

from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCell, BenchmarkCellResult, BenchmarkResult
from whorl.bench.measure import Timing

from .plan import BASELINE, Cell

__all__ = ["CellResult", "Result"]


@dataclass(frozen=True)
class Result(BenchmarkResult):
    """Seconds for a step, or the problem why there are none.

    parameters: of the whole model. positional: those among them that encode positions.
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

    def tokens_per_second(self, name: str) -> float | None:
        """Tokens of a step over its seconds, or None if it was not timed."""
        seconds = self.value(name)
        return None if not seconds else self.cell.tokens / seconds

    def derive(self, result: Result) -> dict[str, Any]:
        speed = self.tokens_per_second(result.name)
        return {"tokens_per_second": speed, **super().derive(result)}
