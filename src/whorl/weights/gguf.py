"""The heads of q and k in a GGUF file, quantised or not.

Plain floats need nothing else; quantised blocks are undone by the package ``gguf``, which is only
given bytes of the right number and never the file.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from whorl._support.extras import import_extra
from whorl._support.words import quote
from whorl.configs import read_config
from whorl.configs.gguf_header import GGUFTensor, read_tensor_table
from whorl.configs.source import load

from .layers import AttentionLayer, Heads
from .safetensors_file import open_regular, read_range
from .sizes import Stated

__all__ = ["find_gguf_layers"]

_PLAIN = {0: torch.float32, 1: torch.float16, 28: torch.float64, 30: torch.bfloat16}
_NAME = re.compile(r"blk\.(\d{1,5})\.attn_(q|k|qkv)\.weight")


@dataclass(frozen=True)
class _RowRange:
    """Some rows of a tensor."""

    tensor: GGUFTensor
    begin: int
    end: int


def find_gguf_layers(path: Path, stated: Stated) -> list[AttentionLayer]:
    """Layers with attn_q and attn_k, or attn_qkv, in which llama.cpp keeps all q, all k, all v."""
    found, data = read_config(path), load(path).data
    tensors = _find_tensors(path)
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


def _find_tensors(path: Path) -> dict[tuple[int, str], GGUFTensor]:
    """The tensors of q and k, by layer and name, with shapes [rows, columns]."""
    with open_regular(path) as file:
        entries = read_tensor_table(file, repr(str(path)), _NAME)
    found = {}
    for name, entry in entries.items():
        if len(entry.shape) != 2 or not all(0 < n < 2**24 for n in entry.shape):
            shape = list(entry.shape)
            raise ValueError(f"the GGUF file {str(path)!r} gives {name} the shape {shape}.")
        match = _NAME.fullmatch(name)
        assert match is not None
        found[int(match[1]), match[2]] = entry
    return found


def _find_query_and_key(
    tensors: Mapping[tuple[int, str], GGUFTensor],
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
        raise ValueError(f"{quote(name)}: weights of type {kind} are not known.") from None
    if columns % block:
        raise ValueError(f"{quote(name)}: rows of {columns} numbers are no blocks of {block}.")

    def undo(data: bytearray, rows: int) -> Tensor:
        raw = numpy.frombuffer(data, dtype=numpy.uint8).reshape(rows, -1)
        try:
            return torch.from_numpy(gguf.dequantize(raw, known)).view(rows, columns)
        except NotImplementedError:
            raise ValueError(f"{quote(name)}: the package gguf cannot undo {known.name}.") from None

    return columns // block * block_bytes, undo
