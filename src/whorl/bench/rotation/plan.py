"""What is measured: shapes, dtypes, layouts, threads and peers, and how long.

A cell is one combination of them; all its contestants are timed in turn, so that a busy moment of
the machine meets all of them alike.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from whorl.bench.cells import BenchmarkCell
from whorl.bench.plan import BenchmarkPlan
from whorl.bench.render import format_threads

__all__ = ["DTYPES", "SHAPES", "Cell", "Plan", "RotationKind", "Shape"]

RotationKind = Literal["prefill", "decode", "training"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAYOUTS = ("half", "interleaved")

# Position of the token that a decode step rotates.
DECODE_POSITION = 4000

# Positions in the table of a RoPE that is not told otherwise.
DEFAULT_TABLE = 4096


@dataclass(frozen=True)
class Shape:
    """Queries [B, H, T, D] and keys [B, G, T, D], and what is done with them."""

    kind: RotationKind
    batch: int
    heads: int
    key_heads: int
    length: int
    head_dim: int

    @property
    def name(self) -> str:
        """Such as "prefill-4096" (T), "training-1024" (T) or "decode-32" (B)."""
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
        """Length of a table that ends before the last position; None where that is not measured.

        It is the default length in a long prefill; a decode step lies just past its table.
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
    """One shape in one dtype and layout on so many threads."""

    shape: Shape
    dtype: str
    layout: str
    threads: int

    @property
    def key(self) -> str:
        """Such as "prefill-4096/float32/half/1"; the last part is the number of threads."""
        return f"{self.shape.name}/{self.dtype}/{self.layout}/{self.threads}"

    @property
    def label(self) -> str:
        """For people: "prefill-4096 float32 half, 1 thread"."""
        return f"{self.shape.name} {self.dtype} {self.layout}, {format_threads(self.threads)}"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Cell":
        return cls(**{**data, "shape": Shape(**data["shape"])})


@dataclass(frozen=True)
class Plan(BenchmarkPlan):
    """The cells to measure and the effort for each.

    Args:
        peers: names of peers (``peers.NAMES``); None means every one that imports.
            whorl itself and ``copy_`` always run.
        compiled: beginnings of the keys of those cells in which the compiled peer runs, because
            compiling takes seconds; None means all.
        accuracy: whether to measure the error of the tables as well.
        isolated: whether each cell gets a process of its own, on Linux; see ``worker``.
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
                "Plan: there must be a shape, a dtype and a layout to measure; got"
                f" {len(self.shapes)}, {len(self.dtypes)} and {len(self.layouts)}."
            )
        self.check_least("repeats and threads", ())

    @classmethod
    def quick(cls) -> "Plan":
        """One thread, float32 and bfloat16, nothing long: one to two minutes."""
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
        """Everything, on one thread and on all that torch uses; half an hour or more."""
        return cls(
            threads=tuple(sorted({1, torch.get_num_threads()})),
            compiled=("prefill-512", "prefill-4096", "training-1024"),
            most_seconds=3.0,
            isolated=True,
        )

    def only(
        self,
        *,
        shapes: Sequence[str] | None = None,
        dtypes: Sequence[str] | None = None,
        layouts: Sequence[str] | None = None,
        peers: Sequence[str] | None = None,
        threads: Sequence[int] | None = None,
    ) -> "Plan":
        """The same plan narrowed to some shapes (by name), dtypes, layouts and peers.

        ``threads`` replaces the thread counts. A shape of the full plan may be named in any plan.

        >>> len(Plan.quick().only(shapes=["decode-1"], dtypes=["float32"]).cells())
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

    def cells(self) -> list[Cell]:
        """Single-threaded cells first: they are the figures that count."""
        return [
            Cell(shape, dtype, layout, threads)
            for threads in self.threads
            for shape in self.shapes
            for dtype in self.dtypes
            for layout in self.layouts
        ]

    def compiles(self, cell: Cell) -> bool:
        """Whether the compiled peer runs in ``cell``."""
        return self.compiled is None or any(cell.key.startswith(start) for start in self.compiled)

    @property
    def isolates(self) -> bool:
        """Whether cells do get their own processes: forking is safe, and of use, on Linux."""
        return self.isolated and sys.platform == "linux"

    def effort(self) -> dict[str, Any]:
        """What must agree for the cells of two runs to stand side by side."""
        return {**super().effort(), "isolated": self.isolates}


def _check_known(what: str, values: Sequence[str], known: tuple[str, ...]) -> None:
    for value in values:
        if value not in known:
            raise ValueError(f"Plan: unknown {what} {value!r}; known: {', '.join(known)}.")
