"""Report of the rotation benchmark."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from whorl.bench.cells import BenchmarkCellResult
from whorl.bench.render import (
    TextTable,
    build_problem_table,
    build_target_table,
    render_headline,
    render_markdown,
    render_terminal,
)
from whorl.bench.report import BenchmarkReport
from whorl.bench.targets import BenchmarkTarget

from . import targets
from .accuracy import Accuracy
from .render import LEGEND, summarize_targets, summarize_targets_and_losses
from .results import CellResult
from .tables import (
    build_accuracy_table,
    build_loss_table,
    build_speed_tables,
    list_missing_peers,
)

__all__ = ["Report"]


@dataclass(frozen=True)
class Report(BenchmarkReport[CellResult]):
    """Results of the rotation benchmark, and the accuracy of the tables."""

    accuracy: Accuracy | None = None

    FORMAT: ClassVar[int | str] = 1
    CELL_RESULT: ClassVar[type[BenchmarkCellResult[Any, Any]]] = CellResult

    def with_accuracy(self, accuracy: Accuracy) -> "Report":
        return replace(self, accuracy=accuracy)

    def check_targets(self) -> list[BenchmarkTarget]:
        return targets.check_targets(self.cells)

    def find_losses(self) -> list[targets.PeerComparison]:
        """Every comparison in which whorl is slower by more than noise, the worst first."""
        return targets.find_losses(self.cells)

    def build_tables(self, *, merged: bool = True) -> list[TextTable]:
        """Tables of speed and accuracy; merged: both layouts in one table."""
        return [*build_speed_tables(self, merged=merged), build_accuracy_table(self)]

    def render_markdown(self) -> str:
        """The report as Markdown: environment, speed, accuracy, what was lost or not timed."""
        judged = [summarize_targets(self)] if build_target_table(self).rows else []
        parts = [
            render_headline(self),
            *(render_markdown(table) for table in self.build_tables() if table.rows),
            *judged,
            *(render_markdown(table) for table in self._list_failures()),
        ]
        if self.cells:
            notes = "; ".join(f"{name}: {note}" for name, note in self.environment["notes"].items())
            parts.append(f"{LEGEND} {notes}.")
        return "\n\n".join(parts) + "\n"

    def build_terminal_tables(self) -> Iterator[Any]:
        found = [*self.build_tables(merged=False), build_target_table(self)]
        found = [table for table in found if table.rows] + self._list_failures()
        end = summarize_targets_and_losses(self) if self.cells else ""
        return render_terminal(render_headline(self), found, end)

    def _list_failures(self) -> list[TextTable]:
        """Tables of comparisons that were lost and of contestants that were not timed."""
        missing = list_missing_peers(self)
        found = (build_loss_table(self), build_problem_table(self, missing))
        return [table for table in found if table.rows]

    def cell_to_dict(self, cell: CellResult) -> dict[str, Any]:
        compared = [comparison._asdict() for comparison in targets.compare_with_peers(cell)]
        return {**cell.to_dict(), "comparisons": compared}

    def build_extras(self) -> dict[str, Any]:
        return {
            "accuracy": None if self.accuracy is None else self.accuracy.to_dict(),
            **super().build_extras(),
            "losses": [loss._asdict() for loss in self.find_losses()],
        }

    @classmethod
    def read_extras(cls, data: dict[str, Any]) -> dict[str, Any]:
        found = data["accuracy"]
        return {"accuracy": None if found is None else Accuracy.from_dict(found)}
