"""The outcome of a run: kept as JSON, judged, and shown."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whorl.bench.judge import Target

from . import judge
from .render import markdown, tables
from .results import CellResult

__all__ = ["Report"]

# Told apart from the reports of the rotation, which are numbered alone.
_FORMAT = "attention 1"


@dataclass(frozen=True)
class Report:
    """Cells, and where they were measured.

    complete: False while a run goes on, and after one that was interrupted.
    """

    environment: dict[str, Any]
    effort: dict[str, Any]
    cells: tuple[CellResult, ...] = ()
    complete: bool = True

    def cell(self, key: str) -> CellResult | None:
        """The cell of that key, such as "causal/4096/1"."""
        return next((cell for cell in self.cells if cell.cell.key == key), None)

    def adding(self, cell: CellResult) -> "Report":
        """The report with one more cell."""
        return replace(self, cells=(*self.cells, cell))

    def completed(self) -> "Report":
        return replace(self, complete=True)

    def with_command(self, command: str) -> "Report":
        """The report with the command line that made it."""
        return replace(self, environment={**self.environment, "command": command})

    def targets(self) -> list[Target]:
        """(name, limit, measured, ok) of every target, on one thread; see ``judge``."""
        return judge.targets(self.cells)

    def table(self) -> Iterator[Any]:
        """Rich renderables for the terminal; needs rich."""
        return tables(self)

    def markdown(self) -> str:
        """Tables for a README."""
        return markdown(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; targets and ratios are derived and not read back."""
        return {
            "format": _FORMAT,
            "complete": self.complete,
            "environment": self.environment,
            "effort": self.effort,
            "cells": [cell.to_dict() for cell in self.cells],
            "targets": [target._asdict() for target in self.targets()],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Report":
        """Undo ``to_dict``."""
        if data.get("format") != _FORMAT:
            raise ValueError(
                f"attention Report: this is format {data.get('format')!r}, and {_FORMAT!r} is read;"
                " run the benchmark again."
            )
        cells = tuple(CellResult.from_dict(cell) for cell in data["cells"])
        return cls(data["environment"], data["effort"], cells, data["complete"])

    def save(self, path: str | Path) -> None:
        """Write JSON; a reader never sees half of it."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        part.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read what ``save`` wrote."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
