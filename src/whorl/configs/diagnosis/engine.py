"""What a rule is, and how all of them are put to one patient.

A rule is a function from a patient to symptoms, under ``@rule`` with what people need to know of
it. To add one, write it in the file of its subject in rules/; ``scripts/doctor-page`` then writes
its section of docs/doctor.md, and the tests try its two examples.

    error     the model computes something else than the config says, or does not load
    warning   some software reads the config differently, or the text gets worse where it is used
    note      worth knowing; nothing needs to change
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from whorl._support.words import escape_controls, quote, shorten, suggest_name
from whorl.types import Layout

from .model import Patient

__all__ = [
    "LLAMA",
    "RULES",
    "SEVERITIES",
    "Case",
    "Edit",
    "Finding",
    "Rule",
    "Severity",
    "Symptom",
    "find_rule",
    "put",
    "rule",
]

Severity = Literal["error", "warning", "note"]
#: From worst to mildest.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

PAGE = "docs/doctor.md"
#: Findings of one rule that are told one by one.
_MOST_FINDINGS = 100

#: What the examples are laid over.
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
}


@dataclass(frozen=True)
class Edit:
    """One change of a config: the key at ``path`` set to ``value``, removed, or renamed to it."""

    do: Literal["set", "remove", "rename"]
    path: tuple[str, ...]
    value: Any = None


@dataclass(frozen=True)
class Symptom:
    """What a rule saw.

    where: the key, as a path from the top of the config, or the name of a tensor.
    message: one sentence or two, with the values.
    edits: what ``--fix`` does about it; nothing where a person has to decide.
    severity: where it is not the rule's.
    """

    where: str
    message: str
    remedy: str | None = None  # None takes the rule's
    edits: tuple[Edit, ...] = ()
    severity: Severity | None = None


@dataclass(frozen=True)
class Case:
    """An example: keys laid over those of a small Llama, and what else the rule looks at.

    stored: tensors of the checkpoint by name: their dtype and their values.
    trained: the layout that the weights of q and k in the checkpoint show, or one for each layer.
    """

    keys: Mapping[str, Any] = field(default_factory=dict)
    length: int | None = None
    stored: Mapping[str, tuple[str, tuple[float, ...]]] = field(default_factory=dict)
    trained: Layout | tuple[Layout, ...] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The whole config, a new one each time."""
        return copy.deepcopy({**LLAMA, **self.keys})

    def __str__(self) -> str:
        """The keys as JSON, long lists cut short, and what stands beside them."""
        text = (
            json.dumps(_short(self.keys), ensure_ascii=False).replace('"\u2026"', "\u2026")
            if self.keys
            else "{}"
        )
        more = [f"--length {self.length}"] if self.length else []
        more += [f"{name} stored as {kind}" for name, (kind, _) in self.stored.items()]
        if isinstance(self.trained, tuple):
            more.append(f"layers trained in the {' and the '.join(self.trained)} layout")
        elif self.trained:
            more.append(f"weights trained in the {self.trained} layout")
        return ", ".join([text, *more])


@dataclass(frozen=True)
class Rule:
    """One rule, with what ``--explain`` and the docs say about it.

    seen: where it happened: links to threads.
    trigger, near_miss: an example that must give a finding, and a similar one that must not.
    """

    id: str
    severity: Severity
    what: str
    why: str
    remedy: str
    seen: tuple[str, ...]
    trigger: Case
    near_miss: Case
    check: Callable[[Patient], Iterator[Symptom]]

    @property
    def docs(self) -> str:
        return f"{PAGE}#{self.id}"

    def to_dict(self) -> dict[str, Any]:
        names = ("id", "severity", "what", "why", "remedy", "docs")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "seen": list(self.seen)}


@dataclass(frozen=True)
class Finding:
    """A symptom and the rule that saw it."""

    rule: str
    severity: Severity
    where: str
    message: str
    remedy: str
    docs: str
    edits: tuple[Edit, ...] = ()
    failed: bool = False  # the rule itself raised, so what it looks for is not known

    @property
    def fixable(self) -> bool:
        """Whether ``--fix`` does something about it."""
        return bool(self.edits)

    def to_dict(self) -> dict[str, Any]:
        names = ("rule", "severity", "where", "message", "remedy", "docs", "fixable", "failed")
        return {name: getattr(self, name) for name in names}


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _short(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) and len(value) > 8:
        return [*value[:2], "\u2026", value[-1]]
    return value


RULES: dict[str, Rule] = {}

Check = Callable[[Patient], Iterator[Symptom]]


def rule(
    id: str,
    severity: Severity,
    *,
    what: str,
    why: str,
    remedy: str,
    seen: tuple[str, ...],
    trigger: Case,
    near_miss: Case,
) -> Callable[[Check], Check]:
    """Register a rule under ``id``."""

    def add(check: Check) -> Check:
        assert id not in RULES, f"two rules have the id {id!r}"
        RULES[id] = Rule(id, severity, what, why, remedy, seen, trigger, near_miss, check)
        return check

    return add


def find_rule(id: str) -> Rule:
    """The rule of that id, or an error that names the nearest."""
    if id not in RULES:
        raise ValueError(
            f"no rule is called {quote(id)}{suggest_name(id, RULES)} whorl doctor --list shows"
            " them all."
        )
    return RULES[id]


def put(patient: Patient, ignore: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """What all rules but the ignored ones find, the worst first."""
    found = [f for r in RULES.values() if r.id not in ignore for f in _apply_rule(r, patient)]
    found = [f for f in found if not _said(f.rule, found)]
    return tuple(sorted(found, key=lambda f: SEVERITIES.index(f.severity)))


def _apply_rule(rule: Rule, patient: Patient) -> Iterator[Finding]:
    """What one rule finds; one that raises says so and leaves the others their say."""
    try:
        symptoms = rule.check(patient)
        for symptom in islice(symptoms, _MOST_FINDINGS):
            remedy = symptom.remedy or rule.remedy
            said = escape_controls(symptom.message), escape_controls(remedy), rule.docs
            level = symptom.severity or rule.severity
            yield Finding(rule.id, level, shorten(symptom.where), *said, symptom.edits)
        if more := list(symptoms):
            level = min((s.severity or rule.severity for s in more), key=SEVERITIES.index)
            message = f"the same in {len(more)} more places."
            yield Finding(rule.id, level, "", message, rule.remedy, rule.docs)
    except Exception as error:
        yield Finding(
            rule.id,
            "warning",
            "",
            f"this rule stopped with {type(error).__name__}: {quote(str(error))}. That is a mistake"
            " of whorl; what the rule looks for is not known.",
            "Report it together with the config; the other rules were applied."
            f" --ignore {rule.id} leaves this one out.",
            rule.docs,
            failed=True,
        )


#: Rules that say that something is wrong, and are left out where another says what.
_GENERAL = ("unreadable", "transformers-refuses", "transformers-differs")
#: Rules below errors that say why transformers computes something else.
_DIFFERENCES = ("long-factor-unused", "partial-ignored", "truncate-nested")
#: Errors that say nothing about why a config cannot be read or followed.
_APART = ("no-model-type",)


def _said(rule: str, found: list[Finding]) -> bool:
    """Whether a general rule has nothing to add."""
    if rule not in _GENERAL:
        return False
    more = _DIFFERENCES if rule == "transformers-differs" else ()
    silent = (*_GENERAL, *_APART)
    return any((f.severity == "error" or f.rule in more) and f.rule not in silent for f in found)
