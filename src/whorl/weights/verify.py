"""Is the output what it should be? Two questions, asked before it is put in place.

the round trip   converted back, every byte of every tensor is as it was
the scores       q and k of some heads, with their biases and gains, read from both sides and
                 rotated each in its layout, give equal scores
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.kernels import reference
from whorl.types import Layout

from .layout import Head
from .plan import RowMove, read_head, stream_converted
from .safetensors_file import FileHeader, TensorEntry, open_regular, read_header
from .shards import WeightFiles
from .tensor_names import SAY_PATTERN

__all__ = ["Verdict", "verify"]

# Sums over channels in another order, in float64.
_TOLERANCE = 1e-10
_TOKENS = 6

Counted = Callable[[Iterator[bytes]], Iterator[bytes]]


@dataclass(frozen=True)
class Verdict:
    """What was compared: all ``bytes`` of tensors, and the scores of ``heads`` heads.

    largest: the largest difference of scores, as a part of the largest score.
    layout: what the detector says of the output, None if its weights show no one layout.
    """

    bytes: int
    heads: int
    largest: float
    layout: Layout | None = None
    confidence: float = 0.0


def verify(
    checkpoint: WeightFiles, out: Path, moves: Sequence[RowMove], to: Layout, counted: Counted
) -> Verdict:
    """Compare ``out`` with the checkpoint that it was made from; raise if it is not the same."""
    theirs = []
    for header in checkpoint.files:
        written = read_header(out / header.path.name)
        if _list_tensors(written) != _list_tensors(header):
            raise ValueError(f"convert: {header.path.name} has other tensors than its source.")
        mine = [move for move in moves if move.header is header]
        mine = [replace(m, header=written, entry=written.entries[m.entry.name]) for m in mine]
        back: Layout = "half" if to == "interleaved" else "interleaved"
        _compare_bytes(header, counted(stream_converted(written, mine, back)))
        theirs += mine
    heads, largest = _compare_scores(moves, theirs, to)
    return Verdict(checkpoint.size, heads, largest)


def _list_tensors(header: FileHeader) -> list[TensorEntry]:
    """All tensors in their order, with places that count from the first."""
    first = header.data_begin
    return [replace(e, begin=e.begin - first, end=e.end - first) for e in header.entries.values()]


def _compare_bytes(header: FileHeader, pieces: Iterator[bytes]) -> None:
    name = header.path.name
    with open_regular(header.path) as file:
        file.seek(header.data_begin)
        for piece in pieces:
            at = file.tell()
            if file.read(len(piece)) != piece:
                raise ValueError(
                    f"convert: the round trip of {name} differs near byte {at:,}; the disk or the"
                    " memory is faulty, or the source was changed meanwhile."
                )
        if file.tell() != os.fstat(file.fileno()).st_size:
            raise ValueError(f"convert: the round trip of {name} ends too early.")


def _compare_scores(
    ours: Sequence[RowMove], theirs: Sequence[RowMove], to: Layout
) -> tuple[int, float]:
    from_layout: Layout = "half" if to == "interleaved" else "interleaved"
    pairs = zip(
        _group_by_attention(ours).items(), _group_by_attention(theirs).values(), strict=True
    )
    heads, largest = 0, 0.0
    for (name, before), after in pairs:
        for choice in (0, -1):  # the first and the last query head
            found = _compute_scores(before, choice, from_layout)
            if found is None:
                break
            again = _compute_scores(after, choice, to)
            assert again is not None
            if not torch.isfinite(found).all():  # NaN in the weights: no scores to compare
                continue
            error = float((found - again).abs().max() / found.abs().max().clamp_min(1e-300))
            if not error <= _TOLERANCE:
                raise ValueError(
                    f"convert: attention scores of {quote(name)} changed by {error:.1e} of the"
                    f" largest, and may by {_TOLERANCE:.0e}; a tensor of q or k was not recognised,"
                    f" so {SAY_PATTERN} q=REGEX or k=REGEX."
                )
            heads, largest = heads + 1, max(largest, error)
    return heads, largest


def _group_by_attention(moves: Sequence[RowMove]) -> dict[str, list[RowMove]]:
    found: dict[str, list[RowMove]] = {}
    for move in moves:
        found.setdefault(move.named.attention, []).append(move)
    return found


def _compute_scores(moves: Sequence[RowMove], choice: int, layout: Layout) -> Tensor | None:
    """Scores of one query head with its key head over a few tokens; None without both weights."""
    q = _compute_channels(moves, "q", choice, 1)
    k = _compute_channels(moves, "k", choice, 2)
    if q is None or k is None or q[1].width != k[1].width:
        return None
    rotated = [_rotate(x, head, layout) for x, head in (q, k)]
    return rotated[0] @ rotated[1].T


def _compute_channels(
    moves: Sequence[RowMove], part: str, choice: int, seed: int
) -> tuple[Tensor, Head] | None:
    """What the projection gives a head for random tokens [T, rows], gains and biases included."""
    weights = [m for m in moves if _is_weight(m) and any(h.part == part for h in m.heads)]
    if not weights:
        return None
    source = torch.Generator().manual_seed(seed)
    y, head = _read_rows(weights[0], part, choice)
    x = torch.randn(_TOKENS, y.shape[1], generator=source, dtype=torch.float64)
    channels = x @ y.T
    for move in moves:
        if move in weights or move.outer != 1 or not any(h.part == part for h in move.heads):
            continue
        more, _ = _read_rows(move, part, choice)
        if more.shape == (head.rows, 1):
            one = more[:, 0]
            channels = channels * one if move.named.is_gain else channels + one
    return channels, head


def _is_weight(move: RowMove) -> bool:
    return not move.named.is_gain and len(move.entry.shape) == 2 and move.named.axis == "first"


def _read_rows(move: RowMove, part: str, choice: int) -> tuple[Tensor, Head]:
    at = [n for n, head in enumerate(move.heads) if head.part == part][choice]
    with open_regular(move.header.path) as file:
        return read_head(file, move, at).double(), move.heads[at]


def _rotate(x: Tensor, head: Head, layout: Layout) -> Tensor:
    """The rotated channels [T, width] at the positions 0, 7, 14, ..."""
    angles = 7.0 * torch.arange(len(x), dtype=torch.float64)[:, None]
    angles = angles * reference.compute_inv_freq(head.width)
    band = x[None, None, :, head.start : head.start + head.width]
    return reference.rotate(band, reference.compute_table(angles), layout=layout)[0, 0]
