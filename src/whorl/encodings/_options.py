"""Checks of options: what must hold, and what came."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from whorl._support.words import quote

__all__ = ["check_allocated", "check_choice", "check_choices", "check_int", "check_number"]


def check_int(value: object, least: int, option: str, where: str) -> None:
    """Refuse an option that is not an int, or less than ``least``."""
    if type(value) is not int or value < least:
        raise ValueError(f"{where}: {option} must be an int >= {least}; got {quote(value)}.")


def check_allocated(value: int, option: str, where: str) -> None:
    """Refuse a size that no memory has room for, before torch does so in its own words."""
    if value > 1 << 32:
        raise ValueError(
            f"{where}: {option} must be at most 2^32, because memory is allocated for as many; got"
            f" {quote(value)}."
        )


def check_number(
    value: object, option: str, where: str, *, bound: Literal["above 0", ">= 0"]
) -> None:
    """Refuse an option that is not a finite number, or out of bounds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        enough = value > 0 if bound == "above 0" else value >= 0
        if enough and value <= sys.float_info.max:
            return
    raise ValueError(f"{where}: {option} must be a finite number {bound}; got {quote(value)}.")


def check_choice(value: object, choices: Sequence[str | None], option: str, where: str) -> None:
    """Refuse a word that is not among ``choices``."""
    if value not in choices:
        words = " or ".join(map(repr, choices))
        raise ValueError(f"{where}: {option} must be {words}; got {quote(value)}.")


def check_choices(config: Any, choices: Mapping[str, Sequence[str | None]], where: str) -> None:
    """Refuse options of ``config`` that are none of their choices."""
    for option, known in choices.items():
        check_choice(getattr(config, option), known, option, where)
