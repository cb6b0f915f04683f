"""How fast rows learn: steps to reach the same loss, apart from the loss when they have learned.

A row and the reference are compared at the loss that both reach, the higher of their two last
validation losses. Its measure is the share of steps that the row saves on the way to it.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from whorl.lab.compare.curves import LearningCurve

from .definition import MeasureLabel, ResultTable
from .results import VALIDATION, RowMeasurement, RowResults

__all__ = ["STEPS_SAVED", "StepsToLoss", "add_steps_saved", "compare_steps", "list_steps"]

STEPS_SAVED = MeasureLabel(
    "steps saved",
    "share of steps saved to the same loss",
    tied=0.05,
    accuracy=True,
    section="How fast they learn",
)


class StepsToLoss(NamedTuple):
    """The validation loss that two runs reach, and the step at which each of them does."""

    loss: float
    steps: float
    reference_steps: float

    @property
    def saved(self) -> float:
        """Share of the reference's steps that the run saves; negative if it needs more."""
        return 1 - self.steps / self.reference_steps


def compare_steps(measured: RowMeasurement, reference: RowMeasurement) -> StepsToLoss | None:
    """Steps of a run and of the reference to the loss that both reach; None without losses."""
    curves = [_read_curve(one) for one in (measured, reference)]
    if any(not curve.losses or not math.isfinite(curve.last) for curve in curves):
        return None
    target = max(curve.last for curve in curves)
    ours, theirs = (curve.find_step(target) for curve in curves)
    return None if ours is None or theirs is None else StepsToLoss(target, ours, theirs)


def _read_curve(measured: RowMeasurement) -> LearningCurve:
    found = measured.curves.get(VALIDATION, {"x": (), "y": ()})
    return LearningCurve(tuple(round(step) for step in found["x"]), tuple(found["y"]))


def add_steps_saved(
    rows: Sequence[RowResults], folder: Path, *, reference: str
) -> list[RowResults]:
    """The rows with their share of steps saved; that of the row ``reference`` is 0."""
    known = {row.name: row for row in rows}
    if reference not in known:
        return list(rows)
    other = known[reference]
    found = []
    for row in rows:
        full = row.add_values(_list_values(row.seeds, other.seeds))
        if row.third is not None and other.third is not None:
            third = row.third.add_values(_list_values(row.third.seeds, other.third.seeds))
            full = dataclasses.replace(full, third=third)
        found.append(full)
    return found


def _list_values(
    seeds: Mapping[int, RowMeasurement], others: Mapping[int, RowMeasurement]
) -> dict[int, dict[str, float]]:
    found = {seed: compare_steps(seeds[seed], others[seed]) for seed in seeds.keys() & others}
    return {seed: {STEPS_SAVED.id: one.saved} for seed, one in found.items() if one is not None}


def list_steps(rows: Sequence[RowResults], folder: Path, *, reference: str) -> list[ResultTable]:
    """A table of the steps that every row and the reference need to the loss that both reach."""
    known = {row.name: row for row in rows}
    body = []
    for row in rows if reference in known else ():
        others = known[reference].seeds
        pairs = [compare_steps(row.seeds[seed], others[seed]) for seed in row.seeds.keys() & others]
        found = [one for one in pairs if one is not None]
        if found and row.name != reference:
            loss, ours, theirs = (fmean(column) for column in zip(*found, strict=True))
            saved = fmean(one.saved for one in found)
            cells = (f"{loss:.2f}", f"{ours:,.0f}", f"{theirs:,.0f}", f"{100 * saved:.0f} %")
            body.append((row.name, *cells))
    if not body:
        return []
    heads = ("", "validation loss", "its steps", f"steps of {reference}", "saved")
    note = (
        f"The loss is the higher one of the two that the row and {reference} end with, on straight"
        " lines between the points of the learning curves. Means over seeds."
    )
    return [
        ResultTable(f"Steps to the loss that {reference} reaches too", heads, tuple(body), note)
    ]
