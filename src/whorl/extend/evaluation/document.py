"""The result of an evaluation on weights as one document of plain values.

model, trained, target, lengths, windows, scored
rows          a method each: loss by length, loss by position, frameworks that run it
retrieval     shares of right answers by form, row, length and depth; their means; effective
              lengths; None if it was not asked for
missing       cells that did not fit into the time
recipes       what to write for the best method, None if that is the published rotation, or what a
              search found
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whorl.extend.plan import plan_extension
from whorl.extend.report import ExtensionPlan, MethodReport

from .cells import EvaluationPlan
from .effective import compute_means, find_effective_lengths
from .ranking import choose_method, find_best
from .settings import PUBLISHED, SLIDING_WINDOW

__all__ = ["Measurements", "build_document"]


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """All that a document is built from.

    config, given: the config and the trained length as ``plan_extension`` took them.
    results: by the name of the cell. reasons: forms of retrieval without results, and why.
    missing: names of cells that did not fit into the time.
    """

    name: str
    config: Any
    given: int | None
    plan: ExtensionPlan
    methods: tuple[MethodReport, ...]
    cells: EvaluationPlan
    scored: int
    results: Mapping[str, Any]
    reasons: Mapping[str, str]
    missing: tuple[str, ...]


def build_document(found: Measurements) -> dict[str, Any]:
    """The document of an evaluation."""
    document: dict[str, Any] = {
        "model": found.name,
        "trained": found.plan.trained.tokens,
        "trained_why": found.plan.trained.why,
        "target": found.plan.target,
        "lengths": list(found.cells.lengths),
        "windows": found.cells.windows,
        "scored": found.scored,
        "rows": [*(_build_row(found, method) for method in found.methods), _build_window(found)],
        "retrieval": _build_retrieval(found),
        "missing": list(found.missing),
    }
    return {**document, "recipes": _build_recipes(found, document)}


def _build_row(found: Measurements, method: MethodReport) -> dict[str, Any]:
    cell = found.results.get(found.cells.find_cell(method.name, found.plan.target)) or {}
    return {
        "name": method.name,
        "title": method.title,
        "run_by": list(method.run_by),
        "by_length": _collect_lengths(found, method.name),
        "by_position": cell.get("by_position"),
    }


def _build_window(found: Measurements) -> dict[str, Any]:
    return {
        "name": SLIDING_WINDOW,
        "title": f"the last {found.plan.trained.tokens:,} tokens only",
        "run_by": [],
        "by_length": _collect_lengths(found, SLIDING_WINDOW),
        "by_position": None,
    }


def _collect_lengths(found: Measurements, row: str) -> dict[str, Any]:
    """Losses of a row at the lengths that were measured."""
    cells = {n: found.results.get(found.cells.find_cell(row, n)) for n in found.cells.lengths}
    return {str(n): _summarize_blocks(cell["blocks"]) for n, cell in cells.items() if cell}


def _summarize_blocks(blocks: Sequence[Sequence[float]]) -> dict[str, Any]:
    flat = [value for row in blocks for value in row]
    return {"loss": sum(flat) / len(flat), "blocks": flat}


def _build_retrieval(found: Measurements) -> dict[str, Any] | None:
    test = found.cells.test
    if not test.texts:
        return None
    forms = {form: _collect_shares(found, form) for form in test.forms if form not in found.reasons}
    forms = {form: shares for form, shares in forms.items() if shares}
    means = compute_means(forms) if forms else {}
    own = means.get(PUBLISHED, {}).get(str(found.plan.trained.tokens))
    return {
        "depths": list(test.depths),
        "texts": test.texts,
        "forms": forms,
        "why": dict(found.reasons),
        "means": means,
        "effective": {} if own is None else find_effective_lengths(means, own),
    }


def _collect_shares(found: Measurements, form: str) -> dict[str, dict[str, list[float]]]:
    """Shares of right answers by row and length, each a list by depth."""
    lengths = [n for n in found.cells.lengths if n >= found.plan.trained.tokens]
    shares: dict[str, dict[str, list[float]]] = {}
    for row in (*found.cells.methods, SLIDING_WINDOW):
        cells = {n: found.results.get(found.cells.find_cell(row, n, form)) for n in lengths}
        if any(cells.values()):
            shares[row] = {str(n): cell for n, cell in cells.items() if cell}
    return shares


def _build_recipes(found: Measurements, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """What to write for the best method at the target."""
    best = find_best(document, found.plan.target)
    if not best or PUBLISHED in best or found.plan.find_method(best[0]) is None:
        return None
    name = choose_method(document, best)
    plan = plan_extension(found.config, to=found.plan.target, method=name, trained=found.given)
    return {"method": name, "recipes": [recipe.to_dict() for recipe in plan.recipes]}
