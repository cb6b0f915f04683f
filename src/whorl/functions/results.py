"""Measured properties, and the reasons why others could not be measured."""

from collections.abc import Sequence

from .report import Measured

__all__ = ["PropertyResults"]


class PropertyResults:
    """Properties by name. measured: name -> (Measured, limit). unmeasured: name -> reason."""

    def __init__(self) -> None:
        self.measured: dict[str, tuple[Measured, float]] = {}
        self.unmeasured: dict[str, str] = {}

    def add(self, name: str, error: float, limit: float) -> None:
        """Store a property that holds if error <= limit."""
        self.measured[name] = (Measured(error <= limit, error), limit)

    def record(self, name: str, ok: bool, error: float, limit: float) -> None:
        """Store a property that holds by another condition than error <= limit."""
        self.measured[name] = (Measured(ok, error), limit)

    def skip(self, name: str, why: str) -> None:
        """Store why a property could not be measured."""
        self.unmeasured[name] = why

    def fails(self, name: str) -> bool:
        return name in self.measured and not self.measured[name][0].ok

    def error(self, name: str) -> float:
        return self.measured[name][0].error

    def update(self, other: "PropertyResults") -> None:
        """Add all results of another measurement."""
        self.measured |= other.measured
        self.unmeasured |= other.unmeasured

    def select(self, names: Sequence[str]) -> "PropertyResults":
        """Results of the properties with these names."""
        some = PropertyResults()
        some.measured = {name: self.measured[name] for name in names if name in self.measured}
        some.unmeasured = {name: self.unmeasured[name] for name in names if name in self.unmeasured}
        return some

    def merge_keys(self, keys: "PropertyResults") -> None:
        """Replace results of queries by those of keys that are worse."""
        for name, theirs in keys.measured.items():
            if name not in self.measured or _rank_failure(theirs) > _rank_failure(
                self.measured[name]
            ):
                self.measured[name] = theirs
        for name, why in keys.unmeasured.items():
            self.unmeasured.setdefault(name, why if name not in self.measured else f"keys: {why}")


def _rank_failure(found: tuple[Measured, float]) -> tuple[bool, float]:
    measured, limit = found
    return not measured.ok, abs(measured.error) / (limit or 1.0)
