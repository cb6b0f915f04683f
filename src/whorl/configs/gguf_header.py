"""The header of a GGUF file: its metadata, and the few small tensors that say how to rotate.

    magic "GGUF", version 2 or 3, counts of tensors and of pairs
    pairs of key and typed value; then name, shape, type and offset of each tensor; then the data

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Either byte order.

Why not GGUFReader of the package ``gguf`` (0.19): it believes every count. An array that claims
2^40 entries makes it loop for hours, because reads past the end give nothing and no error; arrays
in arrays overflow its stack; and 150,000 tokens with as many merges took it 25 s where this took
0.2 s, since it makes two numpy views for each. Here each length is held against the file's size
and a budget before it is used, vocabularies are stepped over, and weights are never touched. The
tests compare the two.
"""

import os
import struct
from typing import Any, BinaryIO

from whorl._support.words import quote

from .model import ConfigError

__all__ = ["MAGIC", "read"]

MAGIC = b"GGUF"
TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")

_SCALARS = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_FLOATS = {0: "f", 1: "e", 28: "d", 30: "H"}  # F32, F16, F64, BF16 as its upper half

_MOST_PAIRS = 2**16
_MOST_TENSORS = 2**17
_MOST_STRINGS = 1_200_000  # in all arrays together; the largest vocabularies have 0.8 million
_BLOCK = 2**20
_MOST_KEY = 2**16
_MOST_KEPT = 4_096  # entries of an array, bytes of a text: more is vocabulary


def read(file: BinaryIO, where: str) -> tuple[dict[str, Any], dict[str, tuple[float, ...]]]:
    """Metadata without the vocabulary, and the values of ``TENSORS``."""
    return _Header(file, where).read()


class _Header:
    def __init__(self, file: BinaryIO, where: str) -> None:
        self.file, self.where = file, where
        self.size = os.fstat(file.fileno()).st_size
        self.strings = _MOST_STRINGS
        self.order = "<"

    def read(self) -> tuple[dict[str, Any], dict[str, tuple[float, ...]]]:
        self.file.seek(len(MAGIC))
        version = self.number("I", "the version")
        if version & 0xFFFF == 0:  # written on a machine of the other byte order
            self.order = ">"
            version = int.from_bytes(struct.pack("<I", version), "big")
        if version not in (2, 3):
            raise self.wrong(f"has version {version}; 2 and 3 are read. Convert it again.")
        tensors = self.count(_MOST_TENSORS, "tensors")
        data: dict[str, Any] = {"GGUF.version": version}
        for _ in range(self.count(_MOST_PAIRS, "pairs")):
            key = self.text("a key", _MOST_KEY)
            if key in data:
                raise self.wrong(f"holds the key {quote(key)} twice.")
            value = self.value(key)
            if value is not None:
                data[key] = value
        return data, self.tensors(tensors, data.get("general.alignment", 32))

    def value(self, key: str) -> Any:
        """A number, a short text or a short list; None for what was stepped over."""
        kind = self.number("I", key)
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], key)
        if kind == _STRING:
            return self.string(key)
        if kind != _ARRAY:
            raise self.wrong(f"gives {quote(key)} the type {kind}, which does not exist.")
        inner, length = self.number("I", key), self.number("Q", key)
        if inner == _STRING:
            return self.skip_strings(length, key)
        if inner not in _SCALARS:
            raise self.wrong(f"makes {quote(key)} an array of type {inner}; no reader takes that.")
        form = _SCALARS[inner]
        width = struct.calcsize("<" + form)
        self.fits(length * width, key)
        if length > _MOST_KEPT:
            self.file.seek(length * width, os.SEEK_CUR)
            return None
        return list(struct.unpack(f"{self.order}{length}{form}", self.take(length * width, key)))

    def string(self, key: str) -> str | None:
        length = self.number("Q", key)
        self.fits(length, key)
        if length > _MOST_KEPT:
            self.file.seek(length, os.SEEK_CUR)
            return None
        return self.take(length, key).decode("utf-8", "replace")

    def skip_strings(self, count: int, key: str) -> None:
        self.fits(8 * count, key)
        self.strings -= count
        if self.strings < 0:
            raise self.wrong(f"holds more than {_MOST_STRINGS:,} strings; no vocabulary does.")
        unpack = struct.Struct(self.order + "Q").unpack_from
        start, block, at = self.file.tell(), b"", 0
        for _ in range(count):
            if at + 8 > len(block):
                start, at = self.jump(start + at, key), 0
                block = self.file.read(_BLOCK)
                if len(block) < 8:
                    raise self.wrong(f"ends inside {quote(key)}.")
            at += 8 + unpack(block, at)[0]
        self.jump(start + at, key)

    def tensors(self, count: int, alignment: Any) -> dict[str, tuple[float, ...]]:
        found: dict[str, tuple[int, int, int]] = {}
        for _ in range(count):
            name = self.text("the name of a tensor", _MOST_KEY)
            dims = self.number("I", name)
            if dims > 4:
                raise self.wrong(f"gives {quote(name)} {dims} axes; 4 is the most.")
            shape = [self.number("Q", name) for _ in range(dims)]
            kind, offset = self.number("I", name), self.number("Q", name)
            if name in TENSORS:
                if name in found:
                    raise self.wrong(f"holds the tensor {name} twice.")
                length = shape[0] if len([n for n in shape if n != 1]) <= 1 and shape else 0
                found[name] = (length, kind, offset)
        power = isinstance(alignment, int) and alignment > 0 and not alignment & (alignment - 1)
        if found and not power:
            raise self.wrong(f"has general.alignment {quote(alignment)}, not a power of two.")
        start = -(-self.file.tell() // alignment) * alignment if found else 0
        return {name: self.floats(name, start, *where) for name, where in found.items()}

    def floats(
        self, name: str, start: int, length: int, kind: int, offset: int
    ) -> tuple[float, ...]:
        if kind not in _FLOATS or not 1 <= length <= 2**16:
            raise self.wrong(
                f"stores {name} as type {kind} with {length} entries; frequencies must be plain"
                " floats, one for each pair."
            )
        width = struct.calcsize("<" + _FLOATS[kind])
        if start + offset + length * width > self.size:
            raise self.wrong(f"ends before the tensor {name}.")
        self.file.seek(start + offset)
        raw = self.take(length * width, name)
        values = struct.unpack(f"{self.order}{length}{_FLOATS[kind]}", raw)
        if kind == 30:
            wide = struct.pack(f"<{length}I", *(value << 16 for value in values))
            values = struct.unpack(f"<{length}f", wide)
        return tuple(map(float, values))

    def count(self, most: int, what: str) -> int:
        found: int = self.number("Q", f"the number of {what}")
        if found > most:
            raise self.wrong(f"claims {found:,} {what}; no file has more than {most:,}.")
        return found

    def text(self, what: str, most: int) -> str:
        length = self.number("Q", what)
        if length > most:
            raise self.wrong(f"gives {what} a length of {length:,} bytes.")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong(f"has {what} that is not text.") from None

    def number(self, form: str, what: str) -> Any:
        form = self.order + form
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def take(self, length: int, what: str) -> bytes:
        raw = self.file.read(length)
        if len(raw) < length:
            raise self.wrong(f"ends inside {quote(what)}.")
        return raw

    def jump(self, place: int, what: str) -> int:
        if place > self.size:
            raise self.wrong(f"ends inside {quote(what)}, which claims more bytes.")
        return self.file.seek(place)

    def fits(self, length: int, what: str) -> None:
        if length > self.size - self.file.tell():
            raise self.wrong(f"ends inside {quote(what)}, which claims {length:,} bytes.")

    def wrong(self, words: str) -> ConfigError:
        return ConfigError(f"the GGUF file {self.where} {words}")
