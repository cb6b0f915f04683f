"""Errors of the library in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["name_options", "replace_names"]


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
        start = "^" if name.isidentifier() else r"\b"
        message = re.sub(rf"{start}{re.escape(name)}\b", option, message)
    return message
