"""``roformer-stages``: the pre-training schedule of the Chinese RoFormer, scaled down.

Su et al. 2021, RoFormer, section 4.5.2 and table 4, https://arxiv.org/abs/2104.09864, train one
model in six stages of different lengths, and find that its accuracy rises with the length. There
every stage is measured on texts of its own length, after more steps than the one before. Here the
final model is evaluated at all lengths on the same tokens too, which leaves the length as the only
difference, and compared with a model that was trained at one length.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from whorl.lab.runs import Run

from .definition import CurveLabels, Experiment, MeasureLabel, ResultTable
from .plan import RowPlan
from .results import VALIDATION, RowMeasurement, RowResults

__all__ = ["EXPERIMENT", "FINAL_ROWS", "PUBLISHED", "split_lengths"]

_STAGED, _STAGES, _ACCURACY = "six stages", "stages", "accuracy by length"
#: Rows of the final model, and the multiple of the last stage's length at which each is evaluated.
FINAL_ROWS = {
    "1/4 length": 0.25,
    "1/2 length": 0.5,
    "full length": 1.0,
    "3 x length": 3.0,
}
#: Table 4 of the paper: maximum length, batch size, thousands of steps, loss, accuracy in percent.
PUBLISHED = (
    (512, 256, 200.0, 1.73, 65.0),
    (1536, 256, 12.5, 1.61, 66.8),
    (256, 256, 120.0, 1.75, 64.6),
    (128, 512, 80.0, 1.83, 63.4),
    (1536, 256, 10.0, 1.58, 67.4),
    (512, 512, 30.0, 1.66, 66.2),
)


def add_lengths(rows: Sequence[RowResults], folder: Path) -> list[RowResults]:
    """The rows with a curve of the accuracy after each stage, and a row for each length."""
    found = []
    for row in rows:
        found.append(_add_stages(row, folder) if row.name == _STAGED else row)
    staged = [row for row in rows if row.name == _STAGED]
    return [*found, *(one for row in staged for one in split_lengths(row))]


def split_lengths(row: RowResults) -> list[RowResults]:
    """A row for each length at which ``row`` was evaluated, with its accuracy there."""

    def take(seeds: Mapping[int, RowMeasurement], multiple: float) -> dict[int, RowMeasurement]:
        key = f"accuracy@{multiple:g}"
        return {n: RowMeasurement({_ACCURACY: x.values[key]}) for n, x in seeds.items()}

    found = []
    for name, multiple in FINAL_ROWS.items():
        third = row.third and RowResults(name, take(row.third.seeds, multiple))
        found.append(RowResults(name, take(row.seeds, multiple), third=third))
    return found


def _add_stages(row: RowResults, folder: Path) -> RowResults:
    seeds = {}
    for seed, measured in row.seeds.items():
        stages = _read_stages(row, folder, seed)
        numbers, shares = [x["stage"] for x in stages], [x["accuracy"] for x in stages]
        curves = {**measured.curves, _STAGES: {"x": numbers, "y": shares}}
        seeds[seed] = dataclasses.replace(measured, curves=curves)
    return dataclasses.replace(row, seeds=seeds)


def _read_stages(row: RowResults, folder: Path, seed: int) -> list[dict[str, Any]]:
    """Length, batch, steps, loss and accuracy after every stage of a run."""
    name = f"{RowPlan(row.name, {}).folder_name}-seed{seed}"
    found = Run(folder / name).read_evaluation()
    return [] if found is None else list(found.get("stages", ()))


def list_stages(rows: Sequence[RowResults], folder: Path) -> list[ResultTable]:
    """A table of all stages beside those of the paper."""
    body = []
    for row in (one for one in rows if one.name == _STAGED):
        columns = zip(*(_read_stages(row, folder, seed) for seed in row.seeds), strict=True)
        for stages, published in zip(columns, PUBLISHED, strict=True):
            first = stages[0]
            loss, share = (fmean(one[key] for one in stages) for key in ("loss", "accuracy"))
            error = math.sqrt(share * (1 - share) / (0.15 * 64 * first["length"]))
            length, batch, steps, their_loss, their_accuracy = published
            body.append(
                (
                    str(first["stage"]),
                    f"{first['length']} ({length:,})",
                    f"{first['batch']} ({batch})",
                    f"{first['steps']} ({steps:g}k)",
                    f"{loss:.2f} ({their_loss:.2f})",
                    f"{100 * share:.1f} % \u00b1{100 * error:.1f} ({their_accuracy:.1f} %)",
                )
            )
    heads = ("stage", "length", "batch", "steps", "loss", "accuracy")
    note = (
        "Here and, in brackets, in table 4 of Su et al. 2021: other text, tokens and size, so that"
        " only the order can be compared. Here after the last step of each stage, on 64 windows of"
        " its length; \u00b1 is the standard error of a share of the masked tokens in these."
        " Later stages have trained for longer."
    )
    return [ResultTable("After each stage", heads, tuple(body), note)] if body else []


EXPERIMENT = Experiment(
    name="roformer-stages",
    measures=(
        MeasureLabel(
            _ACCURACY,
            "accuracy of the final model",
            tied=0.01,
            accuracy=True,
            section="The final model",
        ),
    ),
    curves={
        VALIDATION: CurveLabels(
            "How fast they learn",
            "step",
            "loss (nats)",
            "validation loss at the length of the last stage",
        ),
        _STAGES: CurveLabels(
            "Accuracy after each stage", "stage", "share of masked bytes predicted", accuracy=True
        ),
    },
    derived=tuple(FINAL_ROWS),
    derive=add_lengths,
    list_tables=list_stages,
)
