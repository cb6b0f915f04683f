"""The report of ``check``: properties with measured errors, and mistakes in words."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .identification import Identification

__all__ = ["CheckReport", "Measured", "Mistake"]


class Measured(NamedTuple):
    """Whether a property holds, and its measured error."""

    ok: bool
    error: float


class Mistake(NamedTuple):
    """A mistake: an id that never changes, and an explanation in words."""

    id: str
    words: str


@dataclass(frozen=True)
class CheckReport:
    """What ``check`` found out about a function; ``print`` shows it as a table.

    properties: name -> (ok, error). limits: name -> largest error with which it holds.
    unmeasured: name -> why the property could not be measured, or not at all positions.
    diagnoses: mistakes, [(id, words)].
    identified: what the function computes; None if it could not be called.
    """

    name: str
    head_dim: int
    properties: dict[str, Measured]
    limits: dict[str, float] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    diagnoses: list[Mistake] = field(default_factory=list)
    identified: Identification | None = None

    @property
    def ok(self) -> bool:
        """Whether every property holds and nothing is wrong."""
        return not self.diagnoses and all(found.ok for found in self.properties.values())

    def to_dict(self) -> dict[str, Any]:
        """The report as numbers, strings, lists and dicts."""
        return {
            "name": self.name,
            "head_dim": self.head_dim,
            "ok": self.ok,
            "properties": {
                name: {"ok": found.ok, "error": found.error, "limit": self.limits[name]}
                for name, found in self.properties.items()
            },
            "unmeasured": dict(self.unmeasured),
            "diagnoses": [found._asdict() for found in self.diagnoses],
            "identified": None if self.identified is None else self.identified.to_dict(),
        }

    def __str__(self) -> str:
        from .text import render_report

        return render_report(self)
