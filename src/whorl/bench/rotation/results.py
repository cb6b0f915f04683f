"""Results of a rotation cell: one for each contestant and mode."""

from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCell, BenchmarkCellResult, BenchmarkResult
from whorl.bench.measure import Timing

from .peers import COPY, TITLES
from .plan import Cell

__all__ = ["FORMS", "PAST", "CellResult", "Result"]

# Names of the modes in tables.
FORMS = {"inplace": "in place", "out": "out=", "fresh": "fresh"}
FORMS |= {"training": "fwd + bwd", "bound": "bound once", "past": "in place, past its table"}
_ROTATIONS = {"xpos": "XPos", "mrope": "M-RoPE", "axial": "AxialRoPE"}
for _mode, _title in _ROTATIONS.items():
    FORMS |= {_mode: f"{_title} in place", f"{_mode}-past": f"{_title} in place, past its table"}
# Modes past the end of a table, and the same call inside it.
PAST = {"past": "inplace"} | {f"{mode}-past": mode for mode in _ROTATIONS}
# Modes of RoPE that accept new tensors at each call.
_FOR_NEW_TENSORS = ("inplace", "out", "fresh", "training")


@dataclass(frozen=True)
class Result(BenchmarkResult):
    """Timing of one mode of a contestant, or the problem why it was not timed."""

    name: str
    mode: str
    timing: Timing | None = None
    problem: str | None = None

    @property
    def title(self) -> str:
        return f"{TITLES[self.name]} {FORMS.get(self.mode, '')}".strip()


@dataclass(frozen=True)
class CellResult(BenchmarkCellResult[Cell, Result]):
    """All results of one cell."""

    CELL: ClassVar[type[BenchmarkCell]] = Cell
    RESULT: ClassVar[type[BenchmarkResult]] = Result

    def get_seconds(self, name: str, mode: str) -> float | None:
        """Median seconds of a call, or None if it was not timed."""
        found = (r.value for r in self.results if (r.name, r.mode) == (name, mode))
        return next((seconds for seconds in found if seconds is not None), None)

    def get_copy_seconds(self) -> float | None:
        """Median seconds of ``copy_``."""
        return self.get_seconds(COPY, "out") or self.get_seconds(COPY, "training")

    def compute_copy_ratio(self, name: str, mode: str) -> float | None:
        """Time divided by that of ``copy_`` in the same cell."""
        seconds, copy = self.get_seconds(name, mode), self.get_copy_seconds()
        return None if seconds is None or copy is None else seconds / copy

    def compute_past_ratio(self, name: str, mode: str = "past") -> float | None:
        """Time past the end of the table divided by that inside it, both in place."""
        past, inside = self.get_seconds(name, mode), self.get_seconds(name, PAST[mode])
        return None if past is None or inside is None else past / inside

    def find_fastest(self, name: str) -> tuple[str, float] | None:
        """The fastest mode that accepts new tensors at each call, and its seconds."""
        timed = [
            (r.mode, r.timing.median)
            for r in self.results
            if r.name == name and r.mode in _FOR_NEW_TENSORS and r.timing is not None
        ]
        return min(timed, key=lambda pair: pair[1], default=None)

    def has_problem(self, names: tuple[str, ...]) -> bool:
        """Whether one of these contestants could not be timed in one of its modes."""
        return any(r.problem is not None for r in self.results if r.name in names)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was timed, because the cell's process ended early."""
        return all(result.timing is None for result in self.results)

    def derive(self, result: Result) -> dict[str, Any]:
        return {"to_copy": self.compute_copy_ratio(result.name, result.mode)}
