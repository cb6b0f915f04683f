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
    def at_most(cls, name: str, limit: float, *measured: float | None) -> "BenchmarkTarget":
        """A target for values of which the largest must be at most ``limit``."""
        worst = max((value for value in measured if value is not None), default=None)
        return cls(name, f"<= {limit:g}", worst, None if worst is None else worst <= limit)

    @classmethod
    def at_least(cls, name: str, limit: float, *measured: float | None) -> "BenchmarkTarget":
        """A target for values of which the smallest must be at least ``limit``."""
        worst = min((value for value in measured if value is not None), default=None)
        return cls(name, f">= {limit:g}", worst, None if worst is None else worst >= limit)
