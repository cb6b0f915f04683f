"""Base class of reports: results of cells as JSON, and as tables with targets.

Each benchmark (``rotation``, ``attention``, ``training``) adds how its cells are read, its targets
and its tables.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from whorl._support.bounded_json import RESULTS, JsonError, parse_json, read_within
from whorl._support.files import write_file_atomically
from whorl._support.words import quote

from .cells import BenchmarkCellResult
from .render import (
    TextTable,
    build_problem_table,
    build_target_table,
    count_targets,
    render_headline,
    render_markdown,
    render_terminal,
)
from .targets import BenchmarkTarget

__all__ = ["BenchmarkReport"]

R = TypeVar("R", bound="BenchmarkReport[Any]")
C = TypeVar("C", bound=BenchmarkCellResult[Any, Any])


@dataclass(frozen=True)
class BenchmarkReport(ABC, Generic[C]):
    """Results of all cells, and the environment they were measured in.

    complete: False while the benchmark runs, and if it was interrupted.
    """

    environment: dict[str, Any]
    effort: dict[str, Any]
    cells: tuple[C, ...] = ()
    complete: bool = True

    #: Which benchmark a file belongs to, and its version; the rotation has a number alone.
    FORMAT: ClassVar[int | str]
    #: Sizes that all cells share, for the headline.
    NOTE: ClassVar[str] = ""
    #: Title of the table of contestants without a figure.
    PROBLEMS: ClassVar[str] = "Not timed"
    CELL_RESULT: ClassVar[type[BenchmarkCellResult[Any, Any]]]

    @abstractmethod
    def check_targets(self) -> list[BenchmarkTarget]:
        """Every target with what was measured on one thread."""

    @abstractmethod
    def build_tables(self) -> list[TextTable]:
        """Tables of the results; those of targets and problems are added to them."""

    def render_markdown(self) -> str:
        """The report as Markdown: environment, tables, how many targets were reached."""
        parts = [render_headline(self, self.NOTE), *map(render_markdown, self._all_tables())]
        return "\n\n".join([*parts, *self._count_targets()]) + "\n"

    def build_terminal_tables(self) -> Iterator[Any]:
        """The report as objects that rich can print."""
        head = render_headline(self, self.NOTE)
        return render_terminal(head, self._all_tables(), "".join(self._count_targets()))

    def _all_tables(self) -> list[TextTable]:
        found = [*self.build_tables(), build_target_table(self), build_problem_table(self)]
        return [table for table in found if table.rows]

    def _count_targets(self) -> list[str]:
        judged = any(target.ok is not None for target in self.check_targets())
        return [count_targets(self)] if judged else []

    def cell_to_dict(self, cell: C) -> dict[str, Any]:
        """A cell as plain values for JSON."""
        return cell.to_dict()

    def build_extras(self) -> dict[str, Any]:
        """Plain values that follow the cells in JSON."""
        return {"targets": [target._asdict() for target in self.check_targets()]}

    @classmethod
    def read_extras(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Fields of a subclass, from what its ``build_extras`` returned."""
        return {}

    def find_cell(self, key: str) -> C | None:
        """The results of the cell with that key, or None."""
        return next((cell for cell in self.cells if cell.cell.key == key), None)

    def add_cell(self: R, cell: BenchmarkCellResult[Any, Any]) -> R:
        """A copy of the report with one more cell."""
        return replace(self, cells=(*self.cells, cell))

    def mark_complete(self: R) -> R:
        """A copy of the report that says that all cells were measured."""
        return replace(self, complete=True)

    def with_command(self: R, command: str) -> R:
        """A copy of the report that names the command line it was made with."""
        return replace(self, environment={**self.environment, "command": command})

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON; ``from_dict`` computes targets again."""
        return {
            "format": self.FORMAT,
            "complete": self.complete,
            "environment": self.environment,
            "effort": self.effort,
            "cells": [self.cell_to_dict(cell) for cell in self.cells],
            **self.build_extras(),
        }

    @classmethod
    def from_dict(cls: type[R], data: dict[str, Any]) -> R:
        """The report that ``to_dict`` gave."""
        if data.get("format") != cls.FORMAT:
            raise ValueError(
                f"the report has format {quote(data.get('format'))}, and this benchmark reads"
                f" {cls.FORMAT!r}; run the benchmark again."
            )
        return cls(
            environment=data["environment"],
            effort=data["effort"],
            cells=tuple(cls.CELL_RESULT.from_dict(cell) for cell in data["cells"]),
            complete=data["complete"],
            **cls.read_extras(data),
        )

    def save(self, path: str | Path) -> None:
        """Write the report as JSON, atomically."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(path, (json.dumps(self.to_dict(), indent=1) + "\n").encode())

    @classmethod
    def load(cls: type[R], path: str | Path) -> R:
        """The report that ``save`` wrote."""
        try:
            with open(path, "rb") as file:
                data = parse_json(read_within(file, RESULTS), RESULTS)
        except JsonError as error:
            raise ValueError(
                f"{str(path)!r} {error}; choose a file that whorl bench wrote."
            ) from None
        if not isinstance(data, dict):
            raise ValueError(
                f"{str(path)!r} must hold a JSON object, as whorl bench writes it; got"
                f" {quote(data)}."
            )
        return cls.from_dict(data)
