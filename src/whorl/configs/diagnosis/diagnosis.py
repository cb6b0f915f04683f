"""What was found, ready to be printed, kept or acted on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whorl.configs.model import ModelPositions

from . import fix
from .checkpoint import Weights
from .engine import SEVERITIES, Finding, Severity, put
from .model import admit

__all__ = ["Diagnosis", "diagnose"]

#: Corrections that make others possible, one after the other, before we stop.
_MOST_ROUNDS = 8


@dataclass(frozen=True)
class Diagnosis:
    """The findings about one model, the worst first.

    config: the keys as they were written.
    path: the file they came from, None for a dict or an object.
    length, ignored, weights: what else was asked and looked at.
    """

    config: Mapping[str, Any]
    findings: tuple[Finding, ...]
    path: Path | None = None
    reading: ModelPositions | None = None
    length: int | None = None
    ignored: frozenset[str] = frozenset()
    weights: Weights = field(default_factory=Weights)

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == severity)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return self.of("error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self.of("warning")

    @property
    def notes(self) -> tuple[Finding, ...]:
        return self.of("note")

    def fails(self, *, strict: bool = False) -> bool:
        """Whether it is bad enough for a non-zero exit: errors, when strict warnings too."""
        return bool(self.errors or (strict and self.warnings))

    def correct(self) -> "Diagnosis":
        """The diagnosis of the corrected config: ``config`` holds it, ``findings`` what remains.

        Everything is put right that has one possible meaning. Each round of edits is examined
        again, because one correction can make room for the next.
        """
        found = self
        for _ in range(_MOST_ROUNDS):
            after = fix.apply(found.config, fix.edits_of(found.findings))
            if fix.dumps(after) == fix.dumps(found.config):
                break
            again = diagnose(after, self.length, self.ignored, self.weights)
            found = replace(again, path=self.path)
        return found

    def fixed(self) -> dict[str, Any]:
        """The config with everything put right that has one possible meaning."""
        return dict(self.correct().config)

    def to_dict(self) -> dict[str, Any]:
        """All of it as numbers, strings, lists and dicts."""
        return {
            "path": None if self.path is None else str(self.path),
            "model_type": None if self.reading is None else self.reading.model_type,
            "counts": {severity: len(self.of(severity)) for severity in SEVERITIES},
            "findings": [finding.to_dict() for finding in self.findings],
        }


def diagnose(
    x: Any, length: int | None, ignored: frozenset[str], weights: Weights | None = None
) -> Diagnosis:
    """Load ``x`` and apply all rules but the ignored ones; ``weights`` None looks beside it."""
    patient, path = admit(x, length, weights)
    findings = put(patient, ignored)
    return Diagnosis(
        patient.data, findings, path, patient.reading, length, ignored, patient.weights
    )
