"""Triplets of texts from JSON lines, as in CAIL2019-SCM: is A nearer to B or to C?

    {"A": "text", "B": "text", "C": "text"}                  B is the nearer one
    {"A": "text", "B": "text", "C": "text", "label": "C"}    here C is

CAIL2019-SCM: Xiao et al. 2019, https://arxiv.org/abs/1911.08962. Some releases always have the
nearer text in B, so that a model could learn to say "B" without reading. Therefore B and C are
swapped in half of the triplets, as a seed and the texts themselves decide.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whorl._support.bounded_json import JsonError, JsonLimits, parse_json
from whorl._support.words import quote

__all__ = ["Triplet", "read_triplets"]

#: A line: 4 MB of ASCII, or 1 MB of other text.
LIMITS = JsonLimits("triplet", bytes=4 * 2**20, values=1000, depth=8)
_MOST_TRIPLETS = 200_000
_MOST_BYTES = 2**30
_TEXTS = ("A", "B", "C")


@dataclass(frozen=True)
class Triplet:
    """A text and two others; nearer: 0 if the first of these is the nearer one, 1 otherwise."""

    anchor: str
    first: str
    second: str
    nearer: int

    @property
    def texts(self) -> tuple[str, ...]:
        return self.anchor, self.first, self.second


def read_triplets(path: str | Path, *, seed: int = 0) -> list[Triplet]:
    """The triplets in a file of JSON lines, with B and C swapped in about half of them.

    seed: decides, together with the texts, which are swapped; so a triplet does not depend on the
    other lines.

    Raises:
        ValueError: the file cannot be read, or a line is no triplet; the message has its number.
    """
    found: list[Triplet] = []
    for number, line in _iterate_lines(Path(path)):
        where = f"data.files: {str(path)!r}, line {number}:"
        try:
            document = parse_json(line, LIMITS)
        except JsonError as error:
            raise ValueError(f"{where} it {error}.") from None
        if len(found) == _MOST_TRIPLETS:
            raise ValueError(f"{where} a file may have {_MOST_TRIPLETS:,} triplets; give fewer.")
        found.append(_read_triplet(document, where, seed))
    if not found:
        raise ValueError(f"data.files: {str(path)!r} has no triplets; give a file with some.")
    return found


def _iterate_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers; never more of one than is allowed."""
    try:
        with open(path, "rb") as file:
            number = 0
            while line := file.readline(LIMITS.bytes + 1):
                number += 1
                if file.tell() > _MOST_BYTES:
                    raise ValueError(
                        f"data.files: {str(path)!r} must have at most {_MOST_BYTES:,} bytes; give a"
                        " part of it."
                    )
                if len(line) > LIMITS.bytes:
                    raise ValueError(
                        f"data.files: {str(path)!r}, line {number}: a line may have"
                        f" {LIMITS.bytes:,} bytes, and this one has more; shorten its texts."
                    )
                if line.strip():
                    yield number, line
    except OSError as error:
        raise ValueError(
            f"data.files: {str(path)!r} cannot be read: {error.strerror or error}; check its name."
        ) from None


def _read_triplet(document: Any, where: str, seed: int) -> Triplet:
    form = '{"A": "text", "B": "text", "C": "text"}'
    if not isinstance(document, dict):
        raise ValueError(f"{where} it must be an object such as {form}; got {quote(document)}.")
    for name in _TEXTS:
        if name not in document:
            raise ValueError(
                f"{where} the field {name!r} is missing; got the fields {quote(list(document))}."
                f" Write {form}."
            )
        if not isinstance(document[name], str) or not document[name].strip():
            raise ValueError(
                f"{where} the field {name!r} must be text that is not blank; got"
                f" {quote(document[name])}."
            )
    label = document.get("label", "B")
    if label not in ("B", "C"):
        raise ValueError(f"{where} label must be 'B' or 'C', the nearer text; got {quote(label)}.")
    anchor, one, other = (document[name] for name in _TEXTS)
    nearer = int(label == "C")
    return swap_triplet(Triplet(anchor, one, other, nearer), seed)


def swap_triplet(triplet: Triplet, seed: int) -> Triplet:
    """The triplet, or the same with its two texts in the other order, as a hash decides."""
    parts = (str(seed), triplet.anchor, *sorted((triplet.first, triplet.second)))
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    nearer, further = triplet.first, triplet.second
    if triplet.nearer:
        nearer, further = further, nearer
    if hashlib.sha256(text).digest()[0] % 2:
        return Triplet(triplet.anchor, further, nearer, 1)
    return Triplet(triplet.anchor, nearer, further, 0)
