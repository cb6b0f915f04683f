"""Figures that a benchmark should reach."""

from typing import NamedTuple

__all__ = ["BenchmarkTarget"]


class BenchmarkTarget(NamedTuple):
    """A figure to reach on one thread; measured and ok are None if no cell shows it."""

    name: str
    limit: str
    measured: float | None
    ok: bool | None

    @classmethod
    def at_most(cls, name: str, limit: float, measured: float | None) -> "BenchmarkTarget":
        """A target for a value that must be at most ``limit``."""
        ok = None if measured is None else measured <= limit
        return cls(name, f"<= {limit:g}", measured, ok)

    @classmethod
    def at_least(cls, name: str, limit: float, measured: float | None) -> "BenchmarkTarget":
        """A target for a value that must be at least ``limit``."""
        ok = None if measured is None else measured >= limit
        return cls(name, f">= {limit:g}", measured, ok)
