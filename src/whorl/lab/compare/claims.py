"""Whether a comparison reproduces published claims: reproduced, not reproduced, and so on.

A claim says that a number is above a bound. It is *reproduced* if the whole 95 % interval is above
the bound, *not reproduced* if it is below, else *not decidable*; the evidence says why. With
three seeds or more, differences are paired by seed. With fewer they are paired by window of text,
and must exceed the bound by what another seed may change (noise.py).

Claims about how well an encoding does when it has learned are judged only if their number has
*settled*. Three times as many steps may change every row again as much as it has changed since runs
with a third of the steps; the number must stay on the same side of its bound, by more than other
seeds may change that. If a curve is not yet flat, it must also stay there when one row changes so
and the others do not. Otherwise the outcome is *not yet*, or *not decidable* if the number itself
would stay there and only the variation between seeds is too large. Claims about how fast it learns
compare the steps to a loss that both reach: the larger one of their last validation losses.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from whorl.lab.config import RunConfig

from .curves import LearningCurve
from .decisions import LEAST_GAIN, Side, explain_open, find_side, has_settled, would_stay
from .gather import EncodingResults
from .noise import compute_noise, find_deviation, get_curve_deviation
from .published import CLAIMS, FAR, RISES, Claim, LossFunction, Measure, build_rise
from .statistics import Estimate, estimate
from .thresholds import FLAT

__all__ = ["CLAIMS", "Claim", "check_claims"]

_REPRODUCED, _FAILED, _OPEN, _NOT_YET = (
    "reproduced",
    "not reproduced",
    "not decidable",
    "not yet",
)
_OUTCOMES: dict[Side, str] = {"above": _REPRODUCED, "below": _FAILED, "open": _OPEN}

_NO_SEED = "no seed in common"

Entries = Mapping[str, EncodingResults]


@dataclass(frozen=True)
class _Judgement:
    """The outcome of a claim, its number, and the sentence parts that prove it."""

    outcome: str
    value: Estimate
    evidence: str


def check_claims(entries: Sequence[EncodingResults], config: RunConfig) -> list[dict[str, Any]]:
    """Every claim whose rows and lengths the comparison has, with its outcome.

    All claims are about decoders with softmax attention; other models have none.
    """
    if config.model.kind != "decoder" or config.model.attention != "softmax":
        return []
    trained = config.training.length
    known = {entry.name: entry for entry in entries}
    scaled = config.evaluation.factor == FAR  # scalings are for 4 times the trained length
    found = []
    for claim in CLAIMS:
        at = {times: times * trained for times in sorted({1, *claim.multiples})}
        if (
            set(claim.needs) <= known.keys()
            and set(at.values()) <= set(config.lengths)
            and (scaled or not any("+" in name for name in claim.needs))
        ):
            found.append(_describe_claim(claim, _judge_claim(claim, known, at)))
    return found


def _describe_claim(claim: Claim, judgement: _Judgement) -> dict[str, Any]:
    value = judgement.value
    return {
        "id": claim.id,
        "kind": claim.kind,
        "claim": claim.claim,
        "published": claim.published,
        "url": claim.url,
        "outcome": judgement.outcome,
        "evidence": judgement.evidence,
        "value": {"mean": value.mean, "low": value.low, "high": value.high},
    }


def _judge_claim(claim: Claim, known: Entries, at: Mapping[int, int]) -> _Judgement:
    entries = {name: known[name] for name in claim.needs}
    # A scaling may lose what was learned, but there must be something to lose.
    trained = {one.trained_as: known[one.trained_as] for one in entries.values()}
    if claim.kind == "speed":
        found = _judge_speed(entries)
    else:
        found = _judge_losses(claim, entries, at, trained)
    if untrained := [name for name, one in trained.items() if not _has_learned(one, at[1])]:
        text = f"{', '.join(untrained)}: the loss is hardly below that of token frequencies"
        return _Judgement(_NOT_YET, found.value, text)
    return found


def _judge_losses(
    claim: Claim, entries: Entries, at: Mapping[int, int], trained: Entries
) -> _Judgement:
    """The judgement by the measure of the claim that supports it least.

    trained: rows without a scaling, whose loss at the trained length shows what rises.
    """
    losses = _list_losses(claim, entries, at)
    if claim.needs_rope_rise:
        rise = _estimate_measure(build_rise("rope"), entries, at, trained)
        if _compare_with_bound(rise.value, RISES, rise.noise) != _REPRODUCED:
            why = f"rise of rope at {FAR}x: {rise.value}, not surely above {RISES:g} ({rise.over})"
            text = f"{losses}; {why}, so that nothing is there to avoid"
            return _Judgement(_OPEN, rise.value, text)
    found = []
    for measure in claim.measures:
        number = _estimate_measure(measure, entries, at, trained)
        noise = number.noise
        side = find_side(number.value, claim.bound, noise)
        outcome = _OUTCOMES[side]
        text = (
            f"{losses}; {measure.label}: {number.value}, must exceed {claim.bound + noise:.2g}"
            f" ({number.over})"
        )
        if outcome == _OPEN and number.over != _NO_SEED:
            text += f"; {explain_open(number.value, claim.bound, noise)}"
        changes = _list_changes(measure, entries, at)
        if changes is None or not math.isfinite(number.value.mean):
            outcome, text = _NOT_YET, f"{text}; no run with a third of the steps"
        else:
            text += f"; with a third of the steps {number.value.mean - sum(changes):.2f}"
            flat = all(map(_is_flat, entries.values()))
            if not has_settled(side, number.value, changes, claim.bound, noise, flat=flat):
                if would_stay(side, number.value, changes, claim.bound, flat=flat):
                    outcome, text = (
                        _OPEN,
                        f"{text}; seeds differ too much to say what more steps do",
                    )
                else:
                    outcome, text = _NOT_YET, f"{text}, so that more steps may change the outcome"
        found.append(_Judgement(outcome, number.value, text))
    order = (_FAILED, _NOT_YET, _OPEN, _REPRODUCED)
    return min(found, key=lambda one: (order.index(one.outcome), one.value.mean))


def _list_changes(measure: Measure, entries: Entries, at: Mapping[int, int]) -> list[float] | None:
    """What each row has added to the measure since a third of the steps; None if it is not known.

    The measure is a sum of losses with factors, so that what the rows add makes the whole change.
    """
    changes = []
    for name, entry in entries.items():
        third = entry.third
        if third is None or not entry.evaluations.keys() <= third.evaluations.keys():
            return None
        moved = {
            times: _average_loss(entry, length) - _average_loss(third, length, entry.evaluations)
            for times, length in at.items()
        }
        changes.append(measure.compute(partial(_get_change, name, moved)))
    return changes if all(map(math.isfinite, changes)) else None


def _get_change(name: str, moved: Mapping[int, float], row: str, times: int) -> float:
    """How much a loss of the row ``name`` has changed; 0 for other rows."""
    return moved[times] if row == name else 0.0


def _average_loss(entry: EncodingResults, length: int, seeds: Iterable[int] | None = None) -> float:
    """Mean loss of ``seeds``, or of all."""
    losses = entry.get_by_seed(length, "loss")
    return fmean(losses[seed] for seed in (losses if seeds is None else seeds))


def _is_flat(entry: EncodingResults) -> bool:
    """Whether the last tenth of the steps took less than 0.5 % of the validation loss away."""
    found = entry.last_tenth
    return found is not None and found < FLAT


def _judge_speed(entries: Entries) -> _Judgement:
    """Share of steps that the first row saves until both reach the same loss."""
    (name, first), (other, second) = entries.items()
    seeds = sorted(first.curves.keys() & second.curves.keys())
    if not seeds:
        return _Judgement(_OPEN, Estimate(math.nan), _NO_SEED)
    races = [_race(first.curves[seed], second.curves[seed]) for seed in seeds]
    known = [race for race in races if race is not None]
    if len(known) < len(races):
        return _Judgement(_OPEN, Estimate(math.nan), "no steps can be compared: a loss is missing")
    target, ours, theirs = (fmean(column) for column in zip(*known, strict=True))
    value = estimate([_compute_saving(race) for race in known])
    over = f"{len(seeds)} seeds"
    if len(seeds) < 3:
        deviation = get_curve_deviation()
        noise = compute_noise([(1.0, deviation), (-1.0, deviation)], len(seeds))
        pairs = [(first.curves[seed], second.curves[seed]) for seed in seeds]
        value = _widen_by_noise(value.mean, pairs, noise)
        count = "one seed" if len(seeds) == 1 else "two seeds"
        over = f"{count}; the interval is for curves {noise:.2g} nats higher or lower"
    outcome = _compare_with_bound(value, 0.0)
    text = (
        f"to a validation loss of {target:.2f}: {name} {ours:,.0f} steps, {other}"
        f" {theirs:,.0f}; share of steps saved: {value.format_percent()}, must exceed 0 % ({over})"
    )
    if outcome == _OPEN:
        text += "; the interval contains 0"
    return _Judgement(outcome, value, text)


def _race(first: LearningCurve, second: LearningCurve) -> tuple[float, float, float] | None:
    """The loss that both curves reach, and the step at which each does."""
    if not first.losses or not second.losses:
        return None
    target = max(first.last, second.last)
    ours, theirs = first.find_step(target), second.find_step(target)
    return None if ours is None or theirs is None else (target, ours, theirs)


def _compute_saving(race: tuple[float, float, float]) -> float:
    _, ours, theirs = race
    return 1.0 - ours / theirs


def _widen_by_noise(
    mean: float, pairs: Sequence[tuple[LearningCurve, LearningCurve]], noise: float
) -> Estimate:
    """The mean saving, with those that other seeds could give as its interval."""
    low, high = (
        fmean(
            mean if (race := _race(first.shift(nats), second)) is None else _compute_saving(race)
            for first, second in pairs
        )
        for nats in (noise, -noise)
    )
    return Estimate(mean, low, high)


def _has_learned(entry: EncodingResults, length: int) -> bool:
    """Whether a model predicts better than token frequencies; else positions do not matter."""
    return all(
        loss < entry.evaluations[seed]["frequencies_loss"] - LEAST_GAIN
        for seed, loss in entry.get_by_seed(length, "loss").items()
    )


def _list_losses(claim: Claim, entries: Entries, at: Mapping[int, int]) -> str:
    """Mean losses of each row: "rope 1.75 (1x) 2.63 (4x), alibi 1.80 (1x) 1.81 (4x)"."""
    return ", ".join(
        " ".join([name, *(f"{_average_loss(entry, at[n]):.2f} ({n}x)" for n in claim.multiples)])
        for name, entry in entries.items()
    )


@dataclass(frozen=True)
class _EstimatedMeasure:
    """A measure with its interval, and over what: "3 seeds", "one seed, 64 windows".

    noise: how much it may change with another seed, if the interval does not contain that.
    """

    value: Estimate
    over: str
    noise: float = 0.0


def _estimate_measure(
    measure: Measure, entries: Entries, at: Mapping[int, int], trained: Entries
) -> _EstimatedMeasure:
    """Estimate of a measure over seeds; with fewer than three, over windows of text.

    Two seeds would give an interval of Student's t with a factor of 12.7.
    """
    seeds = sorted(set.intersection(*(set(entry.evaluations) for entry in entries.values())))
    losses = {
        (name, times): entry.get_by_seed(length, "loss")
        for name, entry in entries.items()
        for times, length in at.items()
    }
    if len(seeds) > 2:
        value = estimate(_compute_each(measure.compute, losses, seeds))
        return _EstimatedMeasure(value, f"{len(seeds)} seeds")
    if not seeds:
        return _EstimatedMeasure(Estimate(math.nan), _NO_SEED)
    windows = {
        (name, times): dict(enumerate(_average_windows(entry, seeds, length)))
        for name, entry in entries.items()
        for times, length in at.items()
    }
    numbers = list(next(iter(windows.values())))
    value = estimate(_compute_each(measure.compute, windows, numbers))
    count = "one seed" if len(seeds) == 1 else "two seeds"
    noise = 0.0
    if math.isfinite(value.mean):
        noise = _compute_measure_noise(measure, entries, at, trained, len(seeds))
        if len(seeds) == 2:  # what the two differ by is two standard deviations of their mean
            first, second = _compute_each(measure.compute, losses, seeds)
            noise = max(noise, abs(first - second))
    return _EstimatedMeasure(value, f"{count}, {len(numbers)} windows", noise)


def _compute_measure_noise(
    measure: Measure, entries: Entries, at: Mapping[int, int], trained: Entries, seeds: int
) -> float:
    """How much other seeds may change a measure, which is a sum of losses with factors."""
    parts = []
    for name, entry in entries.items():
        for times in at:
            # The measure of a loss of 1 here and 0 elsewhere is the factor of this loss.
            factor = measure.compute(lambda *cell, here=(name, times): float(cell == here))
            if factor:
                start = _average_loss(trained.get(entry.trained_as, entry), at[1])
                rise = _average_loss(entry, at[times]) - start
                parts.append((factor, find_deviation(times, rise)))
    return compute_noise(parts, seeds)


def _compute_each(
    compute: Callable[[LossFunction], float],
    losses: Mapping[tuple[str, int], Mapping[int, float]],
    which: Sequence[int],
) -> list[float]:
    """The value of a measure in each seed, or in each window."""

    def at(n: int) -> LossFunction:
        return lambda name, times: losses[name, times][n]

    return [compute(at(n)) for n in which]


def _average_windows(entry: EncodingResults, seeds: Sequence[int], length: int) -> list[float]:
    """Loss of each window of text, the mean over ``seeds``."""
    columns = (entry.evaluations[seed]["by_length"][str(length)]["windows"] for seed in seeds)
    return [
        fmean(math.nan if loss is None else loss for loss in losses)
        for losses in zip(*columns, strict=True)
    ]


def _compare_with_bound(value: Estimate, bound: float, noise: float = 0.0) -> str:
    """The outcome of a claim; within ``noise`` of the bound it is not decidable."""
    return _OUTCOMES[find_side(value, bound, noise)]
