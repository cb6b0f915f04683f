"""Learning curves: the last tenth of the steps, and steps to reach a loss."""

import math

import pytest

from whorl.lab.compare.curves import LearningCurve, average_curves, summarize_last_tenth

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
    ("steps", "losses", "improvement"),
    [
        ((80, 90, 100), (3.0, 2.0, 1.9), 0.05),  # a point at 90 %
        ((80, 89, 95, 100), (3.0, 2.0, 1.5, 1.9), 0.05),  # the nearest one below, not above
        ((100,), (2.0,), None),
        ((95, 100), (2.0, 1.0), None),
        ((), (), None),
        ((90, 100), (0.0, 0.0), 0.0),
        ((90, 100), (2.0, 2.1), -0.05),
    ],
)
def test_the_last_tenth(
    steps: tuple[int, ...], losses: tuple[float, ...], improvement: float | None
) -> None:
    found = LearningCurve(steps, losses).compute_improvement()
    assert found == (None if improvement is None else pytest.approx(improvement))


def ending(improvement: float) -> LearningCurve:
    return LearningCurve((90, 100), (2.0, 2.0 * (1 - improvement)))


@pytest.mark.parametrize(
    ("improvements", "mean", "flat"),
    [
        ((0.004,), 0.004, True),
        ((0.006,), 0.006, False),
        ((0.001, 0.003), 0.002, True),
        ((0.0, 0.006), 0.003, False),  # flat on average, but not in every seed
        ((-0.02,), -0.02, True),
    ],
)
def test_flat_means_every_seed(improvements: tuple[float, ...], mean: float, flat: bool) -> None:
    found = summarize_last_tenth(map(ending, improvements))
    assert found["improvement"] == pytest.approx(mean)
    assert found["flat"] is flat


def test_what_has_no_last_tenth_is_not_flat() -> None:
    nothing = {"improvement": None, "flat": False}
    short = LearningCurve((1,), (2.0,))
    assert summarize_last_tenth([]) == nothing
    assert summarize_last_tenth([ending(0.0), short]) == nothing
    assert summarize_last_tenth([ending(math.nan)])["flat"] is False


def test_means_over_seeds() -> None:
    curves = [LearningCurve((1, 2), (4.0, 2.0)), LearningCurve((1, 2), (3.0, 1.0))]
    assert average_curves(curves) == {"step": [1, 2], "loss": [3.5, 1.5]}
