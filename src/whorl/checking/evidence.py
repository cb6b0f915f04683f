"""What the rules about mistakes look at."""

from collections.abc import Iterator

from .calls import Calls
from .properties import Results
from .report import Diagnosis
from .spec import Identification
from .study import Study

__all__ = ["Evidence", "Found"]

#: What a rule yields.
Found = Iterator[Diagnosis]


class Evidence:
    """All that was measured."""

    def __init__(
        self,
        seen: Study,
        found: Identification,
        results: Results,
        calls: Calls,
        base: float | None,
    ) -> None:
        self.seen, self.found, self.results, self.calls = seen, found, results, calls
        self.base = base

    def fails(self, name: str) -> bool:
        return name in self.results and not self.results[name][0].ok

    def error(self, name: str) -> float:
        return self.results[name][0].error
