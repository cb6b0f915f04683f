"""Base class of plans: which cells a benchmark measures, and for how long."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from whorl._support.words import quote

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
        sample_seconds: least duration of a sample; short calls are repeated until it is reached.
            The default gives ten calls of 2 ms: the first ones still find the caches full of
            another contestant's data.
        most_seconds: after three samples, a contestant that has taken this long in a cell is not
            timed any more, because the slowest would take most of the time.
    """

    threads: tuple[int, ...] = (1,)
    repeats: int = 15
    sample_seconds: float = 20e-3
    most_seconds: float = 5.0

    #: Fields that must be equal in two runs for their cells to be comparable.
    EFFORT: ClassVar[tuple[str, ...]] = ("repeats", "sample_seconds", "most_seconds")
    #: Why peers cannot be selected.
    PEERS: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def quick(cls: type[P]) -> P:
        """The plan of ``whorl bench --quick``, which takes a minute or two."""

    @classmethod
    def full(cls: type[P]) -> P:
        """The plan of ``whorl bench --full``, which measures everything."""
        return cls()

    @abstractmethod
    def list_cells(self) -> Sequence[BenchmarkCell]:
        """The cells in the order in which they are measured."""

    def select(
        self: P, *, peers: Sequence[str] | None = None, threads: Sequence[int] | None = None
    ) -> P:
        """The same plan with other thread counts; peers cannot be selected."""
        if peers is not None:
            raise ValueError(f"peers cannot be selected: {self.PEERS}; leave peers out.")
        return self if threads is None else replace(self, threads=tuple(threads))

    def describe_effort(self) -> dict[str, Any]:
        """The fields that must be equal in two runs for their cells to be comparable."""
        values = {name: getattr(self, name) for name in self.EFFORT}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}

    def time_calls(self, calls: Sequence[Callable[[], object]]) -> list[Timing]:
        """Timings of ``calls``, measured alternately for as long as the plan says."""
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
                f"{what} must be at least 1, and sample_seconds at least 0; got {quote(self)}."
            )
