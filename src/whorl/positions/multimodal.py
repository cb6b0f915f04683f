"""Positions (t, h, w) of text mixed with images and videos, for MRoPE.

    text token     p = start, start + 1, ... on all three axes
    image, video   (start + floor(interval f), start + row, start + column), the column fastest
    next segment   starts one past the largest position so far

Wang et al. 2024, Qwen2-VL, section 2.1, https://arxiv.org/abs/2409.12191. The interval is from Bai
et al. 2025, Qwen2.5-VL, https://arxiv.org/abs/2502.13923: position ids per second times the seconds
between frames.

Different from transformers 5: there, the next segment starts max(rows, columns) after the start of
the image or video, so text can get positions inside a video of many frames. That is resume="side";
the two agree if no video has more time steps than rows or columns.
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

from .grids import check_choice, grid

__all__ = ["Multimodal", "ResumeRule", "Segment", "from_segments", "from_token_types"]

#: Number of text tokens, or the grid (t, h, w) or (t, h, w, interval) of an image or video.
Segment = int | tuple[int, int, int] | tuple[int, int, int, float]
ResumeRule = Literal["largest", "side"]
TokenGrid = tuple[int, int, int, float]

_KIND_NAMES = {1: "image", 2: "video"}


class Multimodal(NamedTuple):
    """Positions int64 [3, B, T], 0 on padding, and the next position of each row, [B].

    ``next_position`` is the ``offset`` of the first decoded token. Minus the number of tokens in
    the row, it is Hugging Face's mrope_position_delta.
    """

    positions: Tensor
    next_position: Tensor


def from_segments(
    rows: Sequence[Sequence[Segment]],
    *,
    resume: ResumeRule = "largest",
    padding: Literal["left", "right"] = "left",
) -> Multimodal:
    """Positions of sequences that are given as segments, one list of segments for each row.

    A segment is a number of text tokens, or the grid (t, h, w) of tokens of an image or video, or
    (t, h, w, interval) if time steps are not one position apart. ``resume`` is as for
    ``from_token_types``; ``padding`` is the side on which shorter rows are padded.

    >>> found = from_segments([[2, (1, 2, 2), 2]])  # text, an image of 2 x 2 tokens, text
    >>> found.positions[:, 0].tolist()
    [[0, 1, 2, 2, 2, 2, 4, 5], [0, 1, 2, 2, 3, 3, 4, 5], [0, 1, 2, 3, 2, 3, 4, 5]]
    >>> found.next_position.tolist()
    [6]
    """
    check_choice("from_segments", "resume", resume, ("largest", "side"))
    check_choice("from_segments", "padding", padding, ("left", "right"))
    for given in rows:
        if not isinstance(given, (list, tuple)):
            raise ValueError(
                "from_segments: rows must be lists of segments, one list for each row;"
                f" got {quote(given)}. Wrap a single row: from_segments([[...]])."
            )
    built = [_build_row_positions([_parse_segment(s) for s in given], resume) for given in rows]
    length = max((row.shape[1] for row in built), default=0)
    positions = torch.zeros(3, len(built), length, dtype=torch.int64)
    for b, row in enumerate(built):
        count = row.shape[1]
        first = length - count if padding == "left" else 0
        positions[:, b, first : first + count] = row
    return Multimodal(positions, _compute_next_positions(built))


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
    resume: ResumeRule = "largest",
) -> Multimodal:
    """Positions from the outputs of Hugging Face processors.

    Args:
        types: mm_token_type_ids [B, T]: 0 text, 1 image, 2 video. From token ids:
            ``(ids == image_id) + 2 * (ids == video_id)``.
        image_grids: image_grid_thw, patches (t, h, w) of each image, row after row of the batch.
        video_grids: video_grid_thw, the same for each video.
        mask: attention mask [B, T], 1 for real tokens; padding may be on either side.
        merge: patches per token along rows and columns, the model's spatial_merge_size.
        temporal_merge: frames per token of a video, ERNIE's temporal_merge_size.
        intervals: positions between the time steps of each video, Qwen2.5-VL's
            ``tokens_per_second * second_per_grid_ts``; 1 by default. Products are rounded down.
        frames: "together", a video is one grid (Qwen2-VL, Qwen2.5-VL); "apart", each frame is a
            grid, with a timestamp in the text before it (Qwen3-VL, GLM-4V).
        resume: where the segment after an image or video starts: "largest", one past its largest
            position (the paper), or "side", max(rows, columns) after its start (transformers 5).

    >>> import torch
    >>> found = from_token_types(torch.tensor([[0, 1, 1, 0]]), image_grids=[[1, 2, 4]])
    >>> found.positions[:, 0].tolist()
    [[0, 1, 1, 3], [0, 1, 1, 3], [0, 1, 2, 3]]
    """
    where = "from_token_types"
    check_choice(where, "frames", frames, ("together", "apart"))
    check_choice(where, "resume", resume, ("largest", "side"))
    real_tokens = _find_real_tokens(types, mask)
    for option, value in (("merge", merge), ("temporal_merge", temporal_merge)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{where}: {option} must be an int >= 1; got {quote(value)}.")
    grids = {
        1: deque(_merge_patches(image_grids, "image_grids", (1, merge, merge), None)),
        2: deque(
            _merge_patches(video_grids, "video_grids", (temporal_merge, merge, merge), intervals)
        ),
    }
    if frames == "apart":
        if intervals is not None:
            raise ValueError(
                f"{where}: intervals are between the time steps of one grid, and frames='apart'"
                " makes a grid of each time step; leave one of the two out."
            )
        grids[2] = deque((1, h, w, s) for t, h, w, s in grids[2] for _ in range(t))
    built = []
    positions = torch.zeros(3, *types.shape, dtype=torch.int64, device=types.device)
    for b, real in enumerate(real_tokens):
        segments = _split_into_segments(types[b, real].tolist(), grids, b)
        row = _build_row_positions(segments, resume)
        positions[:, b, real] = row.to(types.device)
        built.append(row)
    for kind, left in grids.items():
        if left:
            name = _KIND_NAMES[kind]
            raise ValueError(
                f"{where}: {len(left)} {name} grids are left over after the last {name} token"
                f" (types {kind}); pass one grid for each {name} in the batch, row after row."
            )
    return Multimodal(positions, _compute_next_positions(built).to(types.device))


def _build_row_positions(segments: Sequence[int | TokenGrid], resume: ResumeRule) -> Tensor:
    """Positions [3, T] of one sequence."""
    parts, start = [torch.zeros(3, 0, dtype=torch.int64)], 0
    for segment in segments:
        if isinstance(segment, int):
            parts.append(torch.arange(start, start + segment).expand(3, -1))
            start += segment
            continue
        t, h, w, interval = segment
        cells = grid(t, h, w)
        # Models were trained on times that were rounded down in float32.
        cells[0] = (cells[0] * torch.tensor(interval, dtype=torch.float32)).long()
        parts.append(cells + start)
        start += max(h, w) if resume == "side" else int(cells.max()) + 1
    return torch.cat(parts, dim=1)


def _compute_next_positions(rows: Sequence[Tensor]) -> Tensor:
    """One past the largest position of each row, [B]."""
    return torch.tensor([int(row.max()) + 1 if row.numel() else 0 for row in rows]).long()


def _split_into_segments(
    kinds: list[int], grids: dict[int, deque[TokenGrid]], b: int
) -> list[int | TokenGrid]:
    """Segments of one row: runs of text tokens, and the grids that fill the runs of vision tokens.

    grids: those that are left for each token type; the ones used are removed.
    """
    found: list[int | TokenGrid] = []
    for kind, run in itertools.groupby(kinds):
        count = left = len(list(run))
        if not kind:
            found.append(count)
            continue
        while left:
            word = _KIND_NAMES[kind]
            if not grids[kind]:
                raise ValueError(
                    f"from_token_types: row {b} has {left} {word} tokens more than {word}_grids"
                    " hold; pass one grid for each, row after row."
                )
            cells = grids[kind].popleft()
            left -= math.prod(cells[:3])
            if left < 0:
                raise ValueError(
                    f"from_token_types: row {b} has a run of {count} {word} tokens, which its"
                    f" grids do not fill exactly: the last has {cells[:3]} tokens. Check merge,"
                    " the order of the grids, and frames='apart' for models with timestamps."
                )
            found.append(cells)
    return found


def _merge_patches(
    grids: Any, option: str, merge: tuple[int, int, int], intervals: Any
) -> list[TokenGrid]:
    """Grids of tokens from grids of patches, with the interval of each."""
    for what, given in ((option, grids), ("intervals", intervals)):
        if isinstance(given, Tensor):
            check_storage(given, "from_token_types", what)
    listed = grids.tolist() if isinstance(grids, Tensor) else list(() if grids is None else grids)
    steps = intervals.tolist() if isinstance(intervals, Tensor) else intervals
    if steps is None:
        steps = [1.0] * len(listed)
    if not isinstance(steps, (list, tuple)) or len(steps) != len(listed):
        raise ValueError(
            f"from_token_types: intervals must be numbers, one for each of the {len(listed)}"
            f" videos; got {quote(intervals)}."
        )
    merged: list[TokenGrid] = []
    for sizes, interval in zip(listed, steps, strict=True):
        if not isinstance(sizes, (list, tuple)) or len(sizes) != 3:
            raise ValueError(
                f"from_token_types: {option} must be [N, 3], (t, h, w) of each; got"
                f" {shorten(repr(grids))}."
            )
        if any(type(n) is not int or n < 1 or n % m for n, m in zip(sizes, merge, strict=True)):
            raise ValueError(
                f"from_token_types: {option} must be numbers of patches, positive multiples of"
                f" {merge}, because that many patches make one token; got {tuple(sizes)}."
            )
        t, h, w = (n // m for n, m in zip(sizes, merge, strict=True))
        merged.append((t, h, w, _check_interval(interval, "from_token_types")))
    return merged


def _parse_segment(segment: Any) -> int | TokenGrid:
    if type(segment) is int and segment >= 0:
        return segment
    if isinstance(segment, (tuple, list)) and len(segment) in (3, 4):
        t, h, w, *rest = segment
        if all(type(n) is int and n >= 1 for n in (t, h, w)):
            return t, h, w, _check_interval(rest[0] if rest else 1.0, "from_segments")
    raise ValueError(
        "from_segments: a segment must be a number of text tokens, or (t, h, w) or"
        f" (t, h, w, interval) with positive ints; got {quote(segment)}."
    )


def _check_interval(given: Any, where: str) -> float:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 0 <= given <= 2**24:
        raise ValueError(f"{where}: an interval must be a number in 0 .. 2^24; got {quote(given)}.")
    return float(given)


def _find_real_tokens(types: Any, mask: Any) -> Tensor:
    """Whether each token is real, not padding: bool [B, T]."""
    for what, given in (("types", types), ("mask", mask)):
        if isinstance(given, Tensor) and given.dim() == 2 and not given.is_floating_point():
            check_storage(given, "from_token_types", what)
            continue
        if what == "mask" and given is None:
            continue
        came = f"{given.dtype} {list(given.shape)}" if isinstance(given, Tensor) else quote(given)
        raise ValueError(
            f"from_token_types: {what} must be a tensor of integers [B, T]; got {came}."
        )
    real = torch.ones_like(types, dtype=torch.bool) if mask is None else mask.bool()
    if real.shape != types.shape:
        raise ValueError(
            f"from_token_types: mask must have the shape of types, {list(types.shape)};"
            f" got {list(real.shape)}."
        )
    if bool(((types < 0) | (types > 2)).any()):
        raise ValueError(
            "from_token_types: types must be 0 (text), 1 (image) and 2 (video); got values from"
            f" {int(types.min())} to {int(types.max())}. Make them from token ids by"
            " `(ids == image_id) + 2 * (ids == video_id)`."
        )
    return real
