"""Values of a request: each is what it must be, or a RequestError says which one is not."""

import re
from collections.abc import Mapping
from typing import Any

from whorl._support.lengths import parse_length

__all__ = ["MOST_BYTES", "RequestError", "length", "number", "plainly", "record", "whole"]

#: Of the body of a request.
MOST_BYTES = 1_000_000

#: Functions that errors name, for people who called them; those who look at the page did not.
_CALLS = "explore|inspect|read_config|examine|doctor|presets|decay"
#: The name of a class after it is said by the label of the curve.
_WHERE = re.compile(rf"^(?:(?:{_CALLS}): )*(?:[A-Z]\w+: )?")
#: Options of the calls, and the fields that they are here.
_FIELDS = {"pass trained= (--trained)": "enter it under Trained on"}


class RequestError(ValueError):
    """A request that the page would not make; what is wrong with a config is a ConfigError."""


def plainly(error: Exception) -> str:
    """What an error says, without the function that raised it.

    >>> plainly(ValueError("explore: read_config: the text is not JSON."))
    'The text is not JSON.'
    """
    words = _WHERE.sub("", str(error))
    changed = words != str(error) or words.startswith(("the ", "there ", "this ", "a "))
    for call, field in _FIELDS.items():
        words = words.replace(call, field)
    return words[:1].upper() + words[1:] if changed and _prose(words) else words


def _prose(words: str) -> bool:
    """Whether it begins with a word, and not with the name of a key."""
    return re.match(r"[a-z]{2,}[ ,;]", words) is not None


def record(value: Any, allowed: tuple[str, ...], where: str = "the request") -> dict[str, Any]:
    """A JSON object with these keys only."""
    if not isinstance(value, dict):
        raise RequestError(f"explore: {where} must be a JSON object.")
    for key in value:
        if key not in allowed:
            has = ", ".join(allowed)
            raise RequestError(f"explore: {where} has no {key[:40]!r}; it has {has}.")
    return value


def whole(given: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    """An int in the range, None where it is absent or null."""
    value = given.get(key)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise RequestError(
            f"explore: {key} must be a whole number from {least:,} to {most:,}; got {_cut(value)}."
        )
    return value


def length(given: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    """A length as ``whole`` takes it, or as people type it: "128k", "1e5"."""
    value = given.get(key)
    if not isinstance(value, str):
        return whole(given, key, least, most)
    try:
        return whole({key: parse_length(value[:100])}, key, least, most)
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"explore: {key}: {error}") from None


def number(given: Mapping[str, Any], key: str, least: float, most: float) -> float | None:
    """A number in the range, None where it is absent or null."""
    value = given.get(key)
    if value is None:
        return None
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real or not least <= value <= most:
        raise RequestError(
            f"explore: {key} must be a number from {least:,g} to {most:,g}; got {_cut(value)}."
        )
    return float(value)


def _cut(value: object) -> str:
    """A value in a message, however large it is."""
    if isinstance(value, int) and value.bit_length() > 120:
        return f"a number of {value.bit_length():,} bits"
    return f"{str(value)[:40]!r}" if isinstance(value, str) else str(value)[:40]
