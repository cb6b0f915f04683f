"""The rule by which an experiment says that a row is better than another, and the sentence.

A contrast is one measure of a row minus that of another. With three seeds or more its 95 % interval
is over seeds, paired; with fewer it is over windows of the evaluation, and must exceed 0 by what
another seed may change. Its outcome is

    lower, higher     the whole interval is on that side of 0
    tied              the whole interval is within the bound of a tie
    not decidable     neither
    not yet           more steps may change that: the runs with a third of the steps disagree, or a
                      model predicts hardly better than token frequencies
"""

import math
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from whorl.lab.compare.decisions import (
    LEAST_GAIN,
    explain_open,
    find_side,
    has_settled,
)
from whorl.lab.compare.noise import compute_noise
from whorl.lab.compare.statistics import Estimate, estimate

from .definition import MeasureLabel
from .results import RowResults

__all__ = ["ContrastOutcome", "ContrastResult", "judge_contrast"]

ContrastOutcome = Literal["lower", "higher", "tied", "not decidable", "not yet"]
_SIDES: dict[str, ContrastOutcome] = {
    "above": "higher",
    "below": "lower",
    "open": "not decidable",
}
# With fewer seeds Student's t would give hopelessly wide intervals.
_LEAST_SEEDS = 3


@dataclass(frozen=True)
class ContrastResult:
    """The difference of a measure between two rows, and what it shows.

    value: with its interval. noise: how much other seeds may change it, if the interval does not
    contain that. third: the difference with a third of the steps. reason: why nothing is shown.
    """

    row: str
    against: str
    measure: MeasureLabel
    outcome: ContrastOutcome
    value: Estimate
    noise: float = 0.0
    over: str = ""
    third: float | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "row": self.row,
            "against": self.against,
            "measure": self.measure.id,
            "outcome": self.outcome,
            "mean": self.value.mean,
            "low": self.value.low,
            "high": self.value.high,
            "noise": self.noise,
            "over": self.over,
            "third": self.third,
            "reason": self.reason,
        }


def judge_contrast(
    row: RowResults, against: RowResults, measure: MeasureLabel, *, thirds: bool
) -> ContrastResult:
    """Whether a measure is lower or higher in a row than in another.

    thirds: whether rows were also run with a third of the steps, which must agree.
    """
    value, noise, over = _estimate_difference(row, against, measure.id)
    third = _compute_third(row, against, measure.id) if thirds else None
    names = (row.name, against.name)
    found = ContrastResult(*names, measure, "not decidable", value, 0.0, over, third)
    if noise is None:
        return replace(found, reason=f"{over}, and how much another seed changes it is not known")
    if value.low is None or value.high is None:
        return replace(found, noise=noise, reason=explain_open(value, 0.0, noise))
    side = find_side(value, 0.0, noise)
    tied = side == "open" and max(-(value.low - noise), value.high + noise) < measure.tied
    reason = explain_open(value, 0.0, noise) if side == "open" and not tied else ""
    outcome: ContrastOutcome = "tied" if tied else _SIDES[side]
    found = replace(found, outcome=outcome, noise=noise, reason=reason)
    if not (_has_learned(row) and _has_learned(against)):
        return replace(found, outcome="not yet", reason="hardly better than token frequencies")
    if not thirds:
        return found
    if third is None:
        return replace(found, outcome="not yet", reason="no run with a third of the steps")
    if tied:
        settled = abs(2 * value.mean - third) < measure.tied
    else:
        settled = has_settled(side, value, [value.mean - third], 0.0, noise)
    if not settled:
        text = "more steps may change it"
        return replace(found, outcome="not yet", reason=text)
    return found


def _estimate_difference(
    row: RowResults, against: RowResults, measure: str
) -> tuple[Estimate, float | None, str]:
    """The difference, how much other seeds may change it, and over what it was averaged.

    The second is None if that is not known.
    """
    ours, theirs = row.get_values(measure), against.get_values(measure)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return Estimate(math.nan), 0.0, "no seed in common"
    gaps = [ours[seed] - theirs[seed] for seed in seeds]
    if len(seeds) >= _LEAST_SEEDS:
        return estimate(gaps), 0.0, f"{len(seeds)} seeds"
    over = "one seed" if len(seeds) == 1 else "two seeds"
    columns = [one.get_windows(measure, seeds) for one in (row, against)]
    mean = Estimate(fmean(gaps))
    known = [one.deviations.get(measure) for one in (row, against)]
    if columns[0] is None or columns[1] is None or None in known:
        return mean, None if math.isfinite(mean.mean) else 0.0, over
    value = estimate([a - b for a, b in zip(columns[0], columns[1], strict=True)])
    noise = compute_noise([(1.0, deviation) for deviation in known if deviation], len(seeds))
    if len(seeds) == 2:  # what the two differ by is two standard deviations of their mean
        noise = max(noise, abs(gaps[0] - gaps[1]))
    return value, noise, f"{over}, {len(columns[0])} windows"


def _compute_third(row: RowResults, against: RowResults, measure: str) -> float | None:
    """The difference with a third of the steps, over the same seeds; None if one is missing."""
    if row.third is None or against.third is None:
        return None
    seeds = row.get_values(measure).keys() & against.get_values(measure).keys()
    ours, theirs = row.third.get_values(measure), against.third.get_values(measure)
    if not seeds or not seeds <= ours.keys() & theirs.keys():
        return None
    mean = fmean(ours[seed] - theirs[seed] for seed in seeds)
    return mean if math.isfinite(mean) else None


def _has_learned(row: RowResults) -> bool:
    """Whether the models of a row predict text better than token frequencies do."""
    bound = row.get_fact("frequencies_loss")
    losses = row.get_values("loss@1").values()
    return bound is None or not losses or all(loss < bound - LEAST_GAIN for loss in losses)
