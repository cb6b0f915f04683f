"""The rule and the sentence, with made-up numbers for every outcome."""

import dataclasses
import math
from collections.abc import Sequence

import pytest

from whorl.lab.compare.statistics import estimate
from whorl.lab.experiments import ExperimentPlan, MeasureLabel, RowMeasurement, RowResults
from whorl.lab.experiments.judging import judge_contrast
from whorl.lab.experiments.sentence import write_sentence

LOSS = MeasureLabel("loss@1", "loss at 128 bytes", 128)


def make_row(
    name: str, losses: Sequence[float], third: Sequence[float] = (), windows: Sequence[float] = ()
) -> RowResults:
    """A row with these losses by seed, and with those of a third of the steps."""

    def measure(loss: float) -> RowMeasurement:
        own = {"loss@1": [loss + x for x in windows]} if windows else {}
        return RowMeasurement({"loss@1": loss}, own, facts={"frequencies_loss": 3.0})

    short = RowResults(name, {n: measure(x) for n, x in enumerate(third)}) if third else None
    return RowResults(name, {n: measure(x) for n, x in enumerate(losses)}, third=short)


BASE = make_row("base", (1.50, 1.52, 1.54), (1.60, 1.62, 1.64))


@pytest.mark.parametrize(
    ("losses", "third", "outcome"),
    [
        ((1.40, 1.42, 1.45), (1.50, 1.52, 1.55), "lower"),
        ((1.60, 1.62, 1.65), (1.70, 1.72, 1.75), "higher"),
        ((1.501, 1.519, 1.541), (1.60, 1.62, 1.64), "tied"),
        ((1.40, 1.62, 1.54), (1.50, 1.72, 1.64), "not decidable"),
        # It is lower now, but was much higher: the change might also go on.
        ((1.40, 1.42, 1.45), (1.45, 1.47, 1.50), "lower"),
        ((1.48, 1.50, 1.521), (1.48, 1.50, 1.521), "not yet"),
        ((1.40, 1.42, 1.45), (), "not yet"),
        # Tied, but a moment ago it was not.
        ((1.501, 1.519, 1.541), (1.70, 1.72, 1.74), "not yet"),
        ((2.60, 2.62, 2.65), (2.70, 2.72, 2.75), "not yet"),  # hardly below token frequencies
        ((math.nan, 1.42, 1.45), (1.50, 1.52, 1.55), "not decidable"),
    ],
)
def test_outcomes_over_seeds(losses: Sequence[float], third: Sequence[float], outcome: str) -> None:
    found = judge_contrast(make_row("row", losses, third), BASE, LOSS, thirds=True)
    assert found.outcome == outcome
    gaps = [a - b for a, b in zip(losses, (1.50, 1.52, 1.54), strict=True)]
    expected = estimate(gaps)
    assert (found.value.low, found.value.high) == (expected.low, expected.high)
    assert (found.reason == "") == (outcome in ("lower", "higher", "tied"))


def test_without_thirds_nothing_is_not_yet() -> None:
    row = make_row("row", (1.40, 1.42, 1.45))
    assert judge_contrast(row, BASE, LOSS, thirds=False).outcome == "lower"


@pytest.mark.parametrize(
    ("gap", "deviation", "outcome"),
    [(-0.2, 0.01, "lower"), (-0.2, 0.2, "not decidable"), (0.001, 0.005, "tied")],
)
def test_one_seed_uses_windows_and_the_noise_of_seeds(
    gap: float, deviation: float, outcome: str
) -> None:
    known = {"loss@1": deviation}
    windows = (0.01, -0.01, 0.002, -0.002)
    base = dataclasses.replace(make_row("base", (1.5,), windows=windows), deviations=known)
    shaken = (0.009, -0.009, 0.003, -0.003)
    row = dataclasses.replace(make_row("row", (1.5 + gap,), windows=shaken), deviations=known)
    found = judge_contrast(row, base, LOSS, thirds=False)
    assert found.outcome == outcome
    assert found.noise == pytest.approx(2 * math.sqrt(2) * deviation)
    assert found.over == "one seed, 4 windows"
    unknown = dataclasses.replace(row, deviations={})
    found = judge_contrast(unknown, base, LOSS, thirds=False)
    assert found.outcome == "not decidable"
    assert found.value.mean == pytest.approx(gap)
    assert found.reason == "one seed, and how much another seed changes it is not known"


def test_two_seeds_count_what_they_differ_by() -> None:
    known = {"loss@1": 0.001}
    windows = (0.01, -0.01, 0.002, -0.002)
    base = dataclasses.replace(make_row("base", (1.5, 1.5), windows=windows), deviations=known)
    row = dataclasses.replace(make_row("row", (1.4, 1.1), windows=windows), deviations=known)
    found = judge_contrast(row, base, LOSS, thirds=False)
    assert found.noise == pytest.approx(0.3)
    assert found.outcome == "not decidable"
    assert found.reason == "a difference within 0.3, which another seed may reverse"


def test_rows_without_a_seed_in_common() -> None:
    other = RowResults("other", {7: RowMeasurement({"loss@1": 1.0})})
    found = judge_contrast(other, BASE, LOSS, thirds=False)
    assert (found.outcome, found.over) == ("not decidable", "no seed in common")


def test_the_sentence_of_a_reference() -> None:
    rows = [
        make_row("base 100", (1.60, 1.62, 1.65), (1.70, 1.72, 1.75)),
        make_row("base 1,000", (1.40, 1.42, 1.45), (1.50, 1.52, 1.55)),
        make_row("base 100,000", (1.40, 1.62, 1.54), (1.50, 1.72, 1.64)),
        make_row("base 1,000,000", (1.501, 1.519, 1.541), (1.60, 1.62, 1.64)),
    ]
    base = dataclasses.replace(BASE, name="base 10,000")
    found = [judge_contrast(row, base, LOSS, thirds=True) for row in rows]
    plan = ExperimentPlan.from_budget("base", "quick")
    assert write_sentence(plan, found, "3 seeds") == (
        "Compared with base 10,000, the loss at 128 bytes is lower with base 1,000 (by 0.097"
        " [0.082, 0.111]), higher with base 100 (by 0.103 [0.089, 0.118]), the same within 0.050"
        " with base 1,000,000 and not decidably different with base 100,000 (3 seeds)."
    )
    smoke = ExperimentPlan.from_budget("base", "smoke")
    assert "support no conclusion" in write_sentence(smoke, found, "one seed")
    assert write_sentence(plan, [], "3 seeds").startswith("Too few rows have finished")


def test_the_sentence_of_pairs() -> None:
    rope, alibi = (dataclasses.replace(BASE, name=name) for name in ("rope", "alibi"))
    both = make_row("rope + alibi", (1.40, 1.42, 1.45), (1.50, 1.52, 1.55))
    same = make_row("rope + t5", (1.40, 1.62, 1.54), (1.50, 1.72, 1.64))
    pairs = [(both, rope), (both, alibi), (same, rope)]
    found = [judge_contrast(a, b, LOSS, thirds=True) for a, b in pairs]
    plan = ExperimentPlan.from_budget("hybrids", "quick")
    assert write_sentence(plan, found, "3 seeds") == (
        "The loss at 128 bytes is lower with rope + alibi (by 0.097 [0.082, 0.111]) than with rope,"
        " and with rope + alibi (by 0.097 [0.082, 0.111]) than with alibi and not decidably"
        " different with rope + t5 against rope (3 seeds)."
    )
