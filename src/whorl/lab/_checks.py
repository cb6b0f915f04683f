"""Checks of single options; each error names the option as it is written in TOML."""

import math
from collections.abc import Sequence
from typing import Any

from whorl._support.words import quote, suggest_name

__all__ = ["check_choice", "check_count", "check_number"]


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an int of at least ``least``."""
    if type(value) is not int or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {quote(value)}.")


def check_number(
    name: str, value: Any, low: float, high: float, *, open_below: bool = False
) -> None:
    """Raise ValueError unless ``value`` is a number from ``low`` to ``high``."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if (
        not number
        or not math.isfinite(value)
        or not low <= value <= high
        or (open_below and value == low)
    ):
        bounds = (
            f"above {low:g} and at most {high:g}" if open_below else f"from {low:g} to {high:g}"
        )
        raise ValueError(f"{name} must be a number {bounds}; got {quote(value)}.")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``."""
    if value not in choices:
        guess = suggest_name(value, choices)
        raise ValueError(f"{name} {quote(value)} is unknown{guess} Known: {', '.join(choices)}.")
