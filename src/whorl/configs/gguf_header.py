"""The header of a GGUF file: its metadata, its table of tensors, and small tensors about rotation.

    magic "GGUF", version 2 or 3, number of tensors, number of key-value pairs
    key-value pairs; then name, shape, type and offset of each tensor; then the data

The format is https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, in either byte order.

Why not GGUFReader of the package ``gguf`` (0.19): it trusts every count. An array that claims 2^40
entries makes it loop for hours, because reads past the end return nothing and no error; nested
arrays overflow its stack; and 150,000 tokens with as many merges took it 25 s, this reader 0.2 s,
because it makes two numpy views for each. Here each length is checked against the file size
and a limit before it is used, vocabularies are skipped, and weights are not read. The tests compare
the two.
"""

import os
import re
import struct
from dataclasses import dataclass
from typing import IO, Any

from whorl._support.words import quote

from .model import ConfigError

__all__ = ["MAGIC", "GGUFTensor", "read_metadata", "read_tensor_table"]

MAGIC = b"GGUF"
_ROPE_TENSORS = re.compile(r"(rope_freqs|rope_factors_long|rope_factors_short)\.weight")

_SCALARS = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_FLOATS = {0: "f", 1: "e", 28: "d", 30: "H"}  # F32, F16, F64, BF16 as its upper half

_MOST_PAIRS = 2**16
_MOST_TENSORS = 2**17
_MOST_STRINGS = 1_200_000  # in all arrays together; the largest vocabularies have 0.8 million
_BLOCK = 2**20
_MOST_KEY_BYTES = 2**16
_MOST_ENTRIES = 4_096  # of an array, or bytes of a text: longer ones are vocabulary


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor in the table of a GGUF file.

    shape: outermost axis first, as in PyTorch. kind: the ggml type. begin: its first byte.
    """

    shape: tuple[int, ...]
    kind: int
    begin: int


def read_metadata(
    file: IO[bytes], where: str
) -> tuple[dict[str, Any], dict[str, tuple[float, ...]]]:
    """Metadata without the vocabulary, and the tensors that change frequencies, as numbers."""
    header = _HeaderReader(file, where)
    entries = header.read_table(_ROPE_TENSORS)
    return header.data, {name: header.read_floats(name, entry) for name, entry in entries.items()}


def read_tensor_table(file: IO[bytes], where: str, names: re.Pattern[str]) -> dict[str, GGUFTensor]:
    """The tensors whose names match, in a file of little-endian byte order."""
    header = _HeaderReader(file, where)
    if header.order != "<":
        raise header.make_error("is of the other byte order; weights of such files are not read.")
    return header.read_table(names)


class _HeaderReader:
    """Reads a header from start to end; every length is checked before it is used."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        self.file, self.where = file, where
        self.size = os.fstat(file.fileno()).st_size
        self.strings_left = _MOST_STRINGS
        self.order = "<"
        file.seek(len(MAGIC))
        version = self.read_number("I", "the version")
        if version & 0xFFFF == 0:  # written on a machine of the other byte order
            self.order = ">"
            version = int.from_bytes(struct.pack("<I", version), "big")
        if version not in (2, 3):
            raise self.make_error(f"has version {version}; 2 and 3 are read. Convert it again.")
        self.data: dict[str, Any] = {"GGUF.version": version}

    def read_table(self, names: re.Pattern[str]) -> dict[str, GGUFTensor]:
        """Metadata into ``data``, and the tensors whose names match."""
        tensors = self.read_count(_MOST_TENSORS, "tensors")
        for _ in range(self.read_count(_MOST_PAIRS, "pairs")):
            key = self.read_name("a key")
            if key in self.data:
                raise self.make_error(f"holds the key {quote(key)} twice.")
            value = self.read_value(key)
            if value is not None:
                self.data[key] = value
        return self.read_tensors(tensors, names, self.data.get("general.alignment", 32))

    def read_value(self, key: str) -> Any:
        """A number, a short text or a short list; None for a value that is skipped."""
        kind = self.read_number("I", key)
        if kind in _SCALARS:
            return self.read_number(_SCALARS[kind], key)
        if kind == _STRING:
            return self.read_text(key)
        if kind != _ARRAY:
            raise self.make_error(f"gives {quote(key)} the type {kind}, which does not exist.")
        inner, length = self.read_number("I", key), self.read_number("Q", key)
        if inner == _STRING:
            return self.skip_strings(length, key)
        if inner not in _SCALARS:
            raise self.make_error(f"makes {quote(key)} an array of type {inner}; no reader can.")
        form = _SCALARS[inner]
        width = struct.calcsize("<" + form)
        self.check_fits(length * width, key)
        if length > _MOST_ENTRIES:
            self.file.seek(length * width, os.SEEK_CUR)
            return None
        raw = self.read_bytes(length * width, key)
        return list(struct.unpack(f"{self.order}{length}{form}", raw))

    def read_text(self, key: str) -> str | None:
        length = self.read_number("Q", key)
        self.check_fits(length, key)
        if length > _MOST_ENTRIES:
            self.file.seek(length, os.SEEK_CUR)
            return None
        return self.read_bytes(length, key).decode("utf-8", "replace")

    def skip_strings(self, count: int, key: str) -> None:
        """Skip an array of strings, by reading blocks and adding up the lengths in them."""
        self.check_fits(8 * count, key)
        self.strings_left -= count
        if self.strings_left < 0:
            raise self.make_error(f"holds more than {_MOST_STRINGS:,} strings; no vocabulary does.")
        unpack = struct.Struct(self.order + "Q").unpack_from
        start, block, at = self.file.tell(), b"", 0
        for _ in range(count):
            if at + 8 > len(block):
                start, at = self.move_to(start + at, key), 0
                block = self.file.read(_BLOCK)
                if len(block) < 8:
                    raise self.make_error(f"ends inside {quote(key)}.")
            at += 8 + unpack(block, at)[0]
        self.move_to(start + at, key)

    def read_tensors(
        self, count: int, names: re.Pattern[str], alignment: Any
    ) -> dict[str, GGUFTensor]:
        found: dict[str, GGUFTensor] = {}
        for _ in range(count):
            name = self.read_name("the name of a tensor")
            axes = self.read_number("I", name)
            if axes > 4:
                raise self.make_error(f"gives {quote(name)} {axes} axes; 4 is the most.")
            shape = tuple(self.read_number("Q", name) for _ in range(axes))[::-1]
            kind, offset = self.read_number("I", name), self.read_number("Q", name)
            if names.fullmatch(name):
                if name in found:
                    raise self.make_error(f"holds the tensor {name} twice.")
                found[name] = GGUFTensor(shape, kind, offset)
        if not found:
            return {}
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self.make_error(f"has general.alignment {quote(alignment)}, not a power of two.")
        begin = -(-self.file.tell() // alignment) * alignment
        return {n: GGUFTensor(t.shape, t.kind, begin + t.begin) for n, t in found.items()}

    def read_floats(self, name: str, entry: GGUFTensor) -> tuple[float, ...]:
        """The numbers of a tensor with one axis of plain floats."""
        flat = entry.shape and len([n for n in entry.shape if n != 1]) <= 1
        length = entry.shape[-1] if flat else 0
        if entry.kind not in _FLOATS or not 1 <= length <= 2**16:
            raise self.make_error(
                f"stores {name} as type {entry.kind} with {length} entries; frequencies must be"
                " plain floats, one for each pair."
            )
        form = _FLOATS[entry.kind]
        width = struct.calcsize("<" + form)
        if entry.begin + length * width > self.size:
            raise self.make_error(f"ends before the tensor {name}.")
        self.file.seek(entry.begin)
        values = struct.unpack(f"{self.order}{length}{form}", self.read_bytes(length * width, name))
        if form == "H":
            wide = struct.pack(f"<{length}I", *(value << 16 for value in values))
            values = struct.unpack(f"<{length}f", wide)
        return tuple(map(float, values))

    def read_count(self, most: int, what: str) -> int:
        found: int = self.read_number("Q", f"the number of {what}")
        if found > most:
            raise self.make_error(f"claims {found:,} {what}; no file has more than {most:,}.")
        return found

    def read_name(self, what: str) -> str:
        length = self.read_number("Q", what)
        if length > _MOST_KEY_BYTES:
            raise self.make_error(f"gives {what} a length of {length:,} bytes.")
        try:
            return self.read_bytes(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.make_error(f"has {what} that is not text.") from None

    def read_number(self, form: str, what: str) -> Any:
        form = self.order + form
        return struct.unpack(form, self.read_bytes(struct.calcsize(form), what))[0]

    def read_bytes(self, length: int, what: str) -> bytes:
        raw = self.file.read(length)
        if len(raw) < length:
            raise self.make_error(f"ends inside {quote(what)}.")
        return raw

    def move_to(self, offset: int, what: str) -> int:
        if offset > self.size:
            raise self.make_error(f"ends inside {quote(what)}, which claims more bytes.")
        return self.file.seek(offset)

    def check_fits(self, length: int, what: str) -> None:
        if length > self.size - self.file.tell():
            raise self.make_error(f"ends inside {quote(what)}, which claims {length:,} bytes.")

    def make_error(self, words: str) -> ConfigError:
        return ConfigError(f"the GGUF file {self.where} {words}")
