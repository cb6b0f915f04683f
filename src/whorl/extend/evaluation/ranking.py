"""Which row is better, from the losses of the same runs of tokens.

The difference of two rows counts if it exceeds twice its standard error; smaller ones are too close
to call.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from .settings import PUBLISHED, SLIDING_WINDOW

__all__ = ["choose_method", "find_best", "get_cell", "is_clear", "list_rows"]

Document = Mapping[str, Any]


def find_best(document: Document, length: int) -> list[str]:
    """Methods with the lowest loss at ``length``, the lowest first, and those too close to call.

    Only methods that a framework can run, and the published rotation; none if nothing was measured.
    """
    rows = [row for row in document["rows"] if row["name"] != SLIDING_WINDOW]
    rows = [row for row in rows if row["run_by"] or row["name"] == PUBLISHED]
    found = {row["name"]: row["by_length"].get(str(length)) for row in rows}
    cells = {name: cell for name, cell in found.items() if cell is not None}
    if not cells:
        return []
    order = sorted(cells, key=lambda name: float(cells[name]["loss"]))
    first = cells[order[0]]["blocks"]
    return [order[0], *(n for n in order[1:] if not is_clear(first, cells[n]["blocks"]))]


def choose_method(document: Document, best: Sequence[str]) -> str:
    """Of methods that are too close to call, the one that finds most at the target."""
    means = (document["retrieval"] or {}).get("means") or {}
    target = str(document["target"])
    return max(best, key=lambda name: float(means.get(name, {}).get(target, 0.0)))


def is_clear(lower: Sequence[float], higher: Sequence[float]) -> bool:
    """Whether the mean of ``higher`` exceeds that of ``lower`` by two standard errors, paired."""
    differences = [b - a for a, b in zip(lower, higher, strict=True)]
    if len(differences) < 2:
        return False
    error = stdev(differences) / math.sqrt(len(differences))
    return fmean(differences) > 2 * error


def get_cell(document: Document, row: str, length: int) -> Mapping[str, Any] | None:
    """Loss and runs of tokens of a row at a length; None if it was not measured."""
    cells = next(each["by_length"] for each in document["rows"] if each["name"] == row)
    found: Mapping[str, Any] | None = cells.get(str(length))
    return found


def list_rows(document: Document) -> list[Mapping[str, Any]]:
    """The rows by loss at the target, the lowest first; those without one last."""
    target = str(document["target"])

    def get_loss(row: Mapping[str, Any]) -> float:
        return float(row["by_length"].get(target, {"loss": math.inf})["loss"])

    return sorted(document["rows"], key=get_loss)
