"""The one sentence of an experiment, made from its contrasts by their outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any

from .judging import ContrastOutcome, ContrastResult
from .plan import ExperimentPlan

__all__ = ["describe_basis", "write_sentence"]

# Clauses by outcome, in the order of the sentence: before rows, and between two that are compared.
_CLAUSES: dict[ContrastOutcome, tuple[str, str]] = {
    "lower": ("lower with", "than with"),
    "higher": ("higher with", "than with"),
    "tied": ("the same within {bound} with", "against"),
    "not decidable": ("not decidably different with", "against"),
    "not yet": ("not yet settled with", "against"),
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
    chosen = [one for one in contrasts if (one.row, one.against) in plan.headline] or contrasts
    common = {one.against for one in chosen}
    parts = []
    for measure in dict.fromkeys(one.measure for one in chosen):
        mine = [one for one in chosen if one.measure == measure]
        parts.append(f"the {measure.label} is {_join(_list_clauses(mine, len(common) > 1))}")
    text = "; ".join(parts)
    if len(common) == 1:
        text = f"compared with {min(common)}, {text}"
    return f"{text[:1].upper()}{text[1:]} ({basis})."


def _list_clauses(contrasts: Sequence[ContrastResult], pairs: bool) -> list[str]:
    """A clause for each outcome; pairs: whether it names the rows that others are compared with."""
    bound = contrasts[0].measure.format_difference(contrasts[0].measure.tied)
    found = []
    for outcome, (before, between) in _CLAUSES.items():
        mine = [one for one in contrasts if one.outcome == outcome]
        groups = {one.against: [x for x in mine if x.against == one.against] for one in mine}
        names = [
            _join([_describe_row(one) for one in group])
            + (f" {between} {against}" if pairs else "")
            for against, group in groups.items()
        ]
        if names:
            words = ", and with ".join(names) if pairs else _join(names)
            found.append(f"{before.format(bound=bound)} {words}")
    return found


def _describe_row(contrast: ContrastResult) -> str:
    """The row of a contrast, with the difference and its interval if it is decided."""
    if contrast.outcome not in ("lower", "higher"):
        return contrast.row
    value, form = contrast.value, contrast.measure.format_difference
    assert value.low is not None
    assert value.high is not None
    ends = (form(end).partition(" ")[0] for end in sorted((abs(value.low), abs(value.high))))
    return f"{contrast.row} (by {form(abs(value.mean))} [{', '.join(ends)}])"


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
