"""What ``check`` answers: properties with measured errors, and what is wrong in words."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .identification import Identification

__all__ = ["CheckReport", "Measured", "Mistake"]


class Measured(NamedTuple):
    """Whether a property holds, and the error that was measured."""

    ok: bool
    error: float


class Mistake(NamedTuple):
    """A mistake by its name, which stays, and in words."""

    id: str
    words: str


@dataclass(frozen=True)
class CheckReport:
    """``print`` it, or read the parts.

    properties: name -> (ok, error). limits: what each error was allowed to be.
    unmeasured: name -> why, for properties that the function does not let us ask, or not as far as
    we would. diagnoses: [(id, words)].
    identified: what the function is; None where it could not be called.
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
        """All of it as numbers, strings, lists and dicts."""
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
