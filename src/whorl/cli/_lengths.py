"""Options that are lengths or positions, as people type them: 4096, 128k (k = 1024), 1e5."""

from typing import Any

import typer

from whorl._support.lengths import parse_length

from ._lists import split_words

__all__ = ["make_length_option", "make_position_option", "parse_lengths"]

_SHOWN = "N, 128k"


def make_length_option(help: str, *names: str, **more: Any) -> Any:
    """An option that takes a length; ``help`` says of what."""
    return typer.Option(*names, parser=_parse_length, metavar=_SHOWN, help=help, **more)


def make_position_option(help: str) -> Any:
    """An option that takes a position: a length, 0, or a length with a minus sign."""
    return typer.Option(parser=_parse_position, metavar=_SHOWN, help=help)


def parse_lengths(text: str, option: str) -> list[int]:
    """Lengths between commas; none for the word none.

    >>> parse_lengths("512,2k", "--lengths")
    [512, 2048]
    """
    found = [] if text == "none" else split_words(text) or []
    try:
        return [parse_length(word) for word in found]
    except ValueError as error:
        raise ValueError(f"{option} takes lengths such as 512,2k, or none: {error}") from None


def _parse_length(text: str | int) -> int:
    try:
        return parse_length(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _parse_position(text: str | int) -> int:
    number = str(text).strip()
    unsigned = number.removeprefix("-")
    if unsigned and not unsigned.strip("0"):
        return 0
    return -_parse_length(unsigned) if number != unsigned else _parse_length(number)
