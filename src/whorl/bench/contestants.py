"""Implementations that a cell compares: verified first, then timed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .measure import Timing

__all__ = [
    "Contestant",
    "ContestantMakers",
    "collect_samples",
    "describe_error",
    "prepare_contestants",
    "time_alternately",
]


@dataclass(frozen=True)
class Contestant:
    """One implementation in one cell.

    call: does the work that is timed.
    find_problem: does the work once; returns None if the result is right, else what is wrong.
    units: how often a call does the work; the time that is reported is divided by it.
    """

    name: str
    call: Callable[[], object]
    find_problem: Callable[[], str | None]
    units: int = 1


ContestantMakers = Sequence[tuple[str, Callable[[], Contestant]]]


def prepare_contestants(makers: ContestantMakers) -> tuple[list[Contestant], dict[str, str]]:
    """The contestants whose results are right, and the problems of the others by name."""
    found, wrong = [], {}
    for name, make in makers:
        try:
            contestant = make()
            problem = contestant.find_problem()
        except Exception as error:  # its failure is reported, and the benchmark goes on
            problem = describe_error(error)
        if problem is None:
            found.append(contestant)
        else:
            wrong[name] = problem
    return found, wrong


def time_alternately(
    contestants: Sequence[Contestant], repeats: int, least_seconds: float = 0.0
) -> list[Timing]:
    """Timings of one unit of each contestant, from ``collect_samples``."""
    samples = collect_samples(contestants, repeats, least_seconds)
    return [Timing.from_samples(s, c.units) for s, c in zip(samples, contestants, strict=True)]


def collect_samples(
    contestants: Sequence[Contestant], repeats: int, least_seconds: float = 0.0
) -> list[list[float]]:
    """Seconds of one unit of each contestant; all are called equally often, as caches grow.

    There are at least ``repeats`` rounds, and more until they have taken ``least_seconds``: the
    median of a few short calls moves by more than what is to be shown.
    """
    samples: list[list[float]] = [[] for _ in contestants]
    rounds, spent = -1, 0.0  # the first round is the warm-up
    while rounds < repeats or (contestants and spent < least_seconds):
        for n in range(len(contestants)):
            who = (n + rounds + 1) % len(contestants)
            start = time.perf_counter()
            contestants[who].call()
            seconds = time.perf_counter() - start
            if rounds >= 0:
                spent += seconds
                samples[who].append(seconds / contestants[who].units)
        rounds += 1
    return samples


def describe_error(error: Exception) -> str:
    """Type of an error and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
