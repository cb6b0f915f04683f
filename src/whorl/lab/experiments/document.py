"""The result of an experiment as one document of plain values: result.json.

Tables, charts and the report are made from this document only.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from whorl._support.words import quote, suggest_name
from whorl.lab import files
from whorl.lab.compare.statistics import estimate
from whorl.lab.config import RunConfig

from .definition import CurveLabels, MeasureLabel
from .jobs import list_configs
from .judging import judge_contrast
from .plan import ExperimentPlan
from .registry import get_toml_path
from .results import VALIDATION, RowResults
from .sentence import describe_basis, write_sentence

__all__ = ["FORMAT", "build_result", "label_measures", "load_result"]

FORMAT = 1


def build_result(
    plan: ExperimentPlan,
    rows: Sequence[RowResults],
    folder: Path,
    *,
    corpus: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    """The result of an experiment from the results of its rows."""
    experiment = plan.experiment
    if experiment.derive is not None and rows:
        rows = experiment.derive(rows, folder)
    configs = list_configs(plan)
    settings = _describe_settings(plan, configs)
    lines = _find_lines(plan)
    unit = str(corpus.get("unit") or "tokens")
    measures = label_measures(plan, configs, unit)
    known = {one.name: one for one in rows}
    labels = {one.id: one for one in measures}
    thirds = plan.thirds and (experiment.trains or experiment.shorten_row is not None)
    contrasts = [
        judge_contrast(known[row], known[against], labels[measure], thirds=thirds)
        for row, against in plan.contrasts
        for measure in plan.judged
        if {row, against} <= known.keys()
        and known[row].get_values(measure)
        and known[against].get_values(measure)
    ]
    lengths = _label_lengths(configs, unit, plan.seeds)
    tables = experiment.list_tables(rows, folder) if experiment.list_tables and rows else []
    return {
        "format": FORMAT,
        "experiment": plan.name,
        "question": plan.question,
        "budget": plan.budget,
        "sentence": write_sentence(plan, contrasts, describe_basis(plan, settings)),
        "settings": settings,
        "measures": [{**dataclasses.asdict(x), "quantity": x.quantity} for x in measures],
        "quantities": _describe_labels({**lengths, **experiment.quantities}),
        "curves": _describe_labels({**_label_training(configs, unit), **experiment.curves}),
        "styles": {key: dataclasses.asdict(x) for key, x in experiment.styles.items()},
        "judged": list(plan.judged),
        "reference": plan.reference,
        "rows": [_build_row(row, measures, lines.get(row.name)) for row in rows],
        "contrasts": [one.to_dict() for one in contrasts],
        "tables": [table.to_dict() for table in tables],
        "corpus": dict(corpus),
        "environment": dict(environment),
        "unfinished": [],
        "notes": [*plan.notes, *_list_notes(plan, thirds)],
    }


def label_measures(
    plan: ExperimentPlan, configs: Sequence[RunConfig], unit: str = "tokens"
) -> list[MeasureLabel]:
    """All measures of an experiment; ValueError if it judges one that it does not have."""
    found = [*_label_losses(configs, unit), *plan.experiment.measures]
    known = [one.id for one in found]
    for name in plan.judged:
        if name not in known:
            raise ValueError(
                f"{get_toml_path(plan.name).name}: no measure {quote(name)} to judge"
                f"{suggest_name(name, known)} Measures: {', '.join(known)}."
            )
    return found


def load_result(path: Path) -> dict[str, Any]:
    """The result in a file result.json."""
    found: Any = files.read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT or "experiment" not in found:
        raise ValueError(f"{str(path)!r} is not the result of an experiment of this whorl.")
    return dict(found)


def _find_lines(plan: ExperimentPlan) -> dict[str, dict[str, Any]]:
    """Line and x of every row, for charts that join rows."""
    find = plan.experiment.find_line
    if find is None:
        return {}
    found = {row.name: find(row.tables) for row in plan.rows}
    return {name: {"name": line, "x": x} for name, (line, x) in found.items()}


def _build_row(
    row: RowResults, measures: Sequence[MeasureLabel], line: dict[str, Any] | None
) -> dict[str, Any]:
    values = {}
    for measure in measures:
        found = row.get_values(measure.id)
        if found:
            third = row.third.get_values(measure.id) if row.third is not None else {}
            number = estimate(list(found.values()))
            values[measure.id] = {
                **dataclasses.asdict(number),
                "seeds": list(found.values()),
                "third": fmean(third.values()) if third else None,
            }
    facts = {name for one in row.seeds.values() for name in one.facts}
    return {
        "name": row.name,
        "seeds": list(row.seeds),
        "values": values,
        "curves": _average_curves(row),
        "facts": {name: row.get_fact(name) for name in sorted(facts)},
        **({"line": line} if line else {}),
    }


def _average_curves(row: RowResults) -> dict[str, Any]:
    """Curves as means over seeds, where these have the same x."""
    found: dict[str, Any] = {}
    first = next(iter(row.seeds.values()))
    for name, curve in first.curves.items():
        others = [one.curves[name] for one in row.seeds.values() if name in one.curves]
        alike = [one for one in others if list(one["x"]) == list(curve["x"])]
        columns = zip(*(one["y"] for one in alike), strict=True)
        found[name] = {"x": list(curve["x"]), "y": [fmean(column) for column in columns]}
    return found


def _describe_settings(plan: ExperimentPlan, configs: Sequence[RunConfig]) -> dict[str, Any]:
    """Seeds, and what all rows have in common: settings of training runs, else of their tables."""
    found: dict[str, Any] = {"seeds": plan.seeds, "thirds": plan.thirds}
    for table in ("model", "training"):
        first, *rest = [row.tables.get(table, {}) for row in plan.rows]
        found |= {key: x for key, x in first.items() if all(one.get(key) == x for one in rest)}
    if configs:
        config = configs[0]
        tables = config.to_dict()
        for table in ("model", "training"):
            same = [one.to_dict()[table] for one in configs[: len(plan.rows) * plan.seeds]]
            for name, value in tables[table].items():
                if name != "seed" and all(one.get(name) == value for one in same):
                    found[name] = value
        found["lengths"] = config.lengths
        found["windows"] = config.evaluation.windows
        found["task"] = config.data.task
    return found


def _label_losses(configs: Sequence[RunConfig], unit: str) -> list[MeasureLabel]:
    """Losses and accuracies at every length of the evaluation."""
    if not configs:
        return []
    config = configs[0]
    pairs = list(zip(config.evaluation.multiples, config.lengths, strict=True))
    text = config.data.task == "text"
    losses = [
        MeasureLabel(f"loss@{multiple:g}", f"loss at {length} {unit}", length)
        for multiple, length in pairs
    ]
    shares = [
        MeasureLabel(
            f"accuracy@{multiple:g}", f"accuracy at {length} {unit}", length, 0.02, accuracy=True
        )
        for multiple, length in pairs
    ]
    return [*losses, *shares] if text else [*shares, *losses]


def _label_lengths(configs: Sequence[RunConfig], unit: str, seeds: int) -> dict[str, CurveLabels]:
    """The chart of losses by length, if there are several lengths."""
    if not configs or len(configs[0].lengths) < 2:
        return {}
    trained = configs[0].training.length
    loss = CurveLabels(
        "Loss by evaluation length",
        f"evaluation length ({unit}, log scale)",
        _name_loss(unit),
        "mean over seeds, bands: its 95 % interval" if seeds > 1 else "one seed",
        log=True,
        mark=(trained, f"trained at {trained}"),
    )
    accuracy = dataclasses.replace(
        loss,
        title="Accuracy by evaluation length",
        y="accuracy (share of right answers)",
        accuracy=True,
    )
    return {"loss": loss, "accuracy": accuracy}


def _label_training(configs: Sequence[RunConfig], unit: str) -> dict[str, CurveLabels]:
    if not configs:
        return {}
    batch, length = configs[0].training.batch, configs[0].training.length
    subtitle = f"validation loss by step; {batch} x {length} {unit} in each"
    labels = CurveLabels("How fast they learn", "step", _name_loss(unit), subtitle)
    return {VALIDATION: labels}


def _name_loss(unit: str) -> str:
    return f"loss (nats per {unit.removesuffix('s')})"


def _describe_labels(labels: Mapping[str, CurveLabels]) -> dict[str, Any]:
    found = {}
    for key, one in labels.items():
        found[key] = dataclasses.asdict(one) | {"mark": list(one.mark) if one.mark else None}
    return found


def _list_notes(plan: ExperimentPlan, thirds: bool) -> list[str]:
    """How the sentence was made."""
    if plan.budget == "smoke":
        return ["Smoke: a tiny model and a few steps, to see that everything runs."]
    notes = [
        f"{plan.seeds} seeds: intervals are 95 % of Student's t over seeds, differences paired by"
        " seed."
        if plan.seeds > 2
        else f"{'One seed' if plan.seeds == 1 else 'Two seeds'}: intervals are over windows of the"
        " evaluation, and a difference must exceed what another seed may change, which was measured"
        " with the model of whorl compare."
    ]
    if thirds:
        notes.append(
            "Every run was also trained with a third of the steps. A difference counts if another"
            " change of the same size would not reverse it; otherwise it is not yet settled."
        )
    return notes
