"""What happens to each tensor of a checkpoint: nothing, or its rows move within heads.

Heads are read one at a time, and converted tensors are given piece by piece.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import IO

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.types import Layout

from .layout import PACKINGS, Head, list_fused_heads, reorder_rows
from .safetensors_file import FLOATS, FileHeader, TensorEntry, open_regular, read_range
from .shards import WeightFiles
from .sizes import HeadSizes
from .tensor_names import SAY_PATTERN, Pattern, TensorName, read_name

__all__ = ["RowMove", "plan_moves", "read_head", "stream_converted"]

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True)
class RowMove:
    """A tensor whose rows move.

    It is read as ``outer`` times a sequence of heads, each of some rows of ``row_bytes``.
    """

    header: FileHeader
    entry: TensorEntry
    named: TensorName
    outer: int
    heads: tuple[Head, ...]
    row_bytes: int

    @property
    def runs(self) -> Iterator[tuple[int, int, Head]]:
        """Where in the file each head begins and ends."""
        at = self.entry.begin
        for _ in range(self.outer):
            for head in self.heads:
                end = at + head.rows * self.row_bytes
                yield at, end, head
                at = end


def plan_moves(
    checkpoint: WeightFiles,
    sizes: Callable[[int | None], HeadSizes | None],
    patterns: Sequence[Pattern] = (),
) -> list[RowMove]:
    """All tensors that move, or a ValueError for one that should and cannot."""
    moves = []
    for header, entry in checkpoint.tensors():
        named = read_name(entry.name, patterns)
        if named is None:
            continue
        size = sizes(named.layer)
        if size is None:
            continue
        if named.problem is not None:
            raise ValueError(f"{str(header.path)!r}: {named.problem}.")
        if entry.dtype not in FLOATS:
            raise ValueError(
                f"{str(header.path)!r}: {quote(entry.name)} is stored as {entry.dtype}. Quantised"
                " weights have rows that share scales or words, so that they cannot move without"
                " loss; convert the original and quantise that."
            )
        moves.append(_plan_move(header, entry, named, size))
    return moves


def _plan_move(
    header: FileHeader, entry: TensorEntry, named: TensorName, size: HeadSizes
) -> RowMove:
    shape = entry.shape
    together = named.is_gain and len(shape) == 2 and shape[1] == size.q.rows  # Cohere: [heads, D]
    if named.axis == "last":
        outer, rows, inner = prod(shape[:-1]), shape[-1], 1
    elif together:
        outer, rows, inner = 1, shape[0] * shape[1], 1
    else:
        rows = shape[0] if shape else 0
        outer, inner = 1, prod(shape[1:])
    heads = _split_heads(header, entry, named, size, rows)
    return RowMove(header, entry, named, outer, tuple(heads), inner * entry.itemsize)


def _split_heads(
    header: FileHeader, entry: TensorEntry, named: TensorName, size: HeadSizes, rows: int
) -> list[Head]:
    where = f"{str(header.path)!r}: {quote(entry.name)} {list(entry.shape)}"
    if named.role not in ("q", "k"):
        return _split_fused(where, named, size, rows)
    one = size.q if named.role == "q" else size.k
    if named.is_gain and rows == size.k.rows:  # of one head, for all; without a gate
        one = replace(size.k, part=named.role)
    count, rest = divmod(rows, one.rows)
    stated = size.num_heads if named.role == "q" else None  # of k: see whole.check_key_heads
    one_for_all = len(entry.shape) == 1 and rows == one.rows
    fits = named.is_gain or one_for_all or stated is None or count == stated
    if rest or not count or not fits:
        must = f"{stated} heads of {one.rows}" if stated else f"heads of {one.rows}"
        raise ValueError(
            f"{where} must have the channels of {must}, as the config or the caller says; it has"
            f" {rows}. State other sizes by stated=Stated(head_dim=..., num_heads=...)"
            f" (--head-dim, --heads); or, if it is not rotated, {SAY_PATTERN} leave=REGEX."
        )
    return [one] * count


def _split_fused(where: str, named: TensorName, size: HeadSizes, rows: int) -> list[Head]:
    stated = next((packing for packing in PACKINGS if packing == named.role), None)
    packing = stated or size.packing
    if packing is None:
        raise ValueError(
            f"{where} holds q, k and v together, and in which order is not known for this family;"
            f" {SAY_PATTERN} concatenated=REGEX, grouped=REGEX or codegen=REGEX."
        )
    if size.num_heads is None:
        raise ValueError(
            f"{where} holds q, k and v together, and how many heads there are is not known; pass"
            " stated=Stated(num_heads=..., num_kv_heads=...) (--heads, --kv-heads)."
        )
    kv_heads = size.num_kv_heads or size.num_heads
    q, k = [size.q] * size.num_heads, [size.k] * kv_heads
    want = sum(head.rows for head in (*q, *k, *k))
    if rows != want or size.num_heads % kv_heads:
        raise ValueError(
            f"{where} must have {want} rows: q of {size.num_heads} heads, k and v of"
            f" {kv_heads}, each of {size.k.rows} channels; it has {rows}."
        )
    return list_fused_heads(packing, q, k)


def read_head(file: IO[bytes], move: RowMove, index: int) -> Tensor:
    """Head ``index`` of a tensor as [rows, inner] in its own dtype."""
    before = sum(head.rows for head in move.heads[:index])
    begin = move.entry.begin + before * move.row_bytes
    rows = move.heads[index].rows
    data = bytearray().join(read_range(file, begin, begin + rows * move.row_bytes))
    if not data:  # torch.frombuffer takes no empty buffer
        return torch.zeros(rows, 0, dtype=_DTYPES[move.entry.dtype])
    return torch.frombuffer(data, dtype=_DTYPES[move.entry.dtype]).view(rows, -1)


def stream_converted(header: FileHeader, moves: Sequence[RowMove], to: Layout) -> Iterator[bytes]:
    """All behind the header; one head of a moving tensor is in memory at a time."""
    mine = sorted(
        (move for move in moves if move.header is header), key=lambda move: move.entry.begin
    )
    with open_regular(header.path) as file:
        at = header.data_begin
        for move in mine:
            yield from read_range(file, at, move.entry.begin)
            yield from _stream_reordered(file, move, to)
            at = move.entry.end
        yield from read_range(file, at, header.size)


def _stream_reordered(file: IO[bytes], move: RowMove, to: Layout) -> Iterator[bytes]:
    orders = {head: reorder_rows(head, to) for head in set(move.heads)}
    width = move.row_bytes
    for begin, end, head in move.runs:
        if not head.moves:
            yield from read_range(file, begin, end)
            continue
        rows = memoryview(b"".join(read_range(file, begin, end)))
        yield b"".join([rows[row * width : (row + 1) * width] for row in orders[head]])
