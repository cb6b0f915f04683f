"""What a benchmark measures and how long: the base of each benchmark's plan."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from .cells import BenchmarkCell
from .measure import Timing, measure_calls

__all__ = ["BenchmarkPlan"]

P = TypeVar("P", bound="BenchmarkPlan")


@dataclass(frozen=True)
class BenchmarkPlan(ABC):
    """Thread counts, and how long each contestant is timed.

    Args:
        threads: the cells of the first count are measured first.
        repeats: timed samples of each contestant.
        sample_seconds: least duration of a sample; short calls are repeated within it. A call of a
            millisecond or two wants ten: alone it is timed while the caches still change hands.
        most_seconds: after three samples, a contestant that has taken this long in a cell is done;
            without it the slowest would take most of the time.
    """

    threads: tuple[int, ...] = (1,)
    repeats: int = 15
    sample_seconds: float = 20e-3
    most_seconds: float = 5.0

    NAME: ClassVar[str] = "Plan"
    #: Fields that must agree for the cells of two runs to stand side by side.
    EFFORT: ClassVar[tuple[str, ...]] = ("repeats", "sample_seconds", "most_seconds")
    #: Why no peers can be chosen.
    PEERS: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def quick(cls: type[P]) -> P:
        """A plan of a minute or two."""

    @classmethod
    def full(cls: type[P]) -> P:
        """A plan of everything."""
        return cls()

    @abstractmethod
    def cells(self) -> Sequence[BenchmarkCell]:
        """The cells in the order in which they are measured."""

    def only(
        self: P, *, peers: Sequence[str] | None = None, threads: Sequence[int] | None = None
    ) -> P:
        """The same plan with other thread counts; it has no peers to choose from."""
        if peers is not None:
            raise ValueError(f"{self.NAME}: {self.PEERS}; leave peers out.")
        return self if threads is None else replace(self, threads=tuple(threads))

    def effort(self) -> dict[str, Any]:
        """What must agree for the cells of two runs to stand side by side."""
        values = {name: getattr(self, name) for name in self.EFFORT}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}

    def timing_effort(self) -> dict[str, Any]:
        """How long each contestant is timed, by the names of the fields."""
        return {name: getattr(self, name) for name in BenchmarkPlan.EFFORT}

    def time(self, calls: Sequence[Callable[[], object]]) -> list[Timing]:
        """Time ``calls`` in turns, as long as the plan says."""
        return measure_calls(
            calls,
            repeats=self.repeats,
            sample_seconds=self.sample_seconds,
            most_seconds=self.most_seconds,
        )

    def check_least(self, what: str, sizes: Sequence[int]) -> None:
        """Raise ValueError unless ``sizes``, threads and repeats are at least 1."""
        if min([*sizes, self.repeats, *self.threads], default=0) < 1 or (
            not self.threads or self.sample_seconds < 0
        ):
            raise ValueError(
                f"{self.NAME}: {what} must be at least 1 and sample_seconds at least 0; got"
                f" {self!r}."
            )
