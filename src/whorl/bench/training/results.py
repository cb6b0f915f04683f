"""What a cell yields: seconds for a step of each contestant, and the size of its model."""

from dataclasses import asdict, dataclass
from typing import Any

from whorl.bench.measure import Timing

from .plan import BASELINE, Cell

__all__ = ["CellResult", "Result"]


@dataclass(frozen=True)
class Result:
    """Seconds for a step, or the reason why there are none: wrong models are not timed.

    parameters: of the whole model. positional: those among them that encode positions.
    """

    name: str
    timing: Timing | None = None
    parameters: int | None = None
    positional: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class CellResult:
    """All results of one cell."""

    cell: Cell
    results: tuple[Result, ...]

    def seconds(self, name: str) -> float | None:
        """Median seconds of a step, or None if it was not timed."""
        timings = (r.timing for r in self.results if r.name == name)
        timing = next(timings, None)
        return None if timing is None else timing.median

    def ratio(self, name: str, unit: str = BASELINE) -> float | None:
        """Time as a multiple of another contestant's."""
        seconds, one = self.seconds(name), self.seconds(unit)
        return None if seconds is None or not one else seconds / one

    def tokens_per_second(self, name: str) -> float | None:
        seconds = self.seconds(name)
        return None if not seconds else self.cell.tokens / seconds

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {
                **asdict(result),
                "tokens_per_second": self.tokens_per_second(result.name),
                "ratio": self.ratio(result.name),
            }
            for result in self.results
        ]
        return {"key": self.cell.key, "cell": self.cell.to_dict(), "results": rows}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "CellResult":
        rows = []
        for row in data["results"]:
            timing = None if row["timing"] is None else Timing(**row["timing"])
            sizes = row["parameters"], row["positional"]
            rows.append(Result(row["name"], timing, *sizes, row["problem"]))
        return cls(Cell.from_dict(data["cell"]), tuple(rows))
