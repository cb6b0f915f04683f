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
    """A chart: its name, the function that computes its numbers, and the one that draws them."""

    name: str
    group: ChartGroup
    numbers: Callable[..., Record]
    draw: DrawFunction

    @property
    def summary(self) -> str:
        """A line about the chart: the first one of the docstring of ``draw``."""
        line = (self.draw.__doc__ or "").partition("\n")[0].removesuffix(".")
        return line[:1].lower() + line[1:]

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options of this chart."""
        parameters = inspect.signature(self.numbers).parameters.values()
        return {p.name: p.default for p in parameters}


def chart(
    name: str, *, group: ChartGroup, numbers: Callable[..., Record]
) -> Callable[[DrawFunction], ChartEntry]:
    """Make a function a chart: it draws the numbers that ``numbers`` computes."""
    return lambda draw: ChartEntry(name, group, numbers, draw)
