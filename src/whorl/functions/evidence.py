"""What the rules about mistakes look at."""

from collections.abc import Iterator
from dataclasses import dataclass

from .calls import CallResults
from .identification import Identification
from .measured_function import MeasuredFunction
from .report import Mistake
from .results import PropertyResults
from .roles import RoleComparison

__all__ = ["Evidence", "Mistakes"]

#: What a rule yields.
Mistakes = Iterator[Mistake]


@dataclass(frozen=True)
class Evidence:
    """All that was measured of x, of queries or of keys; roles is about both together."""

    seen: MeasuredFunction
    found: Identification
    results: PropertyResults
    calls: CallResults
    base: float | None
    roles: RoleComparison | None = None

    @property
    def follows_calls(self) -> bool:
        """Whether results follow the length of calls as short as most that are made."""
        return self.fails("length") and self.calls.few is None

    @property
    def follows_context(self) -> bool:
        """Whether results follow the largest position of a call."""
        return self.seen.lengths is not None and self.seen.lengths.short_up_to is not None

    def fails(self, name: str) -> bool:
        return self.results.fails(name)

    def error(self, name: str) -> float:
        return self.results.error(name)
