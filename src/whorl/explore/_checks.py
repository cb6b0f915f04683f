"""Values of a request: each is what it must be, or an error says which one is not."""

from collections.abc import Mapping
from typing import Any

__all__ = ["number", "record", "whole"]


def record(value: Any, allowed: tuple[str, ...], where: str = "the request") -> dict[str, Any]:
    """A JSON object with these keys only."""
    if not isinstance(value, dict):
        raise ValueError(f"explore: {where} must be a JSON object.")
    for key in value:
        if key not in allowed:
            raise ValueError(f"explore: {where} has no {key[:40]!r}; it has {', '.join(allowed)}.")
    return value


def whole(given: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    """An int in the range, None where it is absent or null."""
    value = given.get(key)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise ValueError(
            f"explore: {key} must be a whole number from {least:,} to {most:,}; got {_cut(value)}."
        )
    return value


def number(given: Mapping[str, Any], key: str, least: float, most: float) -> float | None:
    """A number in the range, None where it is absent or null."""
    value = given.get(key)
    if value is None:
        return None
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real or not least <= value <= most:
        raise ValueError(
            f"explore: {key} must be a number from {least:,g} to {most:,g}; got {_cut(value)}."
        )
    return float(value)


def _cut(value: object) -> str:
    """A value in a message, however large it is."""
    if isinstance(value, int) and value.bit_length() > 120:
        return f"a number of {value.bit_length():,} bits"
    return f"{str(value)[:40]!r}" if isinstance(value, str) else str(value)[:40]
