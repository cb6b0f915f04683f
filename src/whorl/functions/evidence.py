"""All measurements of one function, for the rules about mistakes."""

from collections.abc import Iterator
from dataclasses import dataclass

from .calls import CallResults
from .identification import Identification
from .measured_function import MeasuredFunction
from .report import Mistake
from .results import PropertyResults
from .roles import RoleComparison

__all__ = ["Evidence", "Mistakes"]

#: What a rule returns.
Mistakes = Iterator[Mistake]


@dataclass(frozen=True)
class Evidence:
    """All measurements of x, of queries or of keys; roles compares queries with keys."""

    function: MeasuredFunction
    found: Identification
    results: PropertyResults
    calls: CallResults
    base: float | None
    roles: RoleComparison | None = None

    @property
    def depends_on_call_length(self) -> bool:
        """Whether results depend on the length of a call, even of short ones."""
        return self.fails("length") and self.calls.short_result is None

    @property
    def depends_on_context(self) -> bool:
        """Whether results depend on the largest position of a call."""
        return (
            self.function.lengths is not None and self.function.lengths.constant_up_to is not None
        )

    def fails(self, name: str) -> bool:
        return self.results.fails(name)

    def error(self, name: str) -> float:
        return self.results.error(name)
