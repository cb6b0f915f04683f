"""What is measured, and how long: a cell is a shape of model and batch on so many threads.

All encodings and the baseline take turns within a cell.
"""

from dataclasses import dataclass
from typing import ClassVar

from whorl.bench.cells import BenchmarkCell
from whorl.bench.plan import BenchmarkPlan
from whorl.bench.render import format_threads

__all__ = ["BASELINE", "ENCODINGS", "VOCAB", "Cell", "Plan"]

BASELINE = "baseline"
VOCAB = 256  # bytes
ENCODINGS = ("nope", "rope", "alibi", "t5", "learned")

_SHAPES = ((3, 96, 4, 128, 16), (2, 512, 8, 1024, 1))
_MORE = ((6, 384, 6, 256, 8), (2, 768, 12, 2048, 1))


@dataclass(frozen=True)
class Cell(BenchmarkCell):
    """A model of ``layers`` of a width and so many heads, on ``batch`` texts of ``length``."""

    layers: int
    width: int
    heads: int
    length: int
    batch: int
    threads: int

    @property
    def key(self) -> str:
        """Such as "3x96/16x128/1": layers x width, batch x length, threads."""
        return f"{self.layers}x{self.width}/{self.batch}x{self.length}/{self.threads}"

    @property
    def size(self) -> str:
        """For people: "3 layers of 96, 16 x 128 tokens"."""
        return f"{self.layers} layers of {self.width}, {self.batch} x {self.length} tokens"

    @property
    def label(self) -> str:
        return f"{self.size}, {format_threads(self.threads)}"

    @property
    def tokens(self) -> int:
        """Of one step."""
        return self.batch * self.length


@dataclass(frozen=True)
class Plan(BenchmarkPlan):
    """Shapes (layers, width, heads, length, batch), encodings, and the effort."""

    shapes: tuple[tuple[int, int, int, int, int], ...] = (*_SHAPES, *_MORE)
    encodings: tuple[str, ...] = (*ENCODINGS, "kerple", "xpos", "deberta")
    sample_seconds: float = 0.2
    most_seconds: float = 20.0

    NAME: ClassVar[str] = "training Plan"
    EFFORT: ClassVar[tuple[str, ...]] = ("encodings", *BenchmarkPlan.EFFORT)
    PEERS: ClassVar[str] = "the baseline is the one peer of training and is always measured"

    def __post_init__(self) -> None:
        sizes = [n for shape in self.shapes for n in shape]
        self.check_least("sizes, threads and repeats", sizes)

    @classmethod
    def quick(cls) -> "Plan":
        """Two shapes, five encodings, one thread: a minute or two."""
        return cls(shapes=_SHAPES, encodings=ENCODINGS, most_seconds=6.0)

    def cells(self) -> list[Cell]:
        """The first thread count first."""
        return [Cell(*shape, threads) for threads in self.threads for shape in self.shapes]
