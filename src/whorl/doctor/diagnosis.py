"""What was found, ready to be printed, kept or acted on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl.configs.model import ModelPositions

from . import fix
from .engine import SEVERITIES, Finding, Severity

__all__ = ["Diagnosis"]


@dataclass(frozen=True)
class Diagnosis:
    """The findings about one model, the worst first.

    config: the keys as they were written.
    path: the file they came from, None for a dict or an object.
    """

    config: Mapping[str, Any]
    findings: tuple[Finding, ...]
    path: Path | None = None
    reading: ModelPositions | None = None

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

    def fixed(self) -> dict[str, Any]:
        """The config with everything put right that has one possible meaning."""
        return fix.apply(self.config, fix.edits_of(self.findings))

    def to_dict(self) -> dict[str, Any]:
        """All of it as numbers, strings, lists and dicts."""
        return {
            "path": None if self.path is None else str(self.path),
            "model_type": None if self.reading is None else self.reading.model_type,
            "counts": {severity: len(self.of(severity)) for severity in SEVERITIES},
            "findings": [finding.to_dict() for finding in self.findings],
        }
