"""Cells and effort of the benchmark of models, and the results of a cell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from whorl._support.words import quote
from whorl.bench.cells import BenchmarkCell, BenchmarkCellResult, BenchmarkResult
from whorl.bench.measure import Timing
from whorl.bench.plan import BenchmarkPlan
from whorl.bench.render import format_threads

__all__ = ["BOUND", "INSTALLED", "MODELS", "STOCK", "Cell", "CellResult", "Plan", "Result", "Work"]

#: BOUND is the model with whorl and no positions, whose outputs are others: no positions cost less.
STOCK, INSTALLED, BOUND = "stock", "installed", "bound"
#: Models by the names of their ``model_type``; T5 without its decoder.
MODELS = ("bloom", "mpt", "t5", "deberta-v2", "llama")
#: Those that do not decode.
ENCODERS = ("t5", "deberta-v2")
#: Those whose positions are added to the scores.
BIASED = ("bloom", "mpt", "t5", "deberta-v2")

#: What is timed: all tokens at once, one token after as many in a cache, or forward and backward;
#: or the memory that all tokens at once need.
Work = Literal["prefill", "decode", "training", "memory"]

_TITLES = {STOCK: "transformers", INSTALLED: "with whorl", BOUND: "without positions"}
_LENGTHS = (512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Cell(BenchmarkCell):
    """A model, what is timed, and the number of tokens."""

    model: str
    work: Work
    length: int
    batch: int
    threads: int

    @property
    def key(self) -> str:
        """Model, work, batch x length, threads: "bloom/prefill/1x512/1"."""
        return f"{self.model}/{self.work}/{self.batch}x{self.length}/{self.threads}"

    @property
    def contestants(self) -> tuple[str, ...]:
        """The names of its contestants; prefill and training of a model with a bias have three."""
        bound = self.model in BIASED and self.work in ("prefill", "training")
        return (STOCK, INSTALLED, BOUND) if bound else (STOCK, INSTALLED)

    @property
    def label(self) -> str:
        return (
            f"{self.model}, {self.work}, {self.batch} x {self.length} tokens,"
            f" {format_threads(self.threads)}"
        )


@dataclass(frozen=True)
class Plan(BenchmarkPlan):
    """Models, kinds of work and lengths, and the effort.

    repeats: rounds, in each of which both models run once; more until a cell has taken
        least_seconds.
    starts: how often the processes are started afresh for a cell. The same model in two processes
        differs by a few percent for as long as they last, by where its memory happens to be.
    shapes: beginnings of the keys of the cells to measure, such as "t5/prefill"; None for all.
    """

    models: tuple[str, ...] = MODELS
    works: tuple[Work, ...] = ("prefill", "decode", "training", "memory")
    lengths: tuple[int, ...] = _LENGTHS
    memory_length: int = 8192
    repeats: int = 6
    least_seconds: float = 10.0
    starts: int = 3
    shapes: tuple[str, ...] | None = None

    EFFORT: ClassVar[tuple[str, ...]] = ("repeats", "least_seconds", "starts")
    PEERS: ClassVar[str] = "a model is compared with itself, as transformers runs it"

    def __post_init__(self) -> None:
        sizes = (*self.lengths, self.memory_length, self.starts)
        self.check_least("lengths, threads, repeats and starts", sizes)
        keys = [cell.key for cell in replace(self, shapes=None).list_cells()] if self.shapes else []
        for shape in self.shapes or ():
            if not any(key.startswith(shape) for key in keys):
                raise ValueError(
                    f"shapes must begin keys of cells, such as 't5/prefill' or"
                    f" 'llama/decode/1x512'; got {quote(shape)}."
                )

    @classmethod
    def quick(cls) -> "Plan":
        """Cells for a minute or two: prefill of the shorter lengths and decode, one thread."""
        return cls(works=("prefill", "decode"), lengths=(512, 1024), least_seconds=2.0, starts=1)

    def list_cells(self) -> list[Cell]:
        """All cells, in the order of the thread counts."""
        cells = [
            Cell(model, work, length, batch, threads)
            for threads in self.threads
            for model in self.models
            for work in self.works
            for batch, length in self._list_sizes(model, work)
        ]
        return cells if self.shapes is None else [c for c in cells if c.key.startswith(self.shapes)]

    def select(
        self,
        *,
        peers: Sequence[str] | None = None,
        threads: Sequence[int] | None = None,
        shapes: Sequence[str] | None = None,
    ) -> "Plan":
        """The same plan with other thread counts, or with those cells only; peers are refused."""
        found = super().select(peers=peers, threads=threads)
        return found if shapes is None else replace(found, shapes=tuple(shapes))

    def _list_sizes(self, model: str, work: Work) -> list[tuple[int, int]]:
        """Rows and tokens of each; training takes long, and so does DeBERTa on long texts."""
        if work == "memory":
            return [(1, self.memory_length)] if model == "bloom" else []
        if work == "decode" and model in ENCODERS:
            return []
        if model == "deberta-v2":
            sizes = [(1, length) for length in self.lengths[:3]]
            return [*sizes, (8, self.lengths[0])] if work == "prefill" else sizes
        return [(1, length) for length in self.lengths[: 2 if work == "training" else None]]


@dataclass(frozen=True)
class Result(BenchmarkResult):
    """Seconds of a model, or its bytes of memory, or the problem why it was not measured."""

    name: str
    timing: Timing | None = None
    peak: int | None = None
    problem: str | None = None

    @property
    def title(self) -> str:
        return _TITLES[self.name]

    @property
    def value(self) -> float | None:
        return super().value if self.peak is None else float(self.peak)


@dataclass(frozen=True)
class CellResult(BenchmarkCellResult[Cell, Result]):
    """All results of one cell."""

    CELL: ClassVar[type[BenchmarkCell]] = Cell
    RESULT: ClassVar[type[BenchmarkResult]] = Result

    @property
    def unit(self) -> str:
        return INSTALLED

    @property
    def gain(self) -> float | None:
        """Time or memory of transformers, divided by that with whorl."""
        return self.compute_ratio(STOCK)

    @property
    def most(self) -> float | None:
        """The same without positions: what no attention with positions can exceed by much."""
        return self.compute_ratio(STOCK, BOUND)
