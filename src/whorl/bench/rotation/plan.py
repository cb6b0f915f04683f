"""Cells and effort of the rotation benchmark: shapes, dtypes, layouts, threads and peers.

A cell is one combination of these. Its contestants are timed alternately, so that a busy moment of
the machine slows all of them down.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from whorl._support.words import quote
from whorl.bench.cells import BenchmarkCell
from whorl.bench.plan import BenchmarkPlan
from whorl.bench.render import format_threads

__all__ = ["DTYPES", "SHAPES", "Cell", "Plan", "RotationKind", "Shape"]

RotationKind = Literal["prefill", "decode", "training"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAYOUTS = ("half", "interleaved")

# Position of the token that a decode step rotates.
DECODE_POSITION = 4000

# Default length of the table of a RoPE.
DEFAULT_TABLE = 4096


@dataclass(frozen=True)
class Shape:
    """Sizes of queries [B, H, T, D] and keys [B, G, T, D], and the kind of work."""

    kind: RotationKind
    batch: int
    heads: int
    key_heads: int
    length: int
    head_dim: int

    @property
    def name(self) -> str:
        """Kind and length, or batch size for decode: "prefill-4096", "decode-32"."""
        return f"{self.kind}-{self.batch if self.kind == 'decode' else self.length}"

    @property
    def q(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.length, self.head_dim

    @property
    def k(self) -> tuple[int, int, int, int]:
        return self.batch, self.key_heads, self.length, self.head_dim

    @property
    def first(self) -> int:
        """Position of the first token."""
        return DECODE_POSITION if self.kind == "decode" else 0

    @property
    def short_table(self) -> int | None:
        """Length of a table that ends before the last position; None if that is not measured.

        In a long prefill it is the default length; in decode it ends just before the token.
        """
        if self.kind == "decode":
            return self.first
        return DEFAULT_TABLE if self.kind == "prefill" and self.length > DEFAULT_TABLE else None


SHAPES = (
    Shape("prefill", 1, 32, 8, 512, 128),
    Shape("prefill", 1, 32, 8, 4096, 128),
    Shape("prefill", 1, 32, 8, 8192, 128),
    Shape("prefill", 1, 32, 8, 32768, 128),
    Shape("decode", 1, 32, 8, 1, 128),
    Shape("decode", 32, 32, 8, 1, 128),
    Shape("training", 8, 12, 12, 128, 64),
    Shape("training", 4, 16, 16, 1024, 64),
)


@dataclass(frozen=True)
class Cell(BenchmarkCell):
    """One shape in one dtype and layout, on ``threads`` threads."""

    shape: Shape
    dtype: str
    layout: str
    threads: int

    @property
    def key(self) -> str:
        """Shape, dtype, layout and threads: "prefill-4096/float32/half/1"."""
        return f"{self.shape.name}/{self.dtype}/{self.layout}/{self.threads}"

    @property
    def label(self) -> str:
        """The same in words: "prefill-4096 float32 half, 1 thread"."""
        return f"{self.shape.name} {self.dtype} {self.layout}, {format_threads(self.threads)}"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Cell":
        return cls(**{**data, "shape": Shape(**data["shape"])})


@dataclass(frozen=True)
class Plan(BenchmarkPlan):
    """The cells to measure and the effort for each.

    Args:
        peers: names of peers (``peers.NAMES``); None means all that can be imported. whorl itself
            and ``copy_`` are always measured.
        compiled: the compiled peer is measured in cells whose keys begin with one of these, because
            compiling takes seconds; None means all cells.
        accuracy: whether the error of the tables is measured too.
        isolated: whether each cell is measured in a separate process, on Linux; see ``worker``.
    """

    shapes: tuple[Shape, ...] = SHAPES
    dtypes: tuple[str, ...] = tuple(DTYPES)
    layouts: tuple[str, ...] = LAYOUTS
    peers: tuple[str, ...] | None = None
    compiled: tuple[str, ...] | None = None
    accuracy: bool = True
    isolated: bool = False

    EFFORT: ClassVar[tuple[str, ...]] = ("peers", "compiled", *BenchmarkPlan.EFFORT)

    def __post_init__(self) -> None:
        _check_known("dtypes", self.dtypes, tuple(DTYPES))
        _check_known("layouts", self.layouts, LAYOUTS)
        if not (self.shapes and self.dtypes and self.layouts):
            raise ValueError(
                "shapes, dtypes and layouts must each have at least one entry, or there is nothing"
                f" to measure; got {len(self.shapes)}, {len(self.dtypes)} and {len(self.layouts)}."
            )
        self.check_least("repeats and threads", ())

    @classmethod
    def quick(cls) -> "Plan":
        """Cells for one to two minutes: one thread, float32 and bfloat16, no long shapes."""
        long = ("prefill-8192", "prefill-32768", "training-1024")
        return cls(
            shapes=tuple(s for s in SHAPES if s.name not in long),
            dtypes=("float32", "bfloat16"),
            compiled=("prefill-4096/float32",),
            repeats=7,
            sample_seconds=1e-3,
            isolated=True,
        )

    @classmethod
    def full(cls) -> "Plan":
        """All cells, on one thread and on as many as torch uses: half an hour or more."""
        return cls(
            threads=tuple(sorted({1, torch.get_num_threads()})),
            compiled=("prefill-512", "prefill-4096", "training-1024"),
            most_seconds=3.0,
            isolated=True,
        )

    def select(
        self,
        *,
        shapes: Sequence[str] | None = None,
        dtypes: Sequence[str] | None = None,
        layouts: Sequence[str] | None = None,
        peers: Sequence[str] | None = None,
        threads: Sequence[int] | None = None,
    ) -> "Plan":
        """The same plan with some of the shapes (by name), dtypes, layouts and peers only.

        ``threads`` replaces the thread counts. Every plan accepts the shapes of the full plan.

        >>> len(Plan.quick().select(shapes=["decode-1"], dtypes=["float32"]).list_cells())
        2
        """
        known = {shape.name: shape for shape in (*SHAPES, *self.shapes)}
        if shapes is not None:
            _check_known("shapes", shapes, tuple(known))
        return replace(
            self,
            shapes=self.shapes if shapes is None else tuple(known[name] for name in shapes),
            dtypes=self.dtypes if dtypes is None else tuple(dtypes),
            layouts=self.layouts if layouts is None else tuple(layouts),
            peers=self.peers if peers is None else tuple(peers),
            threads=self.threads if threads is None else tuple(threads),
        )

    def list_cells(self) -> list[Cell]:
        """All cells, in the order of the thread counts."""
        return [
            Cell(shape, dtype, layout, threads)
            for threads in self.threads
            for shape in self.shapes
            for dtype in self.dtypes
            for layout in self.layouts
        ]

    def is_compiled(self, cell: Cell) -> bool:
        """Whether the compiled peer is measured in ``cell``."""
        return self.compiled is None or any(cell.key.startswith(start) for start in self.compiled)

    @property
    def isolates(self) -> bool:
        """Whether cells are measured in separate processes: on Linux, where forking is safe."""
        return self.isolated and sys.platform == "linux"

    def describe_effort(self) -> dict[str, Any]:
        """The fields that must be equal in two runs for their cells to be comparable."""
        return {**super().describe_effort(), "isolated": self.isolates}


def _check_known(what: str, values: Sequence[str], known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"{what}: {quote(value)} is unknown; known: {', '.join(known)}.")
