"""The outcome of a run of rotation: cells, and the accuracy of the tables."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from whorl.bench._report import BaseReport, Target

from . import judge
from .accuracy import Accuracy
from .render import markdown, tables
from .results import CellResult

__all__ = ["Report"]


@dataclass(frozen=True)
class Report(BaseReport[CellResult]):
    """Cells with their timings, the accuracy of the tables, and where all that was measured."""

    accuracy: Accuracy | None = None

    FORMAT: ClassVar[int | str] = 1

    def with_accuracy(self, accuracy: Accuracy) -> "Report":
        return replace(self, accuracy=accuracy)

    def targets(self) -> list[Target]:
        return judge.targets(self.cells)

    def losses(self) -> list[judge.Loss]:
        """Every comparison in which whorl is slower than a peer beyond noise, the worst first."""
        return judge.losses(self.cells)

    def table(self) -> Iterator[Any]:
        return tables(self)

    def markdown(self) -> str:
        return markdown(self)

    def cell_to_dict(self, cell: CellResult) -> dict[str, Any]:
        compared = [comparison._asdict() for comparison in judge.comparisons(cell)]
        return {**cell.to_dict(), "comparisons": compared}

    @classmethod
    def read_cell(cls, data: dict[str, Any]) -> CellResult:
        return CellResult.from_dict(data)

    def extras(self) -> dict[str, Any]:
        return {
            "accuracy": None if self.accuracy is None else self.accuracy.to_dict(),
            **super().extras(),
            "losses": [loss._asdict() for loss in self.losses()],
        }

    @classmethod
    def read_extras(cls, data: dict[str, Any]) -> dict[str, Any]:
        found = data["accuracy"]
        return {"accuracy": None if found is None else Accuracy.from_dict(found)}
