"""The outcome of a run: kept as JSON, judged, and shown."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import judge
from .accuracy import Accuracy
from .render import markdown, tables
from .results import CellResult

__all__ = ["Report"]

_FORMAT = 1


@dataclass(frozen=True)
class Report:
    """Cells with their timings, the accuracy of the tables, and where all that was measured.

    complete: False while a run goes on, and after one that was interrupted.
    """

    environment: dict[str, Any]
    effort: dict[str, Any]
    cells: tuple[CellResult, ...] = ()
    accuracy: Accuracy | None = None
    complete: bool = True

    def cell(self, key: str) -> CellResult | None:
        """The cell of that key, such as "prefill-4096/float32/half/1"."""
        return next((cell for cell in self.cells if cell.cell.key == key), None)

    def adding(self, part: CellResult | Accuracy) -> "Report":
        """The report with one more cell, or with accuracy."""
        if isinstance(part, Accuracy):
            return replace(self, accuracy=part)
        return replace(self, cells=(*self.cells, part))

    def completed(self) -> "Report":
        return replace(self, complete=True)

    def with_command(self, command: str) -> "Report":
        """The report with the command line that made it."""
        return replace(self, environment={**self.environment, "command": command})

    def targets(self) -> list[judge.Target]:
        """(name, limit, measured, ok) of every target, on one thread; see ``judge``."""
        return judge.targets(self.cells)

    def losses(self) -> list[judge.Loss]:
        """Every comparison in which whorl is slower than a peer beyond noise, the worst first."""
        return judge.losses(self.cells)

    def table(self) -> Iterator[Any]:
        """Rich renderables for the terminal; needs rich."""
        return tables(self)

    def markdown(self) -> str:
        """Tables for a README."""
        return markdown(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; targets, losses and ratios are derived and not read back."""
        return {
            "format": _FORMAT,
            "complete": self.complete,
            "environment": self.environment,
            "effort": self.effort,
            "cells": [
                {
                    **cell.to_dict(),
                    "comparisons": [c._asdict() for c in judge.comparisons(cell)],
                }
                for cell in self.cells
            ],
            "accuracy": None if self.accuracy is None else self.accuracy.to_dict(),
            "targets": [target._asdict() for target in self.targets()],
            "losses": [loss._asdict() for loss in self.losses()],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Report":
        """Undo ``to_dict``."""
        if data.get("format") != _FORMAT:
            raise ValueError(
                f"Report: this is format {data.get('format')!r}, and {_FORMAT} is read;"
                " run the benchmark again."
            )
        return cls(
            data["environment"],
            data["effort"],
            tuple(CellResult.from_dict(cell) for cell in data["cells"]),
            None if data["accuracy"] is None else Accuracy.from_dict(data["accuracy"]),
            data["complete"],
        )

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
