"""Two models side by side: what their configs say about positions, and where they differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from .report import GroupReport, Inspection
from .words import describe_group, format_number, list_facts

__all__ = ["ComparedFact", "ModelDifference", "compare_models"]

_ABSENT = "\u2013"  # an en dash, as tables have it


@dataclass(frozen=True)
class ComparedFact:
    """One fact about both models; part: "model", or the number of a pair of layer groups."""

    part: str | int
    name: str
    first: str
    second: str

    @property
    def differs(self) -> bool:
        return self.first != self.second

    def to_dict(self) -> dict[str, Any]:
        names = ("part", "name", "first", "second", "differs")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class ModelDifference:
    """The facts of two models, and a sentence about where they differ."""

    first: Inspection
    second: Inspection
    facts: tuple[ComparedFact, ...]

    @property
    def verdict(self) -> str:
        """Which facts differ, in one sentence."""
        names = list(dict.fromkeys(fact.name for fact in self.facts if fact.differs))
        both = f"{self.first.source} and {self.second.source}"
        if not names:
            return f"{both} treat positions alike."
        return f"{both} differ in {', '.join(names)}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "models": [self.first.to_dict(), self.second.to_dict()],
            "facts": [fact.to_dict() for fact in self.facts],
        }


def compare_models(first: Inspection, second: Inspection) -> ModelDifference:
    """What two models do with positions, fact by fact; their layers are paired in order.

    >>> from whorl.configs.inspection import inspect
    >>> found = compare_models(inspect("llama-3-8b"), inspect("llama-3.1-8b"))
    >>> [fact.name for fact in found.facts if fact.differs]
    ['context', 'wavelengths', 'long wavelengths', 'scaling', 'effective context']
    """
    models = [
        ("model type", first.model.model_type, second.model.model_type),
        ("number of layers", first.model.num_layers, second.model.num_layers),
        ("context", first.model.context, second.model.context),
    ]
    facts = [ComparedFact("model", name, _format(a), _format(b)) for name, a, b in models]
    pairs = zip_longest(_pair_groups(first), _pair_groups(second))
    for number, (one, other) in enumerate(pairs):
        facts += _compare_groups(number, one, other)
    return ModelDifference(first, second, tuple(facts))


def _pair_groups(found: Inspection) -> list[GroupReport]:
    """Groups in an order that two models share: those without a window first."""
    return sorted(found.groups, key=lambda each: (each.encoding is None, each.group.window or 0))


def _compare_groups(
    number: int, one: GroupReport | None, other: GroupReport | None
) -> Iterator[ComparedFact]:
    titles = (_ABSENT if each is None else describe_group(each) for each in (one, other))
    yield ComparedFact(number, "layers", *titles)
    tables = [_collect_facts(each) for each in (one, other)]
    for name in dict.fromkeys([*tables[0], *tables[1]]):
        yield ComparedFact(number, name, *(table.get(name, _ABSENT) for table in tables))


def _collect_facts(report: GroupReport | None) -> dict[str, str]:
    """Facts by name; those that a group has several of, such as notes, in one text."""
    found: dict[str, str] = {}
    for name, value in [] if report is None else list_facts(report):
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


def _format(value: str | int | None) -> str:
    if value is None:
        return _ABSENT
    return value if isinstance(value, str) else format_number(value)
