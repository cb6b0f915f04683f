"""Learning curves: the last tenth of the steps, and steps to reach a loss."""

import math

import pytest

from whorl.lab.compare.curves import LearningCurve, average_curves, compute_last_tenth

CURVE = LearningCurve((10, 20, 30, 40), (4.0, 3.0, 2.0, 2.0))


def test_only_lines_with_a_validation_loss_are_points() -> None:
    lines = [
        {"step": 1, "loss": 9.0},
        {"step": 2, "loss": 8.0, "validation_loss": 7.5},
        {"step": 3, "loss": 7.0},
        {"step": 4, "loss": 6.0, "validation_loss": 5.5},
    ]
    assert LearningCurve.from_metrics(lines) == LearningCurve((2, 4), (7.5, 5.5))


@pytest.mark.parametrize(
    ("target", "step"), [(5.0, 10.0), (4.0, 10.0), (3.5, 15.0), (3.0, 20.0), (2.0, 30.0)]
)
def test_steps_are_found_on_straight_lines(target: float, step: float) -> None:
    assert CURVE.find_step(target) == pytest.approx(step)


def test_a_loss_that_is_never_reached() -> None:
    assert CURVE.find_step(1.99) is None
    assert CURVE.shift(0.5).find_step(2.25) is None
    assert CURVE.shift(-0.5).find_step(3.0) == pytest.approx(15.0)


def test_the_first_time_counts() -> None:
    assert LearningCurve((1, 2, 3, 4), (4.0, 2.0, 3.0, 1.0)).find_step(2.0) == 2.0


@pytest.mark.parametrize(
    ("short", "full", "improvement"),
    [
        (2.0, 2.0, 0.0),
        (3.0, 1.0, 0.1),  # the loss falls as 1 / steps: a tenth of it in the last tenth
        (9.0, 1.0, 0.19),  # as 1 / steps squared
        (1.0, 3.0, 1 - 1 / 0.9),  # it rises
        (2.0, 0.0, None),
        (math.nan, 2.0, None),
    ],
)
def test_the_last_tenth(short: float, full: float, improvement: float | None) -> None:
    pair = LearningCurve((5, 10), (9.0, short)), LearningCurve((15, 30), (8.0, full))
    found = compute_last_tenth([pair])
    assert found == (None if improvement is None else pytest.approx(improvement))


def test_the_last_tenth_is_that_of_the_mean_over_seeds() -> None:
    pairs = [
        (LearningCurve((1,), (short,)), LearningCurve((3,), (full,)))
        for short, full in ((2.0, 1.5), (4.0, 0.5))
    ]
    assert compute_last_tenth(pairs) == pytest.approx(0.1)
    assert compute_last_tenth([]) is None
    assert compute_last_tenth([(LearningCurve((), ()), LearningCurve((3,), (1.0,)))]) is None


def test_means_over_seeds() -> None:
    curves = [LearningCurve((1, 2), (4.0, 2.0)), LearningCurve((1, 2), (3.0, 1.0))]
    assert average_curves(curves) == {
        "step": [1, 2],
        "loss": [3.5, 1.5],
        "seeds": [list(curve.losses) for curve in curves],
    }
