"""Who takes part in a cell: verified first, then timed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Contestant", "ContestantMakers", "describe_error", "prepare_contestants"]


@dataclass(frozen=True)
class Contestant:
    """call: the work that is timed. problem: does it once; None if the result is right.

    units: how many times a call does what is reported.
    """

    name: str
    call: Callable[[], object]
    problem: Callable[[], str | None]
    units: int = 1


ContestantMakers = Sequence[tuple[str, Callable[[], Contestant]]]


def prepare_contestants(makers: ContestantMakers) -> tuple[list[Contestant], dict[str, str]]:
    """The contestants that compute the right thing, and what is wrong with the others, by name."""
    found, wrong = [], {}
    for name, make in makers:
        try:
            contestant = make()
            problem = contestant.problem()
        except Exception as error:  # one that fails is a result, not the end of the run
            problem = describe_error(error)
        if problem is None:
            found.append(contestant)
        else:
            wrong[name] = problem
    return found, wrong


def describe_error(error: Exception) -> str:
    """The kind of an error and the first line of what it says."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
