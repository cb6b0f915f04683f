"""What the rules about mistakes look at."""

from collections.abc import Iterator
from dataclasses import dataclass

from .calls import Calls
from .report import Diagnosis
from .results import Results
from .roles import Roles
from .spec import Identification
from .study import Study

__all__ = ["Evidence", "Found"]

#: What a rule yields.
Found = Iterator[Diagnosis]


@dataclass(frozen=True)
class Evidence:
    """All that was measured of x, of queries or of keys; roles is about both together."""

    seen: Study
    found: Identification
    results: Results
    calls: Calls
    base: float | None
    roles: Roles | None = None

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
