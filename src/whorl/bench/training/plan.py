"""What is measured, and how long: a cell is a shape of model and batch on so many threads.

All encodings and the baseline take turns within a cell.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from whorl.bench._render import thread_count

__all__ = ["BASELINE", "ENCODINGS", "VOCAB", "Cell", "Plan"]

BASELINE = "baseline"
VOCAB = 256  # bytes
ENCODINGS = ("nope", "rope", "alibi", "t5", "learned")

_SHAPES = ((3, 96, 4, 128, 16), (2, 512, 8, 1024, 1))
_MORE = ((6, 384, 6, 256, 8), (2, 768, 12, 2048, 1))


@dataclass(frozen=True)
class Cell:
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
        return f"{self.size}, {thread_count(self.threads)}"

    @property
    def tokens(self) -> int:
        """Of one step."""
        return self.batch * self.length

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Cell":
        return cls(**data)


@dataclass(frozen=True)
class Plan:
    """Shapes (layers, width, heads, length, batch), encodings, and the effort.

    repeats, sample_seconds, most_seconds: as for the rotation, see ``whorl.bench.Plan``.
    """

    shapes: tuple[tuple[int, int, int, int, int], ...] = (*_SHAPES, *_MORE)
    encodings: tuple[str, ...] = (*ENCODINGS, "kerple", "xpos", "deberta")
    threads: tuple[int, ...] = (1,)
    repeats: int = 15
    sample_seconds: float = 0.2
    most_seconds: float = 20.0

    def __post_init__(self) -> None:
        sizes = [n for shape in self.shapes for n in shape]
        least = min([*sizes, self.repeats, *self.threads])
        if least < 1 or not self.threads or self.sample_seconds < 0:
            raise ValueError(
                "training Plan: sizes, threads and repeats must be at least 1 and sample_seconds at"
                f" least 0; got {self!r}."
            )

    @classmethod
    def quick(cls) -> "Plan":
        """Two shapes, five encodings, one thread: a minute or two."""
        return cls(shapes=_SHAPES, encodings=ENCODINGS, most_seconds=6.0)

    @classmethod
    def full(cls) -> "Plan":
        """Every shape and encoding on one thread: about twenty minutes."""
        return cls()

    def only(
        self, *, peers: Sequence[str] | None = None, threads: Sequence[int] | None = None
    ) -> "Plan":
        """The same plan with other thread counts; it has no peers to choose from."""
        if peers is not None:
            raise ValueError(
                "training Plan: the baseline is the one peer of training and is always measured;"
                " leave peers out."
            )
        return self if threads is None else replace(self, threads=tuple(threads))

    def cells(self) -> list[Cell]:
        """The first thread count first."""
        return [Cell(*shape, threads) for threads in self.threads for shape in self.shapes]

    def effort(self) -> dict[str, Any]:
        """What must agree for the cells of two runs to stand side by side."""
        return {
            "encodings": list(self.encodings),
            "repeats": self.repeats,
            "sample_seconds": self.sample_seconds,
            "most_seconds": self.most_seconds,
        }
