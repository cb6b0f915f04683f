"""``linear-attention``: what linear attention costs in loss, at equal steps and in equal time.

Rows are the feature maps of ``whorl.linear_attention`` with and without a rotation, as a decoder
and as an encoder: form (a) of Su et al. 2021, RoFormer, section 3.3,
https://arxiv.org/abs/2104.09864, with elu + 1 or relu, form (b), 1 + cosine, and positive
orthogonal random features (Choromanski et al. 2020, https://arxiv.org/abs/2009.14794). The naive
form, whose denominator is rotated too, cannot be trained: a table shows its denominators.

Loss in equal time: the fastest row of a kind of model sets the time. A slower row gets the steps
that fit into it, and its loss is taken to fall as a power of the number of steps, through its runs
with all and with a third of the steps, each of which ended with its learning rate at zero.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import whorl
from whorl.analysis import denominators

from .definition import Experiment, MeasureLabel, ResultTable
from .results import RowMeasurement, RowResults

__all__ = ["EXPERIMENT", "add_equal_time", "list_denominators"]

_LOSS, _TIMED = "loss@1", "loss in equal time"
_HEAD_DIM = 12
_LENGTHS = (16, 64, 256, 1024, 4096)


def add_equal_time(rows: Sequence[RowResults], folder: Path) -> list[RowResults]:
    """The rows with their loss in equal time, if they were also run with a third of the steps.

    Rows are of one kind if their names begin with the same word.
    """
    found = []
    for row in rows:
        same = [one for one in rows if _get_kind(one) == _get_kind(row)]
        values = {seed: _interpolate(row, same, seed) for seed in row.seeds}
        found.append(_add_values(row, {s: one for s, one in values.items() if one is not None}))
    return found


def _get_kind(row: RowResults) -> str:
    return row.name.partition(":")[0]


def _interpolate(row: RowResults, same: Sequence[RowResults], seed: int) -> float | None:
    """Factor from the loss at the last step to that in equal time; None without two runs."""
    if row.third is None or seed not in row.third.seeds:
        return None
    full, short = row.seeds[seed], row.third.seeds[seed]
    others = [one.seeds[seed] for one in same if seed in one.seeds]
    fits = min(_get_duration(one) for one in others) / full.facts["step_seconds"]
    steps, fewer = full.facts["steps"], short.facts["steps"]
    ratio = short.values[_LOSS] / full.values[_LOSS]
    if steps <= fewer or not (math.isfinite(ratio) and ratio > 0):
        return None
    power = math.log(ratio) / math.log(steps / fewer)
    return float((steps / fits) ** power)


def _get_duration(measured: RowMeasurement) -> float:
    """Seconds of training, from the median time of a step."""
    return measured.facts["steps"] * measured.facts["step_seconds"]


def _add_values(row: RowResults, factors: Mapping[int, float]) -> RowResults:
    """The row with its losses times these factors, which are those of a third of the time too."""

    def scale(seeds: Mapping[int, RowMeasurement]) -> dict[int, RowMeasurement]:
        found = dict(seeds)
        for seed, factor in factors.items():
            if (one := found.get(seed)) is not None:
                windows = [factor * loss for loss in one.windows.get(_LOSS, ())]
                found[seed] = dataclasses.replace(
                    one,
                    values={**one.values, _TIMED: factor * one.values[_LOSS]},
                    windows={**one.windows, _TIMED: windows},
                )
        return found

    deviations = dict(row.deviations)
    if _LOSS in deviations:
        deviations[_TIMED] = deviations[_LOSS]
    third = row.third and dataclasses.replace(row.third, seeds=scale(row.third.seeds))
    return dataclasses.replace(row, seeds=scale(row.seeds), deviations=deviations, third=third)


def list_denominators(rows: Sequence[RowResults], folder: Path) -> list[ResultTable]:
    """Denominators of random queries and keys by length, in the naive form and in (a) and (b)."""
    found = denominators(whorl.RoPE(_HEAD_DIM), _LENGTHS)
    body = [
        (
            str(one.length),
            f"{one.naive.lowest:+.3f}",
            f"{100 * one.naive.small:.1f} %",
            f"{100 * one.naive.negative:.1f} %",
            f"{one.form_one.lowest:+.3f}",
            f"{one.form_two.lowest:+.3f}",
        )
        for one in found
    ]
    heads = (
        "tokens",
        "naive, lowest",
        "naive, below 5 %",
        "naive, below 0",
        "(a) elu, lowest",
        "(b), lowest",
    )
    note = (
        "Relative to the mean without a rotation, for random queries and keys without a mask. A"
        " denominator near 0 or below it makes weights without bound, or of the wrong sign. Below"
        " 5 % and below 0: shares of queries whose denominator is that small in the naive form."
    )
    return [
        ResultTable("Denominators: why only the numerator is rotated", heads, tuple(body), note)
    ]


EXPERIMENT = Experiment(
    name="linear-attention",
    measures=(MeasureLabel(_TIMED, "loss in equal time"),),
    timed=True,
    derive=add_equal_time,
    list_tables=list_denominators,
)
