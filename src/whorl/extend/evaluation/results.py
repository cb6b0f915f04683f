"""The file of results of an evaluation on weights, which grows cell by cell.

After each cell it is written whole, so that a stopped evaluation continues where it was. It keeps
the settings that its numbers depend on; other settings are refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from whorl._support.words import quote
from whorl.lab.integrity import read_checked, write_checked

__all__ = ["ResultFile"]

_FORMAT = 1


class ResultFile:
    """Results by name of the cell, kept in ``folder / "results.json"``; in memory without one.

    >>> results = ResultFile(None, {"target": 4096})
    >>> results.add("none 4096", {"loss": 3.1})
    >>> results.get("none 4096"), results.get("yarn 4096")
    ({'loss': 3.1}, None)
    """

    def __init__(
        self, folder: Path | None, settings: dict[str, Any], *, force: bool = False
    ) -> None:
        self.path = None if folder is None else folder / "results.json"
        self.settings, self.cells = settings, dict[str, Any]()
        if self.path is None:
            return
        if self.path.exists() and not force:
            self._read()
        else:
            with self._explain_errors():
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self.write()  # an error here costs no work

    def get(self, cell: str) -> Any | None:
        """The result of a cell; None if it is not there yet."""
        return self.cells.get(cell)

    def add(self, cell: str, found: Any) -> None:
        """Keep the result of a cell."""
        self.cells[cell] = found
        self.write()

    def write(self, **more: Any) -> None:
        """Write the file, with ``more`` entries beside settings and cells."""
        if self.path is not None:
            content = {"format": _FORMAT, "settings": self.settings, "cells": self.cells}
            with self._explain_errors():
                write_checked(self.path, {**content, **more})

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Let an error of the system in a with block say that earlier results are whole."""
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            raise OSError(
                f"results cannot be written to {str(self.path)!r}: {why}. What was written before"
                " is whole; make room or choose another folder, and the same command goes on."
            ) from None

    def _read(self) -> None:
        assert self.path is not None
        found = read_checked(self.path)
        if found.get("format") != _FORMAT:
            raise ValueError(
                f"{str(self.path)!r} has the format {quote(found.get('format'))}, and this version"
                f" of whorl reads {_FORMAT}; choose another folder, or pass force=True."
            )
        before = found["settings"]
        names = dict.fromkeys((*self.settings, *before))  # those that explain others come first
        differing = [name for name in names if before.get(name) != self.settings.get(name)]
        if differing:
            name = differing[0]
            raise ValueError(
                f"{str(self.path)!r} has results of other settings: {name} is"
                f" {quote(before.get(name))} there, {quote(self.settings.get(name))} here. Choose"
                " another folder, or pass force=True to measure again."
            )
        self.cells = dict(found["cells"])
