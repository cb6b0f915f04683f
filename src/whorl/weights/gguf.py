"""The heads of q and k in a GGUF file, quantised or not.

The table of tensors is read here, each length held against the file before it is used. Plain floats
need nothing else; quantised blocks are undone by the package ``gguf``, which is only given bytes of
the right number and never the file.
"""

import os
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import torch
from torch import Tensor

from whorl._support.extras import import_extra
from whorl.configs import read_config
from whorl.configs.source import load

from .layers import AttentionLayer, Heads
from .safetensors_file import open_regular, read_range
from .sizes import Stated

__all__ = ["find_gguf_layers"]

_PLAIN = {0: torch.float32, 1: torch.float16, 28: torch.float64, 30: torch.bfloat16}
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_MOST_PAIRS, _MOST_TENSORS, _MOST_STRINGS = 2**16, 2**17, 2 * 10**6
_NAME = re.compile(r"blk\.(\d{1,5})\.attn_(q|k|qkv)\.weight")


@dataclass(frozen=True)
class _TensorInfo:
    shape: tuple[int, ...]  # [rows, columns]
    kind: int
    begin: int


@dataclass(frozen=True)
class _RowRange:
    """Some rows of a tensor."""

    tensor: _TensorInfo
    begin: int
    end: int


def find_gguf_layers(path: Path, stated: Stated) -> list[AttentionLayer]:
    """Layers with attn_q and attn_k, or attn_qkv, in which llama.cpp keeps all q, all k, all v."""
    found, data = read_config(path), load(path).data
    tensors = _TensorTable(path).read()
    layers = []
    for number in sorted({layer for layer, _ in tensors}):
        inside = any(number in group.layers for group in found.groups)
        rotation = found.group(layer=number if inside else None).rotation
        if rotation is None:
            continue
        head_dim = stated.head_dim or rotation.options["head_dim"]
        start = stated.rotary_start
        start = rotation.options.get("rotary_start", 0) if start is None else start
        width = stated.rotary_dim or rotation.options.get("rotary_dim") or head_dim - start
        parts = _find_query_and_key(tensors, number, head_dim, data, stated)
        if parts is not None:
            heads = _make_reader(path, *parts, head_dim, slice(start, start + width))
            layers.append(AttentionLayer(f"blk.{number}", number, heads))
    return layers


def _find_query_and_key(
    tensors: Mapping[tuple[int, str], _TensorInfo],
    number: int,
    head_dim: int,
    data: Mapping[str, Any],
    stated: Stated,
) -> tuple[_RowRange, _RowRange] | None:
    if (number, "q") in tensors and (number, "k") in tensors:
        q, k = tensors[number, "q"], tensors[number, "k"]
        return _RowRange(q, 0, q.shape[0]), _RowRange(k, 0, k.shape[0])
    if (number, "qkv") not in tensors:
        return None
    prefix = f"{data.get('general.architecture')}.attention.head_count"
    heads = stated.num_heads or data.get(prefix)
    kv_heads = stated.num_kv_heads or data.get(f"{prefix}_kv", heads)
    fused = tensors[number, "qkv"]
    if type(heads) is not int or type(kv_heads) is not int:
        raise ValueError(
            f"blk.{number}.attn_qkv: the file does not say how many heads there are; pass"
            " stated=Stated(num_heads=..., num_kv_heads=...) (--heads, --kv-heads)."
        )
    if (heads + 2 * kv_heads) * head_dim != fused.shape[0] or not kv_heads:
        raise ValueError(
            f"blk.{number}.attn_qkv has {fused.shape[0]} rows, which are not {heads} heads of q and"
            f" {kv_heads} each of k and v with {head_dim} channels."
        )
    first = heads * head_dim
    return _RowRange(fused, 0, first), _RowRange(fused, first, first + kv_heads * head_dim)


def _make_reader(
    path: Path, q: _RowRange, k: _RowRange, head_dim: int, band: slice
) -> Callable[[], Heads]:
    sizes = [(one.end - one.begin, one.tensor.shape[1]) for one in (q, k)]
    (q_rows, inputs), (k_rows, k_inputs) = sizes
    fits = q_rows % head_dim == k_rows % head_dim == 0 and q_rows % k_rows == 0
    pairs = 0 <= band.start < band.stop <= head_dim and (band.stop - band.start) % 2 == 0
    if not fits or inputs != k_inputs or not pairs:
        raise ValueError(
            f"{str(path)!r}: q of {q_rows} x {inputs} and k of {k_rows} x {k_inputs} must be whole"
            f" heads of {head_dim} channels with the same inputs, with pairs from channel"
            f" {band.start} to {band.stop}; state other sizes by stated=Stated(head_dim=...)"
            " (--head-dim)."
        )

    def heads() -> Heads:
        with open_regular(path) as file:
            queries, keys = (_read_rows(file, one).view(-1, head_dim, inputs) for one in (q, k))
        each = len(queries) // len(keys)
        for n, key in enumerate(keys):
            yield [head[band] for head in queries[n * each : (n + 1) * each]], key[band]

    return heads


def _read_rows(file: IO[bytes], part: _RowRange) -> Tensor:
    """Rows of a tensor as [rows, columns]."""
    tensor, rows, columns = part.tensor, part.end - part.begin, part.tensor.shape[1]
    undo = None if tensor.kind in _PLAIN else _find_dequantizer(file.name, tensor.kind, columns)
    row_bytes = columns * _PLAIN[tensor.kind].itemsize if undo is None else undo[0]
    begin, end = (tensor.begin + row * row_bytes for row in (part.begin, part.end))
    if end > os.fstat(file.fileno()).st_size:
        raise ValueError(f"{file.name!r} ends inside its weights; copy or download it again.")
    data = bytearray().join(read_range(file, begin, end))
    if undo is None:
        return torch.frombuffer(data, dtype=_PLAIN[tensor.kind]).view(rows, columns)
    return undo[1](data, rows)


def _find_dequantizer(
    name: str, kind: int, columns: int
) -> tuple[int, Callable[[bytearray, int], Tensor]]:
    """The bytes of a row, and a function that makes numbers of rows."""
    gguf = import_extra("gguf", by="reading quantised GGUF weights", extra="gguf")
    numpy = import_extra("numpy", by="reading quantised GGUF weights", extra="gguf")
    try:
        known = gguf.GGMLQuantizationType(kind)
        block, block_bytes = gguf.GGML_QUANT_SIZES[known]
    except (ValueError, KeyError):
        raise ValueError(f"{name!r}: weights of type {kind} are not known.") from None
    if columns % block:
        raise ValueError(f"{name!r}: rows of {columns} numbers are no blocks of {block}.")

    def undo(data: bytearray, rows: int) -> Tensor:
        raw = numpy.frombuffer(data, dtype=numpy.uint8).reshape(rows, -1)
        try:
            return torch.from_numpy(gguf.dequantize(raw, known)).view(rows, columns)
        except NotImplementedError:
            raise ValueError(f"{name!r}: the package gguf cannot undo {known.name}.") from None

    return columns // block * block_bytes, undo


class _TensorTable:
    """Reads names, shapes, types and places of the tensors of q and k."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.strings = _MOST_STRINGS

    def read(self) -> dict[tuple[int, str], _TensorInfo]:
        with open_regular(self.path) as self.file:
            self.size = os.fstat(self.file.fileno()).st_size
            if self.take(4) != b"GGUF":
                self.wrong("does not begin with GGUF")
            version = self.number("I")
            if version & 0xFFFF == 0:
                self.wrong("is of the other byte order; weights of such files are not read")
            if version not in (2, 3):
                self.wrong(f"has version {version}; 2 and 3 are read")
            tensors, pairs = self.number("Q"), self.number("Q")
            if tensors > _MOST_TENSORS or pairs > _MOST_PAIRS:
                self.wrong(f"claims {tensors:,} tensors and {pairs:,} keys; no file has so many")
            alignment = 32
            for _ in range(pairs):
                key, value = self.text(), self.value()
                alignment = value if key == b"general.alignment" else alignment
            return self.tensors(tensors, alignment)

    def tensors(self, count: int, alignment: Any) -> dict[tuple[int, str], _TensorInfo]:
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            self.wrong(f"has general.alignment {alignment!r}, not a power of two")
        found = {}
        for _ in range(count):
            name = _NAME.fullmatch(self.text().decode("utf-8", "replace"))
            axes = self.number("I")
            if axes > 4:
                self.wrong(f"has a tensor of {axes} axes; 4 is the most")
            shape = tuple(self.number("Q") for _ in range(axes))[::-1]
            kind, offset = self.number("I"), self.number("Q")
            if name is not None:
                if len(shape) != 2 or not all(0 < n < 2**24 for n in shape):
                    self.wrong(f"gives {name[0]} the shape {list(shape)}")
                found[int(name[1]), name[2]] = _TensorInfo(shape, kind, offset)
        begin = -(-self.file.tell() // alignment) * alignment
        return {key: _TensorInfo(t.shape, t.kind, begin + t.begin) for key, t in found.items()}

    def value(self) -> Any:
        """A whole number of four bytes, None for everything else, which is stepped over."""
        kind = self.number("I")
        if kind == 4:
            return self.number("I")
        if kind == _STRING:
            self.skip(self.number("Q"))
        elif kind == _ARRAY:
            inner, length = self.number("I"), self.number("Q")
            if inner == _STRING:
                self.skip_strings(length)
            elif inner in _SCALARS:
                self.skip(length * _SCALARS[inner])
            else:
                self.wrong(f"holds an array of type {inner}")
        elif kind in _SCALARS:
            self.skip(_SCALARS[kind])
        else:
            self.wrong(f"holds a value of type {kind}, which does not exist")
        return None

    def skip_strings(self, count: int) -> None:
        self.strings -= count
        if self.strings < 0:
            self.wrong(f"holds more than {_MOST_STRINGS:,} strings; no vocabulary does")
        for _ in range(count):
            self.skip(self.number("Q"))

    def skip(self, length: int) -> None:
        if length > self.size - self.file.tell():
            self.wrong("ends inside its header")
        self.file.seek(length, os.SEEK_CUR)

    def text(self) -> bytes:
        length = self.number("Q")
        if length > 2**16:
            self.wrong(f"has a name of {length:,} bytes")
        return self.take(length)

    def number(self, form: str) -> Any:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def take(self, length: int) -> bytes:
        raw = self.file.read(length)
        if len(raw) < length:
            self.wrong("ends inside its header")
        return raw

    def wrong(self, words: str) -> NoReturn:
        raise ValueError(f"the GGUF file {str(self.path)!r} {words}.")
