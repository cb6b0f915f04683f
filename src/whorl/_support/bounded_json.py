"""JSON from files that nobody vouches for: refused before it takes memory or time, not after.

Python's parser needs 50 to 250 bytes for a value that takes two in the text, so a small file can
fill the memory. Here the text is measured first, by searches at the speed of C: its bytes, how many
values it can hold, and how deep it is nested. Only what is within the limits reaches the parser.

    values   1 + commas + opening brackets, outside of strings: never fewer than there are
    depth    brackets that are open at once, outside of strings
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from .words import quote

__all__ = ["RESULTS", "JsonError", "JsonLimits", "parse_json", "read_within"]

_PIECE = 2**18
_MOST_DIGITS = 300  # what a float can hold
_BACKSLASHES = re.compile(rb"\\*")
#: All brackets as square ones, and every other byte, which is deleted.
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(byte for byte in range(256) if byte not in b"[]{}")


class JsonError(ValueError):
    """What is wrong with a text, as the end of a sentence that begins with its name."""


@dataclass(frozen=True)
class JsonLimits:
    """How large a document may be, and the word for it in messages.

    bytes: of text in ASCII. Text with other characters may have a quarter, because one of them
        makes Python use up to four bytes for each character of a string.
    """

    what: str
    bytes: int
    values: int
    depth: int


#: Files that whorl itself writes: runs, comparisons, benchmarks.
RESULTS = JsonLimits("file of results", bytes=64 * 2**20, values=10**6, depth=64)


def read_within(file: IO[bytes], limits: JsonLimits) -> bytes:
    """The rest of a file, if it is no longer than ``limits`` allow."""
    raw = file.read(limits.bytes + 1)
    if len(raw) > limits.bytes:
        raise _build_size_error(os.fstat(file.fileno()).st_size, limits, plain=True)
    return raw


def parse_json(text: bytes | str, limits: JsonLimits) -> Any:
    """The document in ``text``, UTF-8 if it is bytes; NaN and Infinity are let through.

    >>> parse_json('{"a": [1, 2]}', JsonLimits("note", 100, 10, 2))
    {'a': [1, 2]}

    Raises:
        JsonError: it is longer, larger or deeper than ``limits``, no JSON, names a key twice in
            one object, or holds a whole number that no float can hold.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    _check_limits(raw, limits)
    try:
        if not isinstance(text, str):
            text = raw.decode("utf-8-sig")
        del raw
        return json.loads(text, parse_int=_parse_integer, object_pairs_hook=_refuse_repeats)
    except UnicodeDecodeError as error:
        raise JsonError(f"is not text: {error}") from None
    except _LongIntegerError as error:
        raise JsonError(_name_long_integer(text, error.digits)) from None
    except JsonError:
        raise
    except (ValueError, RecursionError) as error:
        raise JsonError(f"is not JSON: {error}") from None


def _check_limits(raw: bytes, limits: JsonLimits) -> None:
    plain = raw.isascii() and b"\\u" not in raw
    if len(raw) > (limits.bytes if plain else limits.bytes // 4):
        raise _build_size_error(len(raw), limits, plain=plain)
    opened = raw.count(b"[") + raw.count(b"{")
    values = 1 + opened + raw.count(b",")
    # These count strings too, so that they are enough for most files, and too many for few.
    if values <= limits.values and opened <= limits.depth:
        return
    values, brackets = 1, bytearray()
    for outside in _strip_strings(raw):
        values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if values > limits.values:
            raise JsonError(f"holds more than {limits.values:,} values; no {limits.what} does")
        brackets += outside.translate(_SQUARE, _NO_BRACKET)
        if len(brackets) > 2 * limits.values:
            raise JsonError("is not JSON: it closes more brackets than it opens")
    if _is_nested_deeper(bytes(brackets), limits.depth):
        raise JsonError(f"is nested more than {limits.depth} deep; no {limits.what} is")


def _strip_strings(raw: bytes) -> Iterator[bytes]:
    """The text in pieces, what stands between quotes left out."""
    begin, inside = 0, False
    while begin < len(raw):
        end = begin + _PIECE
        if raw[end - 1 : end] == b"\\":  # what it escapes belongs to the same piece
            end = _BACKSLASHES.match(raw, end).end() + 1  # type: ignore[union-attr]
        piece = raw[begin:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        yield b"".join(parts[int(inside) :: 2])
        inside ^= len(parts) % 2 == 0
        begin = end


def _is_nested_deeper(brackets: bytes, depth: int) -> bool:
    """Whether more than ``depth`` are open at once; each round closes the innermost ones."""
    for _ in range(depth):
        fewer = brackets.replace(b"[]", b"")
        if len(fewer) == len(brackets):  # brackets that never close: no JSON, and maybe deep
            break
        brackets = fewer
    return brackets.count(b"[") > depth or b"[]" in brackets


def _build_size_error(size: int, limits: JsonLimits, *, plain: bool) -> JsonError:
    most = f"{limits.bytes:,}" if plain else f"{limits.bytes // 4:,} with characters beyond ASCII"
    return JsonError(f"has {size:,} bytes, and no {limits.what} has more than {most}")


class _LongIntegerError(Exception):
    """A whole number that no float holds."""

    def __init__(self, digits: int) -> None:
        self.digits = digits


def _parse_integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise _LongIntegerError(len(text.lstrip("-")))
    return int(text)


def _name_long_integer(text: str | bytes, digits: int) -> str:
    """What is wrong with a number of so many digits, with the key that it stands under."""
    marker = object()

    def find(value: Any, where: str) -> str | None:
        if value is marker:
            return where
        inner = value if isinstance(value, list) else []
        return next((found for v in inner if (found := find(v, where)) is not None), None)

    def note_key(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for name, value in pairs:
            if not keys and find(value, name) is not None:
                keys.append(name)
        return dict(pairs)

    keys: list[str] = []
    with suppress(ValueError, RecursionError):  # what follows the number may be no JSON
        json.loads(
            text,
            parse_int=lambda number: marker if len(number) > _MOST_DIGITS else 0,
            object_pairs_hook=note_key,
        )
    where = f" at {quote(keys[0])}" if keys else ""
    return (
        f"holds a number of {digits:,} digits{where}, and a number may have {_MOST_DIGITS} at most;"
        " write the one that is meant"
    )


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict; of two values of one key readers take one or the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise JsonError(
            f"holds the key {quote(twice)} twice in one object, and readers differ in which they"
            " take; delete one"
        )
    return found
