"""Values of options as people type them, and errors of the library in the words of options.

Lists are a,b,c; lengths and positions are 4096, 128k (k = 1024) or 1e5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

import whorl
from whorl._support.lengths import parse_length
from whorl._support.words import quote

__all__ = [
    "check_chart",
    "make_length_option",
    "make_position_option",
    "name_options",
    "parse_lengths",
    "parse_thread_counts",
    "replace_names",
    "split_words",
]

_LENGTH = "N, 128k"


def split_words(text: str | None) -> list[str] | None:
    """The words between commas; None stays None.

    >>> split_words("meta, mlx")
    ['meta', 'mlx']
    """
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def parse_thread_counts(text: str | None) -> list[int] | None:
    """Positive numbers, and "all" for as many threads as torch uses; each once.

    >>> parse_thread_counts("1,4,1")
    [1, 4]
    """
    found = split_words(text)
    if found is None:
        return None
    if not found or not all(w == "all" or (w.isdecimal() and int(w) > 0) for w in found):
        raise ValueError(f"--threads takes counts such as 1,4 or 1,all; got {quote(text)}.")
    import torch

    return list(dict.fromkeys(torch.get_num_threads() if w == "all" else int(w) for w in found))


def make_length_option(help: str, *names: str, **more: Any) -> Any:
    """An option that takes a length; ``help`` says of what."""
    return typer.Option(*names, parser=_parse_length, metavar=_LENGTH, help=help, **more)


def make_position_option(help: str) -> Any:
    """An option that takes a position: a length, 0, or a length with a minus sign."""
    return typer.Option(parser=_parse_position, metavar=_LENGTH, help=help)


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


def check_chart(path: Path | None, option: str = "--chart") -> None:
    """Refuse before long work a file that no chart can be written to."""
    if path is None:
        return
    try:
        whorl.plots.check_path(path)
    except (ValueError, OSError) as error:
        raise ValueError(str(error).replace("plots.save", option, 1)) from None


@contextmanager
def name_options(names: Mapping[str, str]) -> Iterator[None]:
    """Let an error in a with block name options: ``names`` maps arguments to options."""
    try:
        yield
    except ValueError as error:
        raise ValueError(replace_names(str(error), names)) from None


def replace_names(message: str, names: Mapping[str, str]) -> str:
    """An error message with options instead of arguments.

    A plain word is replaced at the beginning only, because it may be an English word elsewhere.

    >>> replace_names("seeds must be 1; or pass force=True.", {"seeds": "--seeds"})
    '--seeds must be 1; or pass force=True.'
    >>> replace_names("pass force=True.", {"force=True": "--force"})
    'pass --force.'
    """
    for name, option in names.items():
        start = "^" if name.isidentifier() else r"\b" if name[0].isalnum() else ""
        end = r"\b" if name[-1].isalnum() or name[-1] == "=" else ""
        message = re.sub(rf"{start}{re.escape(name)}{end}", option, message)
    return message
