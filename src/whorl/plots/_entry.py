"""Charts of the catalogue, and the decorator that makes a drawing function one of them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from whorl.analysis.record import Record

__all__ = ["ChartEntry", "ChartGroup", "chart"]

ChartGroup = Literal["RoPE", "context extension", "any encoding", "a model"]
DrawFunction = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class ChartEntry:
    """A chart: its name, a line about it, the function that computes its numbers, and ``draw``."""

    name: str
    group: ChartGroup
    summary: str
    numbers: Callable[..., Record]
    draw: DrawFunction

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options of this chart."""
        parameters = inspect.signature(self.numbers).parameters.values()
        return {p.name: p.default for p in parameters}


def chart(
    name: str, *, group: ChartGroup, summary: str, numbers: Callable[..., Record]
) -> Callable[[DrawFunction], ChartEntry]:
    """Make a function a chart: it draws the numbers that ``numbers`` computes."""
    return lambda draw: ChartEntry(name, group, summary, numbers, draw)
