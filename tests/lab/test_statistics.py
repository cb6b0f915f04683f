"""Means with 95 % intervals by Student's t."""

from statistics import stdev

import pytest

from whorl.lab.compare.statistics import Estimate, estimate


def test_statistics() -> None:
    assert estimate([2.0]) == Estimate(2.0)
    assert str(estimate([1.0])) == "1.00"
    assert estimate([0.5]).format_percent() == "50 %"
    assert estimate([0.3, 0.31, 0.32]).format_percent() == "31 % [29 %, 33 %]"
    two = estimate([1.0, 2.0])
    assert two.high == pytest.approx(1.5 + 12.706 * 0.5, rel=1e-3)


@pytest.mark.parametrize(("degrees", "point"), [(5, 2.571), (11, 2.201), (30, 2.042), (63, 1.998)])
def test_students_t(degrees: int, point: float) -> None:
    """97.5 % points as printed in tables."""
    values = [(-1.0) ** n for n in range(degrees + 1)]
    half = stdev(values) / (degrees + 1) ** 0.5
    found = estimate(values)
    assert found.high is not None
    assert (found.high - found.mean) / half == pytest.approx(point, abs=3e-3)
