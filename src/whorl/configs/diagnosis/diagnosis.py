"""A diagnosis: the findings about one model, and the config that results from correcting them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whorl.configs.model import ModelPositions

from . import fix
from .checkpoint import CheckpointSummary
from .engine import SEVERITIES, Finding, Severity, apply_rules
from .model import load_model

__all__ = ["ConfigDiagnosis", "diagnose_model"]

#: Rounds of correction, because one correction can make another possible.
_MOST_ROUNDS = 8


@dataclass(frozen=True)
class ConfigDiagnosis:
    """The findings about one model, the worst first.

    config: the keys as they were written.
    path: the file that they came from, None for a dict or an object.
    reading: what ``read_config`` makes of the config; None where it raises.
    length, ignored: the length and the ids of rules that the caller named.
    checkpoint: what the weights beside the config say about positions.
    """

    config: Mapping[str, Any]
    findings: tuple[Finding, ...]
    path: Path | None = None
    reading: ModelPositions | None = None
    length: int | None = None
    ignored: frozenset[str] = frozenset()
    checkpoint: CheckpointSummary = field(default_factory=CheckpointSummary)

    def select(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of one severity."""
        return tuple(f for f in self.findings if f.severity == severity)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return self.select("error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return self.select("warning")

    @property
    def notes(self) -> tuple[Finding, ...]:
        return self.select("note")

    def fails(self, *, strict: bool = False) -> bool:
        """Whether the exit code is to be non-zero: there are errors or, if strict, warnings."""
        return bool(self.errors or (strict and self.warnings))

    def correct(self) -> "ConfigDiagnosis":
        """The diagnosis of the corrected config: ``config`` holds it, ``findings`` what remains.

        Everything is corrected that has one possible meaning. The config is diagnosed again after
        each round of edits, because one correction can make another possible.
        """
        found = self
        for _ in range(_MOST_ROUNDS):
            after = fix.apply_edits(found.config, fix.collect_edits(found.findings))
            if fix.format_config(after) == fix.format_config(found.config):
                break
            again = diagnose_model(after, self.length, self.ignored, self.checkpoint)
            found = replace(again, path=self.path)
        return found

    def fixed(self) -> dict[str, Any]:
        """The config with everything corrected that has one possible meaning."""
        return dict(self.correct().config)

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as numbers, strings, lists and dicts."""
        return {
            "path": None if self.path is None else str(self.path),
            "model_type": None if self.reading is None else self.reading.model_type,
            "counts": {severity: len(self.select(severity)) for severity in SEVERITIES},
            "findings": [finding.to_dict() for finding in self.findings],
        }


def diagnose_model(
    x: Any,
    length: int | None,
    ignored: frozenset[str],
    checkpoint: CheckpointSummary | None = None,
) -> ConfigDiagnosis:
    """Load ``x`` and apply all rules but the ignored ones.

    checkpoint: what the weights say, where that is known; None looks for weights beside ``x``.
    """
    model = load_model(x, length, checkpoint)
    path = None if model.document is None else model.document.path
    findings = apply_rules(model, ignored)
    return ConfigDiagnosis(
        model.data, findings, path, model.reading, length, ignored, model.checkpoint
    )
