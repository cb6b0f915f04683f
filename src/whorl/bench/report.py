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
from .render import TextTable, render_markdown, render_terminal
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
        parts = [self.render_headline(), *map(render_markdown, self._list_tables())]
        end = self.count_targets() if self.build_target_table().rows else ""
        return "\n\n".join([*parts, *([end] if end else [])]) + "\n"

    def build_terminal_tables(self) -> Iterator[Any]:
        """The report as objects that rich can print."""
        end = self.count_targets() if self.build_target_table().rows else ""
        return render_terminal(self.render_headline(), self._list_tables(), end)

    def render_headline(self) -> str:
        """CPU, date, versions and command in one paragraph."""
        where = self.environment
        versions = {"torch": where["torch"], **where["peers"]}
        with_what = ", ".join(f"{name} {found}" for name, found in versions.items())
        text = (
            f"{where['cpu']}, {where['cores']} cores, {where['date']}; {with_what};"
            f" kernel: {where['kernel']}."
        )
        if self.NOTE:
            text += f" {self.NOTE}"
        if where["command"]:
            text += f" Command: `{where['command']}`."
        return text if self.complete else text + " The run was not finished."

    def build_target_table(self) -> TextTable:
        """Table of the targets that were measured, and whether they were reached."""
        rows = [
            (name, limit, f"{measured:.3g}", "reached" if ok else "missed")
            for name, limit, measured, ok in self.check_targets()
            if measured is not None
        ]
        heads = ("target", "limit", "measured", "")
        return TextTable("Targets, 1 thread", heads, rows, numbers=False)

    def build_problem_table(self) -> TextTable:
        """Table of contestants without a figure, and why."""
        rows = [
            (cell.cell.key, result.title, result.problem)
            for cell in self.cells
            for result in cell.results
            if result.problem is not None
        ]
        return TextTable(self.PROBLEMS, ("cell", "contestant", "reason"), rows, numbers=False)

    def count_targets(self) -> str:
        """A sentence that says how many targets were reached."""
        judged = [target.ok for target in self.check_targets() if target.ok is not None]
        return f"Targets reached on one thread: {sum(judged)} of {len(judged)} measured."

    def _list_tables(self) -> list[TextTable]:
        found = [*self.build_tables(), self.build_target_table(), self.build_problem_table()]
        return [table for table in found if table.rows]

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

    def add_cell(self: R, cell: BenchmarkCellResult[Any, Any]) -> R:
        """A copy of the report with one more cell."""
        return replace(self, cells=(*self.cells, cell))

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
