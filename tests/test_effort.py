"""The counting that tests rely on counts."""

from contextlib import suppress

import pytest

from .effort import TooMuchWorkError, bounded


def work(calls: int) -> None:
    for _ in range(calls):
        abs(-1)


def test_too_much_is_stopped() -> None:
    with bounded(200):
        work(100)
    with pytest.raises(TooMuchWorkError, match="this makes more than 50 calls"), bounded(50):
        work(10**12)


def test_holding_it_back_does_not_help() -> None:
    def stubborn() -> None:
        with suppress(BaseException):
            work(100)

    with pytest.raises(TooMuchWorkError), bounded(50):
        stubborn()


def test_one_within_another_counts_for_both() -> None:
    def twice() -> None:
        for _ in range(2):
            with bounded(1000):
                work(40)

    with pytest.raises(TooMuchWorkError, match="the outer"), bounded(70, what="the outer"):
        twice()
