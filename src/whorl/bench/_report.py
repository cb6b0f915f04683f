"""The outcome of any benchmark: cells, kept as JSON, judged, and shown.

Each benchmark gives its format, how a cell is read, its targets and its tables; see ``rotation``,
``attention`` and ``training``.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from whorl._support.bounded_json import RESULTS, JsonError, parse_json, read_within
from whorl._support.replacing import replace_file
from whorl._support.words import shown

__all__ = ["BaseReport", "Cell", "Measured", "Target"]

R = TypeVar("R", bound="BaseReport[Any]")


class Target(NamedTuple):
    """A figure to reach on one thread; measured and ok are None where no cell shows it."""

    name: str
    limit: str
    measured: float | None
    ok: bool | None

    @classmethod
    def most(cls, name: str, limit: float, measured: float | None) -> "Target":
        """What is measured must be at most ``limit``."""
        ok = None if measured is None else measured <= limit
        return cls(name, f"<= {limit:g}", measured, ok)

    @classmethod
    def least(cls, name: str, limit: float, measured: float | None) -> "Target":
        """What is measured must be at least ``limit``."""
        ok = None if measured is None else measured >= limit
        return cls(name, f">= {limit:g}", measured, ok)


class Cell(Hashable, Protocol):
    """What is measured together. Cells that compare equal are the same work."""

    @property
    def key(self) -> str:
        """Short, for files and tables; need not say everything."""

    @property
    def label(self) -> str:
        """For people."""


class Measured(Protocol):
    """A cell and what came out."""

    @property
    def cell(self) -> Cell: ...

    def to_dict(self) -> dict[str, Any]: ...


C = TypeVar("C", bound=Measured)


@dataclass(frozen=True)
class BaseReport(ABC, Generic[C]):
    """Cells, and where they were measured.

    complete: False while a run goes on, and after one that was interrupted.
    """

    environment: dict[str, Any]
    effort: dict[str, Any]
    cells: tuple[C, ...] = ()
    complete: bool = True

    FORMAT: ClassVar[int | str]
    NAME: ClassVar[str] = "Report"

    @abstractmethod
    def targets(self) -> list[Target]:
        """(name, limit, measured, ok) of every target, on one thread; see ``judge``."""

    @abstractmethod
    def table(self) -> Iterator[Any]:
        """Rich renderables for the terminal; needs rich."""

    @abstractmethod
    def markdown(self) -> str:
        """Tables for a README."""

    @classmethod
    @abstractmethod
    def read_cell(cls, data: dict[str, Any]) -> C:
        """Undo the ``to_dict`` of a cell."""

    @classmethod
    def read_extras(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Fields of a subclass from what ``extras`` gave."""
        return {}

    def cell_to_dict(self, cell: C) -> dict[str, Any]:
        """JSON-ready."""
        return cell.to_dict()

    def extras(self) -> dict[str, Any]:
        """What comes after the cells in JSON."""
        return {"targets": [target._asdict() for target in self.targets()]}

    def cell(self, key: str) -> C | None:
        """The cell of that key."""
        return next((cell for cell in self.cells if cell.cell.key == key), None)

    def adding(self: R, cell: Measured) -> R:
        """The report with one more cell."""
        return replace(self, cells=(*self.cells, cell))

    def completed(self: R) -> R:
        return replace(self, complete=True)

    def with_command(self: R, command: str) -> R:
        """The report with the command line that made it."""
        return replace(self, environment={**self.environment, "command": command})

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; what can be derived from the cells is there too, and is not read back."""
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
        """Undo ``to_dict``."""
        if data.get("format") != cls.FORMAT:
            raise ValueError(
                f"{cls.NAME}: this is format {shown(data.get('format'))}, and {cls.FORMAT!r} is"
                " read; run the benchmark again."
            )
        return cls(
            environment=data["environment"],
            effort=data["effort"],
            cells=tuple(cls.read_cell(cell) for cell in data["cells"]),
            complete=data["complete"],
            **cls.read_extras(data),
        )

    def save(self, path: str | Path) -> None:
        """Write JSON; a reader never sees half of it."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (json.dumps(self.to_dict(), indent=1) + "\n").encode())

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
                f"{cls.NAME}: {str(path)!r} must hold a JSON object; got {shown(data)}."
            )
        return cls.from_dict(data)
