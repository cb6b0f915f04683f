"""What a rule is, and how all rules are applied to one model.

A rule is a function that takes a ``DiagnosedModel`` and yields a ``Problem`` for each key that is
wrong; ``@rule`` registers it with the text that users read. To add a rule, write it in the file of
its subject in rules/. ``scripts/doctor-page`` then writes its section of docs/doctor.md, and the
tests try its two examples.

    error     the model computes something else than the config says, or does not load
    warning   some software reads the config differently, or the text gets worse in some use
    note      worth knowing; nothing needs to change
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from whorl._support.words import escape_controls, quote, shorten, suggest_name
from whorl.types import Layout

from .model import DiagnosedModel

__all__ = [
    "LLAMA",
    "RULES",
    "SEVERITIES",
    "DiagnosisRule",
    "Edit",
    "Finding",
    "Problem",
    "RuleExample",
    "Severity",
    "apply_rules",
    "find_rule",
    "rule",
]

Severity = Literal["error", "warning", "note"]
#: From worst to mildest.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

PAGE = "docs/doctor.md"
#: Findings of one rule that are reported one by one.
_MOST_FINDINGS = 100

#: The config whose keys the examples add to or replace.
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
}


@dataclass(frozen=True)
class Edit:
    """One change of a config: the key at ``path`` is set to ``value``, renamed to it or removed."""

    do: Literal["set", "remove", "rename"]
    path: tuple[str, ...]
    value: Any = None


@dataclass(frozen=True)
class Problem:
    """What a rule found wrong in one place.

    where: the path of the key from the top of the config, or the name of a tensor.
    message: one sentence or two, with the values.
    remedy: what to do about it; None stands for the remedy of the rule.
    edits: the changes that ``--fix`` makes; empty where a person has to decide.
    severity: None stands for the severity of the rule.
    """

    where: str
    message: str
    remedy: str | None = None
    edits: tuple[Edit, ...] = ()
    severity: Severity | None = None


@dataclass(frozen=True)
class RuleExample:
    """An example for a rule: a config, and the length and the weights that go with it.

    keys: added to the keys of ``LLAMA``, or replacing them.
    stored: tensors of the checkpoint: their names, dtypes and values.
    trained: the layout of q and k in the weights of the checkpoint, or one for each layer.
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
        """The keys as JSON with long lists shortened, then the length and the weights."""
        text = (
            json.dumps(_shorten_lists(self.keys), ensure_ascii=False).replace('"\u2026"', "\u2026")
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
class DiagnosisRule:
    """One rule, with the text that ``--explain`` and the docs show.

    seen: links to threads in which users met the problem.
    trigger, near_miss: an example that must give a finding, and a similar one that must not.
    check: the function that looks for the problem.
    """

    id: str
    severity: Severity
    what: str
    why: str
    remedy: str
    seen: tuple[str, ...]
    trigger: RuleExample
    near_miss: RuleExample
    check: Callable[[DiagnosedModel], Iterator[Problem]]

    @property
    def docs(self) -> str:
        """The section of the documentation about this rule."""
        return f"{PAGE}#{self.id}"

    def to_dict(self) -> dict[str, Any]:
        names = ("id", "severity", "what", "why", "remedy", "docs")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "seen": list(self.seen)}


@dataclass(frozen=True)
class Finding:
    """One problem of a model, with the rule that found it.

    failed: the rule itself raised an error, so it is not known whether its problem is there.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    remedy: str
    docs: str
    edits: tuple[Edit, ...] = ()
    failed: bool = False

    @property
    def fixable(self) -> bool:
        """Whether ``--fix`` corrects it."""
        return bool(self.edits)

    def to_dict(self) -> dict[str, Any]:
        names = ("rule", "severity", "where", "message", "remedy", "docs", "fixable", "failed")
        return {name: getattr(self, name) for name in names}


def _shorten_lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shorten_lists(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) and len(value) > 8:
        return [*value[:2], "\u2026", value[-1]]
    return value


RULES: dict[str, DiagnosisRule] = {}

Check = Callable[[DiagnosedModel], Iterator[Problem]]


def rule(
    id: str,
    severity: Severity,
    *,
    what: str,
    why: str,
    remedy: str,
    seen: tuple[str, ...],
    trigger: RuleExample | Mapping[str, Any],
    near_miss: RuleExample | Mapping[str, Any],
) -> Callable[[Check], Check]:
    """Register a rule under ``id``.

    seen: links, those to GitHub without its address.
    near_miss: the keys in which it differs from the trigger, or an example of its own.
    """

    def add(check: Check) -> Check:
        assert id not in RULES, f"two rules have the id {id!r}"
        links = tuple(link if "://" in link else f"https://github.com/{link}" for link in seen)
        found = trigger if isinstance(trigger, RuleExample) else RuleExample(trigger)
        missed = near_miss
        if not isinstance(missed, RuleExample):
            missed = replace(found, keys={**found.keys, **missed})
        RULES[id] = DiagnosisRule(id, severity, what, why, remedy, links, found, missed, check)
        return check

    return add


def find_rule(id: str) -> DiagnosisRule:
    """The rule of that id, or an error that names the nearest."""
    if id not in RULES:
        raise ValueError(
            f"no rule is called {quote(id)}{suggest_name(id, RULES)} whorl doctor --list shows"
            " them all."
        )
    return RULES[id]


def apply_rules(model: DiagnosedModel, ignore: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
    """The findings of all rules but the ignored ones, the worst first.

    A general finding is left out if another says the reason.
    """
    found = [f for r in RULES.values() if r.id not in ignore for f in _apply_rule(r, model)]
    found = [f for f in found if not _is_explained_elsewhere(f, found)]
    return tuple(sorted(found, key=lambda f: SEVERITIES.index(f.severity)))


def _apply_rule(rule: DiagnosisRule, model: DiagnosedModel) -> Iterator[Finding]:
    """The findings of one rule; if it raises, one finding, a warning, that says so."""
    try:
        problems = rule.check(model)
        for problem in islice(problems, _MOST_FINDINGS):
            remedy = problem.remedy or rule.remedy
            said = escape_controls(problem.message), escape_controls(remedy), rule.docs
            level = problem.severity or rule.severity
            yield Finding(rule.id, level, shorten(problem.where), *said, problem.edits)
        if more := list(problems):
            level = min((s.severity or rule.severity for s in more), key=SEVERITIES.index)
            message = f"the same in {len(more)} more places."
            yield Finding(rule.id, level, "", message, rule.remedy, rule.docs)
    except Exception as error:
        yield Finding(
            rule.id,
            "warning",
            "",
            f"this rule stopped with {type(error).__name__}: {quote(str(error))}. That is a bug in"
            " whorl; whether the config has this problem is not known.",
            "Please report it together with the config. The other rules were applied;"
            f" --ignore {rule.id} leaves this one out.",
            rule.docs,
            failed=True,
        )


#: Rules that only say that something is wrong; left out where another rule says what.
_GENERAL_RULES = ("unreadable", "transformers-refuses", "transformers-differs")
#: Warnings that say why transformers computes something else.
_RULES_ABOUT_DIFFERENCES = ("long-factor-unused", "partial-ignored", "truncate-nested")
#: Errors that do not explain why a config cannot be read or is read differently.
_UNRELATED_ERRORS = ("no-model-type",)


def _is_explained_elsewhere(finding: Finding, found: list[Finding]) -> bool:
    """Whether the rule of a finding is a general one, and another finding says the reason.

    A warning explains one difference; of several ("base 1,000, not base 10,000, layout half, not
    layout interleaved"), those without a rule of their own would be lost.
    """
    if finding.rule not in _GENERAL_RULES:
        return False
    one = finding.rule == "transformers-differs" and finding.message.count(", not ") == 1
    more = _RULES_ABOUT_DIFFERENCES if one else ()
    silent = (*_GENERAL_RULES, *_UNRELATED_ERRORS)
    return any((f.severity == "error" or f.rule in more) and f.rule not in silent for f in found)
