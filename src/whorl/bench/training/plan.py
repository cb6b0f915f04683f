"""Cells and effort of the training benchmark, and the results of a cell.

A cell is a shape of model and batch on some number of threads. In a cell, all encodings and the
baseline are timed alternately.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCell, BenchmarkCellResult, BenchmarkResult
from whorl.bench.measure import Timing
from whorl.bench.plan import BenchmarkPlan
from whorl.bench.render import format_threads

__all__ = ["BASELINE", "ENCODINGS", "VOCAB", "Cell", "CellResult", "Plan", "Result"]

BASELINE = "baseline"
VOCAB = 256  # bytes
ENCODINGS = ("nope", "rope", "alibi", "t5", "learned")

_SHAPES = ((3, 96, 4, 128, 16), (2, 512, 8, 1024, 1))
_MORE = ((6, 384, 6, 256, 8), (2, 768, 12, 2048, 1))


@dataclass(frozen=True)
class Cell(BenchmarkCell):
    """Sizes of the model and of its batch: ``batch`` texts of ``length`` tokens."""

    layers: int
    width: int
    heads: int
    length: int
    batch: int
    threads: int

    @property
    def key(self) -> str:
        """Layers x width, batch x length, threads: "3x96/16x128/1"."""
        return f"{self.layers}x{self.width}/{self.batch}x{self.length}/{self.threads}"

    @property
    def size(self) -> str:
        """The sizes in words: "3 layers of 96, 16 x 128 tokens"."""
        return f"{self.layers} layers of {self.width}, {self.batch} x {self.length} tokens"

    @property
    def label(self) -> str:
        return f"{self.size}, {format_threads(self.threads)}"

    @property
    def tokens(self) -> int:
        """Number of tokens in one step."""
        return self.batch * self.length


@dataclass(frozen=True)
class Plan(BenchmarkPlan):
    """Shapes (layers, width, heads, length, batch), encodings, and the effort."""

    shapes: tuple[tuple[int, int, int, int, int], ...] = (*_SHAPES, *_MORE)
    encodings: tuple[str, ...] = (*ENCODINGS, "kerple", "xpos", "deberta")
    sample_seconds: float = 0.2
    most_seconds: float = 20.0

    EFFORT: ClassVar[tuple[str, ...]] = ("encodings", *BenchmarkPlan.EFFORT)
    PEERS: ClassVar[str] = "the training benchmark compares with the baseline alone"

    def __post_init__(self) -> None:
        sizes = [n for shape in self.shapes for n in shape]
        self.check_least("sizes, threads and repeats", sizes)

    @classmethod
    def quick(cls) -> "Plan":
        """Cells for a minute or two: two shapes, five encodings, one thread."""
        return cls(shapes=_SHAPES, encodings=ENCODINGS, most_seconds=6.0)

    def list_cells(self) -> list[Cell]:
        """All cells, in the order of the thread counts."""
        return [Cell(*shape, threads) for threads in self.threads for shape in self.shapes]


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
