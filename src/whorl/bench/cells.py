"""Base classes of a benchmark's cells and of their results."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from .measure import Timing

__all__ = ["BenchmarkCell", "BenchmarkCellResult", "BenchmarkResult"]

K = TypeVar("K", bound="BenchmarkCell")
R = TypeVar("R", bound="BenchmarkResult")
C = TypeVar("C", bound="BenchmarkCellResult[Any, Any]")


class BenchmarkCell(ABC):
    """One task, done by several contestants that are timed alternately.

    Cells that compare equal describe the same work.
    """

    threads: int

    @property
    @abstractmethod
    def key(self) -> str:
        """Short name for files and tables; two different cells may share it."""

    @property
    @abstractmethod
    def label(self) -> str:
        """Name in the progress bar."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_dict(cls: type[K], data: dict[str, Any]) -> K:
        """The cell that ``to_dict`` wrote."""
        return cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in data.items()})


class BenchmarkResult(ABC):
    """Seconds of a contestant, or the problem why it was not timed.

    A contestant whose result is wrong is not timed.
    """

    name: str
    timing: Timing | None
    problem: str | None

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of the contestant in tables."""

    @property
    def value(self) -> float | None:
        """Median seconds of a call, or None if it was not timed."""
        return None if self.timing is None else self.timing.median

    @classmethod
    def from_dict(cls: type[R], data: dict[str, Any]) -> R:
        """The result in a row of JSON, without the values that ``derive`` added."""
        known = {field.name: data[field.name] for field in fields(cls)}  # type: ignore[arg-type]
        timing = known["timing"]
        return cls(**{**known, "timing": None if timing is None else Timing(**timing)})


@dataclass(frozen=True)
class BenchmarkCellResult(Generic[K, R]):
    """All results of one cell."""

    cell: K
    results: tuple[R, ...]

    CELL: ClassVar[type[BenchmarkCell]]
    RESULT: ClassVar[type[BenchmarkResult]]

    @property
    def unit(self) -> str:
        """Name of the contestant that the others are divided by; "" if there is none."""
        return ""

    @property
    def is_empty(self) -> bool:
        """Whether the cell has no timing, so that a resumed run measures it again."""
        return False

    def get_value(self, name: str) -> float | None:
        """Seconds of a contestant, or None if it was not measured."""
        return next((result.value for result in self.results if result.name == name), None)

    def compute_ratio(self, name: str, unit: str | None = None) -> float | None:
        """The value divided by that of ``unit``, by default of the cell's own unit."""
        value, one = self.get_value(name), self.get_value(unit or self.unit)
        return None if value is None or not one else value / one

    def derive(self, result: R) -> dict[str, Any]:
        """Values that JSON adds to a result; they follow from the other results of the cell."""
        return {"ratio": self.compute_ratio(result.name)}

    def to_dict(self) -> dict[str, Any]:
        """Key, cell and results as JSON holds them."""
        rows = [
            {**asdict(result), **self.derive(result)}  # type: ignore[call-overload]
            for result in self.results
        ]
        return {"key": self.cell.key, "cell": self.cell.to_dict(), "results": rows}

    @classmethod
    def from_dict(cls: type[C], data: dict[str, Any]) -> C:
        """The results that ``to_dict`` wrote."""
        rows = tuple(cls.RESULT.from_dict(row) for row in data["results"])
        return cls(cls.CELL.from_dict(data["cell"]), rows)
