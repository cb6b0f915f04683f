"""What the catalogue knows of a chart, and the decorator that says it where the chart is drawn."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from whorl.analysis.record import Record

__all__ = ["Entry", "Group", "chart"]

Group = Literal["RoPE", "context extension", "any encoding", "a model"]
Draw = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Entry:
    """A chart: its name, one line about it, the function of its numbers, the one that draws."""

    name: str
    group: Group
    summary: str
    numbers: Callable[..., Record]
    draw: Draw

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of its options."""
        parameters = inspect.signature(self.numbers).parameters.values()
        return {p.name: p.default for p in parameters}


def chart(
    name: str, *, group: Group, summary: str, numbers: Callable[..., Record]
) -> Callable[[Draw], Entry]:
    """Make the function below the entry of a chart: it draws what ``numbers`` gives."""
    return lambda draw: Entry(name, group, summary, numbers, draw)
