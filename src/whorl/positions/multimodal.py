"""Positions (t, h, w) of text mixed with images and videos, for MRoPE.

    text token     p = start, start + 1, ... on all three axes
    image, video   (start + floor(interval f), start + row, start + column), the column fastest
    what follows   starts one past the largest position so far

Wang et al. 2024, Qwen2-VL, section 2.1, https://arxiv.org/abs/2409.12191. Interval: Bai et al.
2025, Qwen2.5-VL, https://arxiv.org/abs/2502.13923: position ids per second times the seconds
between frames.

Different from transformers 5: there, what follows starts max(rows, columns) after the start of the
image or video, which puts text inside a video of many frames. That is resume="side"; the two agree
wherever no video has more time steps than rows or columns.
"""

import itertools
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from whorl._support.storage import check_storage
from whorl._support.words import quote, shorten

from .grids import grid

__all__ = ["Multimodal", "Resume", "Segment", "from_segments", "from_token_types"]

#: n text tokens; or (t, h, w) of an image or video, with an interval (t, h, w, interval).
Segment = int | tuple[int, int, int] | tuple[int, int, int, float]
Resume = Literal["largest", "side"]
Cells = tuple[int, int, int, float]

_WORDS = {1: "image", 2: "video"}


class Multimodal(NamedTuple):
    """Positions int64 [3, B, T], 0 on padding, and the position that each row goes on at, [B].

    ``next_position`` is the ``offset=`` of the first decoded token. Less the number of tokens of
    the row, it is Hugging Face's mrope_position_delta.
    """

    positions: Tensor
    next_position: Tensor


def from_segments(
    rows: Sequence[Sequence[Segment]],
    *,
    resume: Resume = "largest",
    padding: Literal["left", "right"] = "left",
) -> Multimodal:
    """Positions of sequences described piece by piece, one list of segments for each row.

    A segment is the number of text tokens, or the grid (t, h, w) of tokens of an image or video,
    (t, h, w, interval) where frames are more than one position apart. ``resume`` is as for
    ``from_token_types``; ``padding`` fills the shorter rows.

    >>> found = from_segments([[2, (1, 2, 2), 2]])  # text, an image of 2 x 2 tokens, text
    >>> found.positions[:, 0].tolist()
    [[0, 1, 2, 2, 2, 2, 4, 5], [0, 1, 2, 2, 3, 3, 4, 5], [0, 1, 2, 3, 2, 3, 4, 5]]
    >>> found.next_position.tolist()
    [6]
    """
    _check_choice("from_segments", "resume", resume, ("largest", "side"))
    _check_choice("from_segments", "padding", padding, ("left", "right"))
    for given in rows:
        if not isinstance(given, (list, tuple)):
            raise ValueError(
                "from_segments: rows must be lists of segments, one list for each row;"
                f" got {quote(given)}. Wrap a single row: from_segments([[...]])."
            )
    placed = [_placed([_checked(s) for s in given], resume) for given in rows]
    length = max((row.shape[1] for row in placed), default=0)
    positions = torch.zeros(3, len(placed), length, dtype=torch.int64)
    for b, row in enumerate(placed):
        count = row.shape[1]
        first = length - count if padding == "left" else 0
        positions[:, b, first : first + count] = row
    return Multimodal(positions, _next(placed))


def from_token_types(
    types: Tensor,
    image_grids: Tensor | Sequence[Sequence[int]] | None = None,
    video_grids: Tensor | Sequence[Sequence[int]] | None = None,
    *,
    mask: Tensor | None = None,
    merge: int = 2,
    temporal_merge: int = 1,
    intervals: Tensor | Sequence[float] | None = None,
    frames: Literal["together", "apart"] = "together",
    resume: Resume = "largest",
) -> Multimodal:
    """Positions from what Hugging Face processors return.

    Args:
        types: mm_token_type_ids [B, T]: 0 text, 1 image, 2 video. From token ids:
            ``(ids == image_id) + 2 * (ids == video_id)``.
        image_grids: image_grid_thw, patches (t, h, w) of each image, row after row of the batch.
        video_grids: video_grid_thw, the same of each video.
        mask: attention mask [B, T], 1 keeps; padding may be on either side.
        merge: patches per token along rows and columns, the model's spatial_merge_size.
        temporal_merge: frames per token of a video, ERNIE's temporal_merge_size.
        intervals: positions between the time steps of each video, Qwen2.5-VL's
            ``tokens_per_second * second_per_grid_ts``; 1 by default. Cut to whole positions.
        frames: "together", a video is one grid (Qwen2-VL, Qwen2.5-VL); "apart", each frame is one,
            with a timestamp in the text before it (Qwen3-VL, GLM-4V).
        resume: where what follows an image or video starts: one past the "largest" position of it
            (the paper), or max(rows, columns) after its start, "side" (transformers 5).

    >>> import torch
    >>> found = from_token_types(torch.tensor([[0, 1, 1, 0]]), image_grids=[[1, 2, 4]])
    >>> found.positions[:, 0].tolist()
    [[0, 1, 1, 3], [0, 1, 1, 3], [0, 1, 2, 3]]
    """
    where = "from_token_types"
    _check_choice(where, "frames", frames, ("together", "apart"))
    _check_choice(where, "resume", resume, ("largest", "side"))
    keep = _kept(types, mask)
    for option, value in (("merge", merge), ("temporal_merge", temporal_merge)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{where}: {option} must be an int >= 1; got {quote(value)}.")
    waiting = {
        1: deque(_merged(image_grids, "image_grids", (1, merge, merge), None)),
        2: deque(_merged(video_grids, "video_grids", (temporal_merge, merge, merge), intervals)),
    }
    if frames == "apart":
        if intervals is not None:
            raise ValueError(
                f"{where}: intervals space the time steps of one grid, and frames='apart' makes a"
                " grid of each; leave one of them out."
            )
        waiting[2] = deque((1, h, w, s) for t, h, w, s in waiting[2] for _ in range(t))
    placed = []
    positions = torch.zeros(3, *types.shape, dtype=torch.int64, device=types.device)
    for b, kept in enumerate(keep):
        row = _placed(_segments(types[b, kept].tolist(), waiting, b), resume)
        positions[:, b, kept] = row.to(types.device)
        placed.append(row)
    for kind, left in waiting.items():
        if left:
            raise ValueError(
                f"{where}: {len(left)} {_WORDS[kind]} grids are left over after the last"
                f" {_WORDS[kind]} token (types {kind}); pass one grid for each {_WORDS[kind]}"
                " in the batch, row after row."
            )
    return Multimodal(positions, _next(placed).to(types.device))


def _placed(segments: Sequence[int | Cells], resume: Resume) -> Tensor:
    """Positions [3, T] of one sequence."""
    parts, start = [torch.zeros(3, 0, dtype=torch.int64)], 0
    for segment in segments:
        if isinstance(segment, int):
            parts.append(torch.arange(start, start + segment).expand(3, -1))
            start += segment
            continue
        t, h, w, interval = segment
        cells = grid(t, h, w)
        # Models were trained on times cut in float32.
        cells[0] = (cells[0] * torch.tensor(interval, dtype=torch.float32)).long()
        parts.append(cells + start)
        start += max(h, w) if resume == "side" else int(cells.max()) + 1
    return torch.cat(parts, dim=1)


def _next(placed: Sequence[Tensor]) -> Tensor:
    return torch.tensor([int(row.max()) + 1 if row.numel() else 0 for row in placed]).long()


def _segments(kinds: list[int], waiting: dict[int, deque[Cells]], b: int) -> list[int | Cells]:
    """Runs of one row's token types, each of vision tokens cut into the grids that fill it."""
    found: list[int | Cells] = []
    for kind, run in itertools.groupby(kinds):
        count = left = len(list(run))
        if not kind:
            found.append(count)
            continue
        while left:
            word = _WORDS[kind]
            if not waiting[kind]:
                raise ValueError(
                    f"from_token_types: row {b} has {left} {word} tokens more than {word}_grids"
                    " hold; pass one grid for each, row after row."
                )
            cells = waiting[kind].popleft()
            left -= math.prod(cells[:3])
            if left < 0:
                raise ValueError(
                    f"from_token_types: row {b} has a run of {count} {word} tokens, which its"
                    f" grids do not fill evenly: the last gives {cells[:3]} tokens. Check merge,"
                    " the order of the grids, and frames='apart' for models with timestamps."
                )
            found.append(cells)
    return found


def _merged(grids: Any, option: str, merge: tuple[int, int, int], intervals: Any) -> list[Cells]:
    """Grids of tokens from grids of patches."""
    for what, given in ((option, grids), ("intervals", intervals)):
        if isinstance(given, Tensor):
            check_storage(given, "from_token_types", what)
    listed = grids.tolist() if isinstance(grids, Tensor) else list(() if grids is None else grids)
    spaced = intervals.tolist() if isinstance(intervals, Tensor) else intervals
    if spaced is None:
        spaced = [1.0] * len(listed)
    if not isinstance(spaced, (list, tuple)) or len(spaced) != len(listed):
        raise ValueError(
            f"from_token_types: intervals must be numbers, one for each of the {len(listed)}"
            f" videos; got {quote(intervals)}."
        )
    merged: list[Cells] = []
    for sizes, interval in zip(listed, spaced, strict=True):
        if not isinstance(sizes, (list, tuple)) or len(sizes) != 3:
            raise ValueError(
                f"from_token_types: {option} must be [N, 3], (t, h, w) of each; got"
                f" {shorten(repr(grids))}."
            )
        if any(type(n) is not int or n < 1 or n % m for n, m in zip(sizes, merge, strict=True)):
            raise ValueError(
                f"from_token_types: {option} must count patches, positive multiples of {merge},"
                f" because that many make one token; got {tuple(sizes)}."
            )
        t, h, w = (n // m for n, m in zip(sizes, merge, strict=True))
        merged.append((t, h, w, _interval(interval, "from_token_types")))
    return merged


def _checked(segment: Any) -> int | Cells:
    if type(segment) is int and segment >= 0:
        return segment
    if isinstance(segment, (tuple, list)) and len(segment) in (3, 4):
        t, h, w, *rest = segment
        if all(type(n) is int and n >= 1 for n in (t, h, w)):
            return t, h, w, _interval(rest[0] if rest else 1.0, "from_segments")
    raise ValueError(
        "from_segments: a segment must be a number of text tokens, or (t, h, w) or"
        f" (t, h, w, interval) with positive ints; got {quote(segment)}."
    )


def _interval(given: Any, where: str) -> float:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 0 <= given <= 2**24:
        raise ValueError(f"{where}: an interval must be a number in 0 .. 2^24; got {quote(given)}.")
    return float(given)


def _kept(types: Any, mask: Any) -> Tensor:
    """Which tokens are no padding, [B, T]."""
    for what, given in (("types", types), ("mask", mask)):
        if isinstance(given, Tensor) and given.dim() == 2 and not given.is_floating_point():
            check_storage(given, "from_token_types", what)
            continue
        if what == "mask" and given is None:
            continue
        came = f"{given.dtype} {list(given.shape)}" if isinstance(given, Tensor) else repr(given)
        raise ValueError(
            f"from_token_types: {what} must be a tensor of integers [B, T]; got {came}."
        )
    keep = torch.ones_like(types, dtype=torch.bool) if mask is None else mask.bool()
    if keep.shape != types.shape:
        raise ValueError(
            f"from_token_types: mask must have the shape of types, {list(types.shape)};"
            f" got {list(keep.shape)}."
        )
    if bool(((types < 0) | (types > 2)).any()):
        raise ValueError(
            "from_token_types: types must be 0 (text), 1 (image) and 2 (video); got values from"
            f" {int(types.min())} to {int(types.max())}. Of token ids they are made by"
            " `(ids == image_id) + 2 * (ids == video_id)`."
        )
    return keep


def _check_choice(where: str, option: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        words = " or ".join(map(repr, known))
        raise ValueError(f"{where}: {option} must be {words}; got {quote(value)}.")
