"""Results of an attention cell: seconds or bytes of each contestant."""

from dataclasses import dataclass
from typing import ClassVar

from whorl.bench.cells import BenchmarkCell, BenchmarkCellResult, BenchmarkResult
from whorl.bench.measure import Timing

from .plan import Cell

__all__ = ["TITLES", "UNIT", "CellResult", "Result"]

# The contestant that the others are divided by.
UNIT = {"causal": "sdpa", "training": "sdpa", "linear": "sdpa", "memory": "sdpa"}
UNIT |= {"stepped": "fixed"}

TITLES = {
    "sdpa": "SDPA, no bias",
    "alibi": "whorl ALiBi",
    "t5": "whorl T5 bias",
    "kerple": "whorl Kerple",
    "matrix": "SDPA, bias as a matrix",
    "matrix-ready": "SDPA, matrix made before",
    "shaw": "whorl Shaw",
    "sdpa-trained": "SDPA, no bias, and backward",
    "t5-trained": "whorl T5 bias, and backward",
    "flex": "flex_attention compiled",
    "naive": "softmax of all scores",
    "elu": "whorl linear, elu",
    "relu": "whorl linear, relu",
    "cosine": "whorl linear, cosine",
    "recomputed": "window recomputed",
    "rotated": "window rotated anew",
    "fixed": "fixed frequencies",
    "follows-stepped": "DynamicNTK, stepped",
    "follows-exact": "DynamicNTK, exact",
}


@dataclass(frozen=True)
class Result(BenchmarkResult):
    """Seconds or bytes of a contestant, or the problem why it was not measured."""

    name: str
    timing: Timing | None = None
    peak: int | None = None
    problem: str | None = None

    @property
    def title(self) -> str:
        """Name of the contestant in tables; a number is a length."""
        return TITLES.get(self.name) or f"{int(self.name):,} tokens"

    @property
    def value(self) -> float | None:
        """Median seconds of a call (a token, in decoding), or bytes."""
        return self.peak if self.timing is None else self.timing.median


@dataclass(frozen=True)
class CellResult(BenchmarkCellResult[Cell, Result]):
    """All results of one cell."""

    CELL: ClassVar[type[BenchmarkCell]] = Cell
    RESULT: ClassVar[type[BenchmarkResult]] = Result

    @property
    def unit(self) -> str:
        return UNIT.get(self.cell.kind, "")
