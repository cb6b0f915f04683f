"""A figure that a benchmark is to reach."""

from typing import NamedTuple

__all__ = ["BenchmarkTarget"]


class BenchmarkTarget(NamedTuple):
    """A figure to reach on one thread; measured and ok are None where no cell shows it."""

    name: str
    limit: str
    measured: float | None
    ok: bool | None

    @classmethod
    def most(cls, name: str, limit: float, measured: float | None) -> "BenchmarkTarget":
        """What is measured must be at most ``limit``."""
        ok = None if measured is None else measured <= limit
        return cls(name, f"<= {limit:g}", measured, ok)

    @classmethod
    def least(cls, name: str, limit: float, measured: float | None) -> "BenchmarkTarget":
        """What is measured must be at least ``limit``."""
        ok = None if measured is None else measured >= limit
        return cls(name, f">= {limit:g}", measured, ok)
