"""The outcome of a run of training."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from whorl.bench._report import BaseReport, Target

from . import judge
from .render import markdown, tables
from .results import CellResult

__all__ = ["Report"]


@dataclass(frozen=True)
class Report(BaseReport[CellResult]):
    """Cells, and where they were measured."""

    # As for attention, told apart by its name.
    FORMAT: ClassVar[int | str] = "training 1"
    NAME: ClassVar[str] = "training Report"

    def targets(self) -> list[Target]:
        return judge.targets(self.cells)

    def table(self) -> Iterator[Any]:
        return tables(self)

    def markdown(self) -> str:
        return markdown(self)

    @classmethod
    def read_cell(cls, data: dict[str, Any]) -> CellResult:
        return CellResult.from_dict(data)
