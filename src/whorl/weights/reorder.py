"""The tensors of a file, those of q and k with rows in another order, given piece by piece."""

from collections.abc import Iterator, Sequence
from typing import IO

from whorl.types import Layout

from .layout import reorder_rows
from .plan import RowMove
from .safetensors_file import FileHeader, open_regular, read_range

__all__ = ["stream_converted"]


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
