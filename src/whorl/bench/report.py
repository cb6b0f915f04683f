"""The outcome of any benchmark: cells, kept as JSON, judged, and shown.

Each benchmark says how a cell is read, its targets and its tables; see ``rotation``, ``attention``
and ``training``.
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
    """Cells, and where they were measured.

    complete: False while a run goes on, and after one that was interrupted.
    """

    environment: dict[str, Any]
    effort: dict[str, Any]
    cells: tuple[C, ...] = ()
    complete: bool = True

    #: Tells the benchmarks apart in a file; the first, of the rotation, is a number alone.
    FORMAT: ClassVar[int | str]
    NAME: ClassVar[str] = "Report"
    #: What everything was measured with, for the headline.
    NOTE: ClassVar[str] = ""
    #: The title over contestants that have no figure.
    PROBLEMS: ClassVar[str] = "Not timed"
    CELL_RESULT: ClassVar[type[BenchmarkCellResult[Any, Any]]]

    @abstractmethod
    def targets(self) -> list[BenchmarkTarget]:
        """(name, limit, measured, ok) of every target, on one thread; see ``judge``."""

    @abstractmethod
    def build_tables(self) -> list[TextTable]:
        """What was measured, as tables; those of targets and problems are added to them."""

    def markdown(self) -> str:
        """Where it was measured, every table, and how many targets were reached."""
        parts = [render_headline(self, self.NOTE), *map(render_markdown, self._all_tables())]
        return "\n\n".join([*parts, *self._count_targets()]) + "\n"

    def table(self) -> Iterator[Any]:
        """Rich renderables for the terminal; needs rich."""
        head = render_headline(self, self.NOTE)
        return render_terminal(head, self._all_tables(), "".join(self._count_targets()))

    def _all_tables(self) -> list[TextTable]:
        found = [*self.build_tables(), build_target_table(self), build_problem_table(self)]
        return [table for table in found if table.rows]

    def _count_targets(self) -> list[str]:
        judged = any(target.ok is not None for target in self.targets())
        return [count_targets(self)] if judged else []

    def cell_to_dict(self, cell: C) -> dict[str, Any]:
        """A cell as JSON holds it."""
        return cell.to_dict()

    def extras(self) -> dict[str, Any]:
        """What comes after the cells in JSON."""
        return {"targets": [target._asdict() for target in self.targets()]}

    @classmethod
    def read_extras(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Fields of a subclass from what ``extras`` gave."""
        return {}

    def cell(self, key: str) -> C | None:
        """The cell of that key."""
        return next((cell for cell in self.cells if cell.cell.key == key), None)

    def adding(self: R, cell: BenchmarkCellResult[Any, Any]) -> R:
        """The report with one more cell."""
        return replace(self, cells=(*self.cells, cell))

    def completed(self: R) -> R:
        """The report of a run that has come to its end."""
        return replace(self, complete=True)

    def with_command(self: R, command: str) -> R:
        """The report with the command line that made it."""
        return replace(self, environment={**self.environment, "command": command})

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON holds it; what follows from the cells is not read back."""
        return {
            "format": self.FORMAT,
            "complete": self.complete,
            "environment": self.environment,
            "effort": self.effort,
            "cells": [self.cell_to_dict(cell) for cell in self.cells],
            **self.extras(),
        }

    @classmethod
    def from_dict(cls: type[R], data: dict[str, Any]) -> R:
        """The report that ``to_dict`` wrote."""
        if data.get("format") != cls.FORMAT:
            raise ValueError(
                f"{cls.NAME}: this is format {quote(data.get('format'))}, and {cls.FORMAT!r} is"
                " read; run the benchmark again."
            )
        return cls(
            environment=data["environment"],
            effort=data["effort"],
            cells=tuple(cls.CELL_RESULT.from_dict(cell) for cell in data["cells"]),
            complete=data["complete"],
            **cls.read_extras(data),
        )

    def save(self, path: str | Path) -> None:
        """Write JSON; a reader never sees half of it."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(path, (json.dumps(self.to_dict(), indent=1) + "\n").encode())

    @classmethod
    def load(cls: type[R], path: str | Path) -> R:
        """Read what ``save`` wrote."""
        try:
            with open(path, "rb") as file:
                data = parse_json(read_within(file, RESULTS), RESULTS)
        except JsonError as error:
            raise ValueError(
                f"{cls.NAME}: {str(path)!r} {error}; name a file of results."
            ) from None
        if not isinstance(data, dict):
            raise ValueError(
                f"{cls.NAME}: {str(path)!r} must hold a JSON object; got {quote(data)}."
            )
        return cls.from_dict(data)
