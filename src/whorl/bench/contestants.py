"""Implementations that a cell compares: verified first, then timed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Contestant", "ContestantMakers", "describe_error", "prepare_contestants"]


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


def describe_error(error: Exception) -> str:
    """Type of an error and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
