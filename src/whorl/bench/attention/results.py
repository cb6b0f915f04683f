"""What a cell yields: seconds, or bytes, of each contestant."""

from dataclasses import asdict, dataclass
from typing import Any

from whorl.bench.measure import Timing

from .plan import Cell

__all__ = ["TITLES", "UNIT", "CellResult", "Result"]

# The contestant that others are multiples of.
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
class Result:
    """Seconds or bytes, or the reason why there are none: wrong answers are not timed."""

    name: str
    timing: Timing | None = None
    peak: int | None = None
    problem: str | None = None

    @property
    def title(self) -> str:
        """For people; a number is a length."""
        return TITLES.get(self.name) or f"{int(self.name):,} tokens"

    @property
    def value(self) -> float | None:
        """Median seconds of a call (a token, in decoding), or bytes."""
        return self.peak if self.timing is None else self.timing.median


@dataclass(frozen=True)
class CellResult:
    """All results of one cell."""

    cell: Cell
    results: tuple[Result, ...]

    def value(self, name: str) -> float | None:
        """Seconds or bytes of a contestant, or None if it was not measured."""
        return next((r.value for r in self.results if r.name == name), None)

    def ratio(self, name: str, unit: str | None = None) -> float | None:
        """As a multiple of ``unit``, else of the cell's own unit."""
        value, one = self.value(name), self.value(unit or UNIT.get(self.cell.kind, ""))
        return None if value is None or not one else value / one

    def to_dict(self) -> dict[str, Any]:
        rows = [{**asdict(result), "ratio": self.ratio(result.name)} for result in self.results]
        return {"key": self.cell.key, "cell": self.cell.to_dict(), "results": rows}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "CellResult":
        rows = []
        for row in data["results"]:
            timing = None if row["timing"] is None else Timing(**row["timing"])
            rows.append(Result(row["name"], timing, row["peak"], row["problem"]))
        return cls(Cell.from_dict(data["cell"]), tuple(rows))
