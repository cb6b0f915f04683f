"""Mistakes by name: every rule is asked, and what another mistake explains is left out."""

from . import _mistakes_calls, _mistakes_turning
from .evidence import Evidence
from .properties import MEANINGS
from .report import Diagnosis

__all__ = ["diagnose"]

#: A mistake, and those that only seem to be there because of it.
_EXPLAINS = {
    "half-tables": ("half-angles", "far-positions", "position-dependent-norm", "norm"),
    "position-dependent-norm": ("half-angles", "far-positions", "history"),
    "not-linear": ("norm", "backward"),
    "input-modified": ("backward",),
    "batch-mates": ("not-pairs", "not-linear"),
    "heads-differ": ("no-rotation",),
    "not-repeatable": ("not-pairs", "not-linear", "heads-differ", "batch-mates"),
    "uneven-angles": ("half-angles", "far-positions", "unordered-frequencies", "norm"),
    "history": ("half-angles", "far-positions", "backward", "pieces-differ"),
}


def diagnose(evidence: Evidence) -> list[Diagnosis]:
    """Every mistake that shows, the most telling first, without what another one explains."""
    found = [said for rule in _RULES for said in rule(evidence)]
    explained = {name for said in found for name in _EXPLAINS.get(said.id, ())}
    return [said for said in found if said.id not in explained] or _unnamed(evidence)


def _unnamed(evidence: Evidence) -> list[Diagnosis]:
    """Properties that fail for no reason that has a name."""
    return [
        Diagnosis(
            f"no-{name}",
            f"It does not hold that {MEANINGS[name]}: the error is {measured.error:.2g} where"
            f" {limit:.2g} is allowed.",
        )
        for name, (measured, limit) in evidence.results.items()
        if not measured.ok
    ]


_RULES = (*_mistakes_turning.RULES, *_mistakes_calls.RULES)
