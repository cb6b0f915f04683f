"""Positions of text mixed with images and videos."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whorl.positions import from_segments, from_token_types

TEXT = st.integers(0, 4)
GRID = st.tuples(*[st.integers(1, 4)] * 3)
SPACED = st.tuples(*[st.integers(1, 4)] * 3, st.sampled_from((0.0, 0.3, 1.0, 2.5, 50.0)))
ROWS = st.lists(st.lists(TEXT | GRID | SPACED, max_size=5), min_size=1, max_size=3)


def by_loop(segments: list[Any], resume: str) -> tuple[list[list[int]], int]:
    """The definition, token by token: positions of each, and the next."""
    out: list[list[int]] = []
    start = 0
    for segment in segments:
        if isinstance(segment, int):
            out += [[start + n] * 3 for n in range(segment)]
            start += segment
            continue
        t, h, w, *rest = segment
        apart = rest[0] if rest else 1.0
        cells = [
            [start + int(f * apart), start + r, start + c]
            for f in range(t)
            for r in range(h)
            for c in range(w)
        ]
        out += cells
        start = start + max(h, w) if resume == "side" else max(map(max, cells)) + 1
    return out, max(map(max, out), default=-1) + 1


@given(rows=ROWS, resume=st.sampled_from(("largest", "side")), left=st.booleans())
@settings(max_examples=150)
def test_segments_are_placed_by_the_definition(rows: Any, resume: Any, left: bool) -> None:
    found = from_segments(rows, resume=resume, padding="left" if left else "right")
    assert found.positions.dtype == found.next_position.dtype == torch.int64
    for b, row in enumerate(rows):
        want, following = by_loop(row, resume)
        got = found.positions[:, b].T.tolist()
        pad = [[0, 0, 0]] * (len(got) - len(want))
        assert got == (pad + want if left else want + pad)
        assert int(found.next_position[b]) == following


@given(rows=ROWS, merge=st.integers(1, 3), boolean=st.booleans())
@settings(max_examples=100)
def test_token_types_give_what_their_segments_give(rows: Any, merge: int, boolean: bool) -> None:
    """Images and videos may follow each other without text between."""
    types: list[list[int]] = []
    grids: dict[int, list[Any]] = {1: [], 2: []}
    for row in rows:
        types.append([])
        for n, segment in enumerate(row):
            if isinstance(segment, int):
                types[-1] += [0] * segment
                continue
            if len(segment) == 3:
                row[n] = segment = (1, *segment[1:])  # an image
            t, h, w, *rest = segment
            kind = 2 if rest else 1
            types[-1] += [kind] * (t * h * w)
            grids[kind].append((t, h * merge, w * merge, *rest))
    length = max(map(len, types))
    pads = [length - len(row) for row in types]
    ids, mask = torch.zeros(2, len(rows), length, dtype=torch.long)
    for b, row in enumerate(types):
        ids[b, pads[b] :] = torch.tensor(row)
        mask[b, pads[b] :] = 1
    got = from_token_types(
        ids,
        torch.tensor(grids[1]) if grids[1] else None,
        [video[:3] for video in grids[2]],
        mask=mask.bool() if boolean else mask,
        merge=merge,
        intervals=[video[3] for video in grids[2]],
    )
    want = from_segments(rows)
    assert torch.equal(got.positions, want.positions)
    assert torch.equal(got.next_position, want.next_position)


def test_text_after_a_long_video() -> None:
    """After a video of 4 steps of 2 x 2, the paper goes on at 4, transformers 5 inside it at 2."""
    paper = from_segments([[(4, 2, 2), 1]])
    peer = from_segments([[(4, 2, 2), 1]], resume="side")
    assert paper.positions[:, 0, -1].tolist() == [4, 4, 4]
    assert peer.positions[:, 0, -1].tolist() == [2, 2, 2]
    assert paper.next_position.tolist() == [5]
    assert peer.next_position.tolist() == [4]  # one past the largest, as it decodes


def test_frames_apart_stand_at_their_timestamps() -> None:
    types = torch.tensor([[0, 2, 2, 0, 0, 2, 2, 0]])
    found = from_token_types(types, video_grids=[[2, 2, 4]], frames="apart")
    want = from_segments([[1, (1, 1, 2), 2, (1, 1, 2), 1]])
    assert torch.equal(found.positions, want.positions)


def test_text_alone_and_nothing_at_all() -> None:
    mask = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 0]])
    found = from_token_types(torch.zeros_like(mask), mask=mask)
    assert found.positions[0].tolist() == [[0, 0, 1], [0, 1, 2], [0, 0, 0]]
    assert found.next_position.tolist() == [2, 3, 0]
    assert from_segments([]).positions.shape == (3, 0, 0)
    assert from_segments([[]]).next_position.tolist() == [0]


ONE_IMAGE = torch.tensor([[0, 1, 1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: from_token_types(ONE_IMAGE),
            r"row 0 has 4 image tokens more than image_grids hold; pass one grid for each",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, [[1, 4, 6]]),
            r"row 0 has a run of 4 image tokens, which its grids do not fill exactly: the last has"
            r" \(1, 2, 3\) tokens\. Check merge",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, [[1, 4, 4]] * 3),
            r"2 image grids are left over after the last image token \(types 1\); pass one grid",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, [[1, 4, 4]], [[1, 2, 2]]),
            r"1 video grids are left over after the last video token",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, [[1, 4, 5]]),
            r"image_grids must be numbers of patches, positive multiples of \(1, 2, 2\),"
            r" because that many patches make one token; got \(1, 4, 5\)",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, torch.tensor([1, 4, 4])),
            r"image_grids must be \[N, 3\], \(t, h, w\) of each; got tensor\(\[1, 4, 4\]\)",
        ),
        (
            lambda: from_token_types(2 * ONE_IMAGE, None, [[3, 2, 2]], temporal_merge=2),
            r"video_grids must be numbers of patches, positive multiples of \(2, 2, 2\)",
        ),
        (
            lambda: from_token_types(2 * ONE_IMAGE, None, [[1, 4, 4]], intervals=[1.0, 2.0]),
            r"intervals must be numbers, one for each of the 1 videos; got \[1\.0, 2\.0\]",
        ),
        (
            lambda: from_token_types(2 * ONE_IMAGE, None, [[1, 4, 4]], intervals=[-1.0]),
            r"from_token_types: an interval must be a number in 0 \.\. 2\^24; got -1\.0",
        ),
        (
            lambda: from_token_types(
                2 * ONE_IMAGE, None, [[1, 4, 4]], intervals=[2.0], frames="apart"
            ),
            r"intervals are between the time steps of one grid, and frames='apart' makes a grid of",
        ),
        (lambda: from_token_types(ONE_IMAGE, merge=0), r"merge must be an int >= 1; got 0"),
        (
            lambda: from_token_types(ONE_IMAGE, temporal_merge=1.0),  # type: ignore[arg-type]
            r"temporal_merge must be an int >= 1; got 1\.0",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, frames="some"),  # type: ignore[arg-type]
            r"frames must be 'together' or 'apart'; got 'some'",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, resume="last"),  # type: ignore[arg-type]
            r"from_token_types: resume must be 'largest' or 'side'; got 'last'",
        ),
        (
            lambda: from_token_types(ONE_IMAGE[0]),
            r"types must be a tensor of integers \[B, T\]; got torch\.int64 \[6\]",
        ),
        (
            lambda: from_token_types([[0, 1]]),  # type: ignore[arg-type]
            r"types must be a tensor of integers \[B, T\]; got \[\[0, 1\]\]",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, mask=torch.ones(1, 6)),
            r"mask must be a tensor of integers \[B, T\]; got torch\.float32 \[1, 6\]",
        ),
        (
            lambda: from_token_types(ONE_IMAGE, mask=torch.ones(1, 5).bool()),
            r"mask must have the shape of types, \[1, 6\]; got \[1, 5\]",
        ),
        (
            lambda: from_token_types(torch.tensor([[0, 151655]])),
            r"must be 0 \(text\), 1 \(image\) and 2 \(video\); got values from 0 to 151655\. Make",
        ),
        (
            lambda: from_segments([3, (1, 2, 2)]),  # type: ignore[list-item]
            r"from_segments: rows must be lists of segments, one list for each row; got 3",
        ),
        (
            lambda: from_segments([[-1]]),
            r"a segment must be a number of text tokens, or \(t, h, w\).*got -1",
        ),
        (
            lambda: from_segments([[(1, 0, 2)]]),
            r"\(t, h, w, interval\) with positive ints; got \(1, 0, 2\)",
        ),
        (
            lambda: from_segments([[(1, 2, 2, float("inf"))]]),
            r"from_segments: an interval must be a number in 0 \.\. 2\^24; got inf",
        ),
        (
            lambda: from_segments([[1]], padding="both"),  # type: ignore[arg-type]
            r"padding must be 'left' or 'right'; got 'both'",
        ),
        (
            lambda: from_segments([[1]], resume="last"),  # type: ignore[arg-type]
            r"from_segments: resume must be 'largest' or 'side'; got 'last'",
        ),
    ],
)
def test_bad_input_says_what_to_do(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
