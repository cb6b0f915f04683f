"""The one sentence of an experiment, made from its contrasts by their outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any

from .judging import ContrastOutcome, ContrastResult
from .plan import ExperimentPlan

__all__ = ["describe_basis", "describe_contrast", "write_sentence"]

# Clauses by outcome, in the order of the sentence; {} are rows.
_CLAUSES: dict[ContrastOutcome, str] = {
    "lower": "lower with {}",
    "higher": "higher with {}",
    "tied": "the same within {bound} with {}",
    "not decidable": "not decidably different with {}",
    "not yet": "not yet settled with {}",
}


def write_sentence(plan: ExperimentPlan, contrasts: Sequence[ContrastResult], basis: str) -> str:
    """What the contrasts show, in one sentence.

    basis: seeds, steps and size of the model, which the sentence ends with.
    """
    if plan.budget == "smoke":
        return (
            "The smoke budget shows that the experiment runs, and nothing else: its numbers support"
            " no conclusion."
        )
    if not contrasts:
        return f"Too few rows have finished to compare any ({basis})."
    parts = []
    for against in dict.fromkeys(one.against for one in contrasts):
        mine = [one for one in contrasts if one.against == against]
        clauses = []
        for measure in dict.fromkeys(one.measure for one in mine):
            found = _list_clauses([one for one in mine if one.measure == measure])
            clauses.append(f"the {measure.label} is {_join(found)}")
        parts.append(f"compared with {against}, {'; '.join(clauses)}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]} ({basis})."


def _list_clauses(contrasts: Sequence[ContrastResult]) -> list[str]:
    found = []
    for outcome, clause in _CLAUSES.items():
        names = [describe_contrast(one) for one in contrasts if one.outcome == outcome]
        if names:
            bound = contrasts[0].measure.format_difference(contrasts[0].measure.tied)
            found.append(clause.format(_join(names), bound=bound))
    return found


def describe_contrast(contrast: ContrastResult) -> str:
    """The row of a contrast, with the difference and its interval if it is decided."""
    if contrast.outcome not in ("lower", "higher"):
        return contrast.row
    value, form = contrast.value, contrast.measure.format_difference
    assert value.low is not None
    assert value.high is not None
    low, high = sorted((abs(value.low), abs(value.high)))
    return f"{contrast.row} (by {form(abs(value.mean))} [{form(low)}, {form(high)}])"


def describe_basis(plan: ExperimentPlan, settings: Mapping[str, Any]) -> str:
    """Seeds, steps and size: "3 seeds, 1200 steps, 2 layers of width 48"."""
    words = ["one seed" if plan.seeds == 1 else f"{plan.seeds} seeds"]
    if settings.get("steps"):
        words.append(f"{settings['steps']} steps")
    if settings.get("layers"):
        count = "1 layer" if settings["layers"] == 1 else f"{settings['layers']} layers"
        words.append(f"{count} of width {settings['width']}")
    return ", ".join(words)


def _join(words: Sequence[str]) -> str:
    """Words with commas, and "and" before the last one."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
