"""Cells and effort of the attention benchmark, and the results of a cell.

    causal      biased causal attention, forward              a cell for each length
    training    the same with a trained bias, and backward    a cell for each length
    linear      causal linear attention against SDPA          a cell for each length
    memory      peak memory of a causal call                  contestants as in causal
    doubling    linear attention alone                        contestants are lengths
    recurrent   one token of linear attention                 contestants are earlier tokens
    streaming   one token with sinks and a window             contestants are earlier tokens
    stepped     one token, with frequencies that follow the length

Two times that a target divides are measured in the same cell, alternately.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from whorl.bench.cells import BenchmarkCell, BenchmarkCellResult, BenchmarkResult
from whorl.bench.measure import Timing
from whorl.bench.plan import BenchmarkPlan
from whorl.bench.render import format_threads

__all__ = [
    *("HEADS", "HEAD_DIM", "KINDS", "SINKS", "TITLES", "UNIT", "WINDOW"),
    *("AttentionCellKind", "Cell", "CellResult", "Plan", "Result"),
]

AttentionCellKind = Literal[
    "causal", "training", "linear", "memory", "doubling", "recurrent", "streaming", "stepped"
]
KINDS: tuple[AttentionCellKind, ...] = get_args(AttentionCellKind)

HEADS, HEAD_DIM = 8, 64
# Attention sinks and window of streaming: Xiao et al. 2023, https://arxiv.org/abs/2309.17453.
SINKS, WINDOW = 4, 1024


@dataclass(frozen=True)
class Cell(BenchmarkCell):
    """One kind of work at one length, on ``threads`` threads.

    length: tokens of the call. lengths: those of the contestants, if they differ in nothing else.
    """

    kind: AttentionCellKind
    threads: int
    length: int
    lengths: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """Kind, length and threads: "causal/4096/1"."""
        return f"{self.kind}/{self.length}/{self.threads}"

    @property
    def label(self) -> str:
        """The same in words: "causal 4096, 1 thread"."""
        return f"{self.kind} {self.length}, {format_threads(self.threads)}"


@dataclass(frozen=True)
class Plan(BenchmarkPlan):
    """Lengths of each kind of work, none to leave it out, and the effort.

    Args:
        most_quadratic: longest call in which a bias given as a matrix is timed; its memory is
            measured at every length.
        most_naive: the same for a matrix that is built once, and for a softmax of all scores.
        compiled: lengths at which flex_attention is compiled, which takes seconds each.
        run: tokens of one sample of decoding, except in stepped.
        window: window of the streaming cache.
    """

    causal: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    training: tuple[int, ...] = (1024, 4096)
    linear: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    memory: tuple[int, ...] = (8192, 16384)
    doubling: tuple[int, ...] = (8192, 16384, 32768, 65536)
    recurrent: tuple[int, ...] = (1024, 8192, 65536)
    streaming: tuple[int, ...] = (1024, 8192, 65536)
    stepped: tuple[int, ...] = (4096,)
    most_quadratic: int = 16384
    most_naive: int = 8192
    compiled: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    window: int = WINDOW
    run: int = 256
    repeats: int = 9
    sample_seconds: float = 2e-3
    most_seconds: float = 4.0

    EFFORT: ClassVar[tuple[str, ...]] = (
        *("most_quadratic", "most_naive", "compiled", "window", "run"),
        *BenchmarkPlan.EFFORT,
    )
    PEERS: ClassVar[str] = (
        "the attention benchmark compares with PyTorch alone, and always with all its ways"
    )

    def __post_init__(self) -> None:
        lengths = [n for kind in KINDS for n in getattr(self, kind)]
        sizes = [*lengths, self.run, self.window]
        self.check_least("lengths, threads, window, run and repeats", sizes)

    @classmethod
    def quick(cls) -> "Plan":
        """Cells for a minute and a half; no 16384 tokens, no long training, no long decoding."""
        return cls(
            causal=(512, 4096),
            training=(1024,),
            linear=(2048,),
            memory=(4096,),
            recurrent=(1024, 16384),
            streaming=(1024, 4096),
            stepped=(2048,),
            most_quadratic=4096,
            most_naive=4096,
            compiled=(4096,),
            run=64,
            repeats=3,
            most_seconds=1.0,
        )

    def list_cells(self) -> list[Cell]:
        """All cells; those for memory and decoding on the first thread count only."""
        found = []
        for threads in self.threads:
            for kind in KINDS:
                lengths: tuple[int, ...] = getattr(self, kind)
                if kind in ("doubling", "recurrent", "streaming"):
                    if lengths and threads == self.threads[0]:
                        found.append(Cell(kind, threads, max(lengths), lengths))
                elif kind not in ("memory", "stepped") or threads == self.threads[0]:
                    found += [Cell(kind, threads, length) for length in lengths]
        return found


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
