"""Check the values of a request; a RequestError says which one is wrong."""

import re
from collections.abc import Mapping
from typing import Any

from whorl._support.lengths import parse_length

__all__ = [
    "BYTE_LIMIT",
    "RequestError",
    "check_object",
    "format_error",
    "read_int",
    "read_length",
    "read_number",
]

#: Largest size of the body of a request.
BYTE_LIMIT = 1_000_000

#: Functions whose names begin errors; a user of the page did not call them.
_CALLS = "explore|inspect|read_config|examine|doctor|presets|decay"
#: The name of a scaling may follow; the label of the curve says it already.
_WHERE = re.compile(rf"^(?:(?:{_CALLS}): )*(?:[A-Z]\w+: )?")
#: Advice about arguments and options, and about the field of the page instead.
_FIELDS = {"pass trained=N": "enter it under Trained on"}


class RequestError(ValueError):
    """A request that the page would never send; an error in a config is a ConfigError."""


def format_error(error: Exception) -> str:
    """The message of an error, without the name of the function that raised it.

    >>> format_error(ValueError("explore: read_config: the text is not JSON."))
    'The text is not JSON.'
    """
    words = _WHERE.sub("", str(error))
    changed = words != str(error) or words.startswith(("the ", "there ", "this ", "a "))
    for call, field in _FIELDS.items():
        words = words.replace(call, field)
    return words[:1].upper() + words[1:] if changed and _is_sentence(words) else words


def _is_sentence(words: str) -> bool:
    """Whether the text begins with a word, and not with the name of a key."""
    return re.match(r"[a-z]{2,}[ ,;]", words) is not None


def check_object(
    value: Any, allowed: tuple[str, ...], where: str = "the request"
) -> dict[str, Any]:
    """``value`` if it is a JSON object with these keys only, else RequestError."""
    if not isinstance(value, dict):
        raise RequestError(f"explore: {where} must be a JSON object.")
    for key in value:
        if key not in allowed:
            has = ", ".join(allowed)
            raise RequestError(f"explore: {where} has no {key[:40]!r}; it has {has}.")
    return value


def read_int(given: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    """The int in the range, or None if it is absent or null; else RequestError."""
    value = given.get(key)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise RequestError(
            f"explore: {key} must be a whole number from {least:,} to {most:,}; got"
            f" {_shorten_value(value)}."
        )
    return value


def read_length(given: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    """The length, an int or a text such as "128k" or "1e5"; None if it is absent."""
    value = given.get(key)
    if not isinstance(value, str):
        return read_int(given, key, least, most)
    try:
        return read_int({key: parse_length(value[:100])}, key, least, most)
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"explore: {key}: {error}") from None


def read_number(given: Mapping[str, Any], key: str, least: float, most: float) -> float | None:
    """The number in the range, or None if it is absent or null; else RequestError."""
    value = given.get(key)
    if value is None:
        return None
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real or not least <= value <= most:
        raise RequestError(
            f"explore: {key} must be a number from {least:,g} to {most:,g}; got"
            f" {_shorten_value(value)}."
        )
    return float(value)


def _shorten_value(value: object) -> str:
    """A value for a message, shortened if it is large."""
    if isinstance(value, int) and value.bit_length() > 120:
        return f"a number of {value.bit_length():,} bits"
    return f"{str(value)[:40]!r}" if isinstance(value, str) else str(value)[:40]
