"""Lengths as people type them: ``4096``, ``128k``, ``1M``, ``1e5``, ``1_000``."""

import re

from .words import quote

__all__ = ["parse_length"]

_MULTIPLES = {"": 1, "k": 1024, "m": 1024**2}
_LENGTH = re.compile(
    r"([0-9]{1,20}(?:\.[0-9]{1,20})?)(?:e\+?([0-9]{1,2}))?\s?([km]?)", re.IGNORECASE
)
_LONGEST = 2**53  # positions beyond this are no longer exact in float64


def parse_length(text: str | int) -> int:
    """Number of tokens that ``text`` names, where k means 1024 and M 1024 squared.

    >>> [parse_length(text) for text in ("4096", "128k", "1.5k", "1M", "1e5", "1_000", "32,768")]
    [4096, 131072, 1536, 1048576, 100000, 1000, 32768]
    """
    written = re.sub(r"(?<=[0-9])[_,](?=[0-9]{3}(?![0-9]))", "", str(text).strip())
    match = _LENGTH.fullmatch(written)
    number, exponent, multiple = match.groups() if match else ("0", None, "")
    # Whole-number arithmetic: 1e23 as a float is not 10**23.
    whole, _, fraction = number.partition(".")
    scaled: int = int(whole + fraction) * 10 ** int(exponent or 0) * _MULTIPLES[multiple.lower()]
    unit: int = 10 ** len(fraction)
    length, remainder = divmod(scaled, unit)
    if not match or remainder or not 0 < length <= _LONGEST:
        raise ValueError(
            f"a length must be a whole number of tokens above 0, such as 4096, 128k (k = 1024) "
            f"or 1e5; got {quote(text)}."
        )
    return length
