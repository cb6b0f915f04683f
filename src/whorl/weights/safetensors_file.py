"""The safetensors format, read by our own parser so that a hostile file is refused, not obeyed.

    8 bytes    N, the length of the header, little-endian
    N bytes    JSON: {"name": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}, ...}
    the rest   the tensors, row by row; offsets count from here

https://github.com/huggingface/safetensors#format. Nothing is trusted before it is checked: every
length against the size of the file, every shape against its bytes, and the tensors must lie side
by side without gap or overlap, as the format demands. Only the header is read into memory.
"""

import math
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

from whorl._support.bounded_json import JsonError, JsonLimits, parse_json
from whorl._support.words import quote

__all__ = [
    "CHUNK",
    "FLOATS",
    "FileHeader",
    "TensorEntry",
    "open_regular",
    "read_header",
    "read_range",
]

#: Bits of an element.
_BITS = {
    **dict.fromkeys(["F4"], 4),
    **dict.fromkeys(["F6_E2M3", "F6_E3M2"], 6),
    **dict.fromkeys(["BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"], 8),
    **dict.fromkeys(["F8_E4M3FNUZ", "F8_E5M2FNUZ"], 8),
    **dict.fromkeys(["U16", "I16", "F16", "BF16"], 16),
    **dict.fromkeys(["U32", "I32", "F32"], 32),
    **dict.fromkeys(["U64", "I64", "F64", "C64"], 64),
}
#: The types of weights that are not quantised.
FLOATS = ("F64", "F32", "F16", "BF16")
#: Bytes that are held at once while data is copied.
CHUNK = 4 * 2**20

#: 60,000 tensors of two axes, each with 270 bytes of header; files of 5,000 are large.
_LIMITS = JsonLimits("header", bytes=16 * 2**20, values=500_000, depth=4)
_MOST_AXES = 32
_MOST_SIZE = 2**63


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file; ``begin`` and ``end`` count from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    @property
    def itemsize(self) -> int:
        """Bytes of an element; only for types of whole bytes."""
        return _BITS[self.dtype] // 8


@dataclass(frozen=True)
class FileHeader:
    """What a file says about its tensors, which stand in the order of their bytes."""

    path: Path
    entries: dict[str, TensorEntry]
    data_begin: int
    size: int
    metadata: dict[str, str] = field(default_factory=dict)


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file: a pipe or a device could make us wait for ever."""
    try:
        # Not blocking, so that opening a pipe without a writer returns.
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None
    except ValueError:  # a NUL inside
        raise ValueError(f"{str(path)!r} is no path.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError(f"{str(path)!r} is not a regular file; name a file.")
    return os.fdopen(handle, "rb")


def read_header(path: Path) -> FileHeader:
    """The tensors of a safetensors file, or a ValueError that says what is wrong with it."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        if len(first) < 8:
            _refuse(path, f"it has {size} bytes, and the length of the header alone takes 8")
        (length,) = struct.unpack("<Q", first)
        if length > size - 8:
            _refuse(
                path,
                f"its header would have {length:,} bytes and only {size - 8:,} follow; it is cut"
                " short, or no safetensors file",
            )
        if length > _LIMITS.bytes:
            _refuse(path, f"its header has {length:,} bytes; at most {_LIMITS.bytes:,} are read")
        raw = file.read(length)
    if len(raw) < length:
        _refuse(path, "it became shorter while it was read")
    tensors, about = _parse_header(path, raw)
    entries = [_read_entry(path, *item, 8 + length) for item in tensors.items()]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    _check_cover(path, entries, 8 + length, size)
    return FileHeader(path, {entry.name: entry for entry in entries}, 8 + length, size, about)


def read_range(file: IO[bytes], begin: int, end: int) -> Iterator[bytes]:
    """The bytes from ``begin`` to ``end`` in pieces of at most CHUNK."""
    file.seek(begin)
    while begin < end:
        piece = file.read(min(CHUNK, end - begin))
        if not piece:
            raise ValueError(f"{file.name!r} became shorter while it was read.")
        begin += len(piece)
        yield piece


def _parse_header(path: Path, raw: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """The JSON of a header: tensors, and metadata."""
    try:
        header = parse_json(raw, _LIMITS)
    except JsonError as error:
        _refuse(path, f"its header {error}")
    if not isinstance(header, dict):
        _refuse(path, f"its header must be a JSON object; it is a {type(header).__name__}")
    about = header.pop("__metadata__", {})
    if not isinstance(about, dict) or not all(isinstance(v, str) for v in about.values()):
        _refuse(path, "__metadata__ must map strings to strings")
    return header, about


def _read_entry(path: Path, name: str, about: Any, data_begin: int) -> TensorEntry:
    where = f"tensor {quote(name)}"
    if not isinstance(about, dict) or not {"dtype", "shape", "data_offsets"} <= set(about):
        _refuse(path, f"{where} must have dtype, shape and data_offsets; got {quote(about)}")
    dtype, shape, offsets = about["dtype"], about["shape"], about["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        _refuse(path, f"{where} has the unknown dtype {quote(dtype)}")
    if not _are_sizes(shape) or len(shape) > _MOST_AXES:
        _refuse(path, f"{where} must have a shape of sizes; got {quote(shape)}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(path, f"{where} must have data_offsets [begin, end]; got {quote(offsets)}")
    bits, have = _BITS[dtype] * math.prod(shape), 8 * (offsets[1] - offsets[0])
    if bits != have:
        _refuse(
            path,
            f"{where} has shape {quote(shape)} of {dtype}, which takes {quote(bits // 8)} bytes;"
            f" its offsets give it {have // 8}",
        )
    return TensorEntry(name, dtype, tuple(shape), data_begin + offsets[0], data_begin + offsets[1])


def _check_cover(path: Path, entries: list[TensorEntry], begin: int, size: int) -> None:
    """Tensors lie side by side from the header to the end of the file."""
    at, before = begin, "the header"
    for entry in entries:
        if entry.begin != at:
            how = "overlaps" if entry.begin < at else "leaves a gap after"
            _refuse(path, f"tensor {quote(entry.name)} {how} {before}")
        at, before = entry.end, f"tensor {quote(entry.name)}"
    if at > size:
        _refuse(
            path,
            f"its tensors end at byte {at:,} and the file at {size:,}; it was cut short, so copy or"
            " download it again",
        )
    if at < size:
        _refuse(path, f"{size - at:,} bytes at its end belong to no tensor")


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < _MOST_SIZE for n in value)


def _refuse(path: Path, why: str) -> NoReturn:
    raise ValueError(f"{str(path)!r} cannot be read: {why}.")
