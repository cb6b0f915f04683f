"""Results of the rows of an experiment, by seed: numbers, numbers of each window, and curves."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from whorl.lab.compare.curves import LearningCurve
from whorl.lab.compare.noise import find_deviation
from whorl.lab.config import RunConfig
from whorl.lab.runs import Run

__all__ = [
    "VALIDATION",
    "RowMeasurement",
    "RowResults",
    "collect_results",
    "measure_lengths",
    "measure_run",
]

#: Key of the learning curve of training runs: validation loss by step.
VALIDATION = "validation"


@dataclass(frozen=True)
class RowMeasurement:
    """Numbers of one row with one seed.

    values: by the id of the measure. windows: values of parts of the evaluation, such as windows of
    text, in the same order in every row; differences are paired by them if there are few seeds.
    curves: lists "x" and "y". facts: other numbers, such as parameters and seconds.
    """

    values: Mapping[str, float]
    windows: Mapping[str, Sequence[float]] = field(default_factory=dict)
    curves: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "RowMeasurement":
        """The numbers that ``to_dict`` gave; null, which stands for NaN in JSON, becomes NaN."""
        found = {key: _read_numbers(document[key]) for key in ("values", "windows", "curves")}
        return cls(**found, facts=_read_numbers(document["facts"]))


@dataclass(frozen=True)
class RowResults:
    """Numbers of one row in all seeds.

    deviations: standard deviation of a measure between seeds, where it is known. third: the same
    row with a third of the steps, if it was run.
    """

    name: str
    seeds: Mapping[int, RowMeasurement]
    deviations: Mapping[str, float] = field(default_factory=dict)
    third: "RowResults | None" = None

    def get_values(self, measure: str) -> dict[int, float]:
        """Values of a measure by seed; seeds that lack it are left out."""
        found = {seed: one.values.get(measure) for seed, one in self.seeds.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def get_windows(self, measure: str, seeds: Sequence[int]) -> list[float] | None:
        """Values of each window, the mean over ``seeds``; None if a seed has none."""
        found = [self.seeds[seed].windows.get(measure) for seed in seeds]
        if not found or any(not one for one in found):
            return None
        return [fmean(column) for column in zip(*found, strict=True)]

    def get_fact(self, name: str) -> float | None:
        """The mean of a fact over seeds; None if no seed has it."""
        found = [one.facts[name] for one in self.seeds.values() if name in one.facts]
        return fmean(found) if found else None

    def add_values(self, values: Mapping[int, Mapping[str, float]]) -> "RowResults":
        """The same row with further values by seed."""
        seeds = {
            seed: dataclasses.replace(one, values={**one.values, **values.get(seed, {})})
            for seed, one in self.seeds.items()
        }
        return dataclasses.replace(self, seeds=seeds)

    def replace_step_seconds(self, seconds: Sequence[float] | None) -> "RowResults":
        """The row with the median of these for "step_seconds"; None changes nothing.

        Seconds of steps that took turns with those of other rows, while nothing else ran, say more
        than those of each run, which shared the machine. The fact "timed_alone" is 1 then.
        """
        if seconds is None:
            return self
        facts = {"step_seconds": median(seconds), "timed_alone": 1.0}
        seeds = {
            seed: dataclasses.replace(one, facts={**one.facts, **facts})
            for seed, one in self.seeds.items()
        }
        third = self.third and self.third.replace_step_seconds(seconds)
        return dataclasses.replace(self, seeds=seeds, third=third)


def measure_run(run: Run) -> RowMeasurement | None:
    """Numbers of a training run of the lab; None if it is not finished.

    Its measures are "loss@M" and "accuracy@M" at M times the trained length. The fact
    "step_seconds" is the median time of a training step.
    """
    found = run.read_evaluation()
    if found is None:
        return None
    config, lines = run.load_config(), run.read_metrics()
    curve = LearningCurve.from_metrics(lines)
    times = [0.0, *(line["seconds"] for line in lines)]
    facts = {
        **{key: found[key] for key in ("parameters", "encoding_parameters", "seconds")},
        "frequencies_loss": found["frequencies_loss"],
        "step_seconds": median(after - before for before, after in pairwise(times)),
        "steps": len(lines),
    }
    facts = {key: float(value) for key, value in facts.items() if value is not None}
    points = {"x": list(curve.steps), "y": _read_numbers(list(curve.losses))}
    measured = measure_lengths(found, config)
    return dataclasses.replace(measured, curves={VALIDATION: points}, facts=facts)


def measure_lengths(found: Mapping[str, Any], config: RunConfig) -> RowMeasurement:
    """Losses and accuracies "loss@M", "accuracy@M" of an evaluation, at M times the length."""
    values: dict[str, float] = {}
    windows: dict[str, Sequence[float]] = {}
    for multiple, length in zip(config.evaluation.multiples, config.lengths, strict=True):
        cell = found["by_length"][str(length)]
        values[f"loss@{multiple:g}"] = _read_numbers(cell["loss"])
        values[f"accuracy@{multiple:g}"] = _read_numbers(cell["accuracy"])
        windows[f"loss@{multiple:g}"] = _read_numbers(cell["windows"])
    return RowMeasurement(values, windows)


def collect_results(
    name: str,
    seeds: Mapping[int, RowMeasurement],
    thirds: Mapping[int, RowMeasurement],
) -> RowResults:
    """Results of a row, with those of its runs with a third of the steps."""
    third = RowResults(name, dict(sorted(thirds.items()))) if thirds else None
    row = RowResults(name, dict(sorted(seeds.items())), third=third)
    return dataclasses.replace(row, deviations=_find_deviations(row))


def _find_deviations(row: RowResults) -> dict[str, float]:
    """Standard deviations between seeds of losses of text, as ``compare`` has measured them."""
    found = {}
    near = row.get_values("loss@1").values()
    for measure in {key for one in row.seeds.values() for key in one.values}:
        quantity, at, multiple = measure.partition("@")
        if quantity == "loss" and at and near and row.get_fact("frequencies_loss") is not None:
            rise = fmean(row.get_values(measure).values()) - fmean(near)
            found[measure] = find_deviation(float(multiple), rise)
    return found


def _read_numbers(value: Any) -> Any:
    """``value`` with NaN for None, also inside lists and dictionaries."""
    if isinstance(value, Mapping):
        return {key: _read_numbers(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_read_numbers(one) for one in value]
    return math.nan if value is None else value
