"""MRoPE turns each pair by its own axis, and is RoPE on text."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.encodings import MRoPE
from whorl.encodings.mrope import MRoPEConfig

from .rotations import DTYPES, IMPLS, LAYOUTS, random

ORDERS: list[dict[str, Any]] = [
    {"sections": (2, 3, 3)},
    {"sections": (4, 2, 2), "order": "interleaved"},
    {"sections": (3, 3, 2), "order": "alternating", "axes": (1, 2, 0)},
]


#: More axes than text, rows and columns.
MANY: list[dict[str, Any]] = [
    {"sections": (1, 2, 2, 3)},
    {"sections": (3, 1, 2, 2), "axes": (3, 1, 0, 2)},
    {"sections": (1, 2, 1, 2, 2)},
]


def grids(*shape: int, most: int = 5000, seed: int = 0) -> Tensor:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed))


def by_loop(
    x: Tensor, positions: Tensor, axes: tuple[int, ...], base: float, layout: str
) -> Tensor:
    """The definition, one number at a time; x [B, H, T, R], positions [3, B, T]."""
    out, pairs = x.clone(), len(axes)
    for b, h, t, i in torch.cartesian_prod(*map(torch.arange, (*x.shape[:3], pairs))).tolist():
        angle = int(positions[axes[i], b, t]) * base ** (-i / pairs)
        one, two = (i, i + pairs) if layout == "half" else (2 * i, 2 * i + 1)
        a, c = float(x[b, h, t, one]), float(x[b, h, t, two])
        out[b, h, t, one] = a * math.cos(angle) - c * math.sin(angle)
        out[b, h, t, two] = c * math.cos(angle) + a * math.sin(angle)
    return out


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", [*ORDERS, *MANY], ids=str)
def test_rotation_is_the_definition(
    options: dict[str, Any], layout: whorl.Layout, impl: whorl.Impl
) -> None:
    mrope = MRoPE(16, base=100.0, layout=layout, impl=impl, table_length=100, **options)
    x = random(2, 2, 5, 16)
    for most in (90, 5000):  # inside the table and past it
        positions = grids(mrope.config.num_axes, 2, 5, most=most)
        want = by_loop(x, positions, mrope.config.pair_axes, 100.0, layout)
        torch.testing.assert_close(mrope.rotate(x, positions), want, rtol=0, atol=1e-9)
        single = mrope.rotate(x.float(), positions)
        torch.testing.assert_close(single.double(), want, rtol=0, atol=2e-6)


@pytest.mark.parametrize("options", [*ORDERS, *MANY], ids=str)
def test_text_is_rope_with_any_number_of_axes(options: dict[str, Any]) -> None:
    """Positions that are the same on all axes, however they are given."""
    mrope, rope = MRoPE(16, base=100.0, **options), whorl.RoPE(16, base=100.0)
    x, at, rows = random(2, 2, 5, 16), torch.arange(5) + 7, torch.tensor([7, 3])
    want = rope.rotate(x, at)
    for got in (
        mrope.rotate(x, offset=7),
        mrope.rotate(x, at),
        mrope.rotate(x, at.expand(mrope.position_axes, 5)),
        mrope.rotate(x, at - 7, offset=7),
    ):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    for step in (x, x[:, :, :1]):  # a whole text, and a decode step
        got = mrope.rotate(step, offset=rows)
        torch.testing.assert_close(got, rope.rotate(step, offset=rows), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "drawn"),
    [
        ({"sections": (4, 6, 6)}, "tttthhhhhhwwwwww"),
        ({"sections": (6, 4, 4), "order": "interleaved"}, "thwthwthwthwtt"),
        ({"sections": (11, 11, 10), "order": "interleaved"}, "thw" * 10 + "th"),
        ({"sections": (5, 5, 4), "order": "alternating", "axes": (1, 2, 0)}, "hwhwhwhwhwtttt"),
        ({"sections": (1, 1, 2, 1), "axes": (0, 1, 2, 0)}, "thwwt"),
        ({"sections": (3, 2), "order": "interleaved"}, "ththt"),
        ({"sections": (5, 0, 0)}, "ttttt"),
    ],
)
def test_axes_of_the_pairs(options: dict[str, Any], drawn: str) -> None:
    config = MRoPEConfig(2 * len(drawn), **options)
    assert "".join("thw"[axis] for axis in config.pair_axes) == drawn
    assert MRoPE(2 * len(drawn), **options).position_axes == (2 if len(config.sections) == 2 else 3)


@given(st.tuples(*[st.integers(0, 8)] * 3).filter(any))
def test_interleaved_gives_every_axis_its_pairs_or_refuses(sections: tuple[int, int, int]) -> None:
    pairs, (_, h, w) = sum(sections), sections
    if 3 * h - 2 < pairs and 3 * w - 1 < pairs:  # the last pairs of h and w exist
        axes = MRoPEConfig(2 * pairs, sections=sections, order="interleaved").pair_axes
        assert tuple(axes.count(n) for n in range(3)) == sections
        assert [n for n in axes if n] == [j % 3 for j in range(pairs) if j % 3 and axes[j]]
    else:
        with pytest.raises(ValueError, match=r"order='interleaved' cannot give sections"):
            MRoPEConfig(2 * pairs, sections=sections, order="interleaved")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_text_is_rope_bit_for_bit(options: dict[str, Any], dtype: torch.dtype) -> None:
    mrope, rope = MRoPE(16, **options), whorl.RoPE(16)
    q, k = random(2, 4, 6, 16, dtype=dtype), random(2, 2, 6, 16, dtype=dtype, seed=1)
    for offset in (0, 4090, 70_000):
        steps = torch.arange(6) + offset
        want = rope(q, k, steps)
        for positions in (steps, steps.expand(3, 6), steps.expand(3, 2, 6), steps.expand(3, 1, 6)):
            got = mrope(q, k, positions)
            assert all(map(torch.equal, got, want))
        assert all(map(torch.equal, mrope(q, k, offset=offset), want))
    starts = torch.tensor([3, 4093])
    assert torch.equal(mrope.rotate(q, offset=starts), rope.rotate(q, offset=starts))


@given(move=st.tuples(*[st.integers(-3000, 3000)] * 3), options=st.sampled_from(ORDERS))
@settings(max_examples=40)
def test_scores_depend_on_differences_on_each_axis(
    move: tuple[int, int, int], options: dict[str, Any]
) -> None:
    mrope = MRoPE(16, **options)
    q, k = random(1, 1, 4, 16), random(1, 1, 4, 16, seed=1)
    at, keys_at = grids(3, 4), grids(3, 4, seed=1)
    apart = torch.tensor(move)[:, None]
    near_q, near_k = mrope(q, k, at, keys_at)
    far_q, far_k = mrope(q, k, at + apart, keys_at + apart)
    torch.testing.assert_close(near_q @ near_k.mT, far_q @ far_k.mT, rtol=0, atol=1e-9)
    torch.testing.assert_close(far_q.norm(dim=-1), q.norm(dim=-1))
    torch.testing.assert_close(mrope.rotate(far_q, at + apart, inverse=True), q)


@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_shift_moves_keys_along_every_axis(options: dict[str, Any]) -> None:
    mrope, k, at = MRoPE(16, **options), random(2, 2, 4, 16), grids(3, 2, 4)
    rotated = mrope.rotate(k, at)
    deltas: list[tuple[int | float | Tensor, Tensor | float]] = [
        (5, 5),  # on all axes
        (2.5, 2.5),
        (torch.tensor([1, -2, 7]), torch.tensor([1, -2, 7])[:, None, None]),
        (grids(3, 2), grids(3, 2)[:, :, None]),
        (grids(3, 2, 1), grids(3, 2, 1)),
        (grids(3, 2, 4, seed=2), grids(3, 2, 4, seed=2)),
    ]
    for delta, added in deltas:
        moved = mrope.shift(rotated, delta)  # type: ignore[arg-type]
        torch.testing.assert_close(moved, mrope.rotate(k, at + added), rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match=r"MRoPE\.shift: delta must be an int, \[n, B\] or \[n, B"):
        mrope.shift(rotated, torch.zeros(2, 4))


def test_retune_and_tables_follow_the_axes() -> None:
    mrope = MRoPE(16, sections=(2, 3, 3), scaling=whorl.DynamicNTK(2.0, original_context=8))
    k, at = random(2, 2, 5, 16), grids(3, 2, 5, most=40)
    old, new = mrope.frequencies(8), mrope.frequencies(40)
    retuned = mrope.retune(mrope.rotate(k, at, context_length=8), at, old=old, new=new)
    torch.testing.assert_close(retuned, mrope.rotate(k, at, context_length=40))
    plain = MRoPE(16, sections=(2, 3, 3))
    for shape in ((3, 5), (3, 2, 5), (3, 1, 5)):
        cos, sin = plain.tables(at.flatten()[: math.prod(shape)].view(shape))
        assert cos.shape == sin.shape == (*shape[1:], 8)
    assert torch.equal(plain.tables(torch.arange(5))[0], whorl.RoPE(16).tables(torch.arange(5))[0])


def test_length_is_the_largest_position_of_each_row_on_any_axis() -> None:
    mrope = MRoPE(16, sections=(2, 3, 3), scaling=whorl.DynamicNTK(2.0, original_context=8))
    x, at = random(2, 1, 6, 16), torch.arange(6).expand(3, 2, 6).clone()
    at[1, 1, 3] = 50
    both = mrope.rotate(x, at)
    assert torch.equal(both[:1], whorl.RoPE(16).rotate(x[:1]))
    assert torch.equal(both[1:], mrope.rotate(x[1:], at[:, 1:], context_length=51))
    assert torch.equal(both[1:], mrope.rotate(x[1:], at[:, 1]))


def test_decoding_goes_on_where_the_prompt_ends() -> None:
    mrope = MRoPE(16, sections=(4, 2, 2), order="interleaved")
    prompts: list[list[Any]] = [[2, (1, 3, 2), 3], [4, (2, 1, 2)]]
    whole = whorl.positions.from_segments([[*prompts[0], 2], [*prompts[1], 2]])
    prompt = whorl.positions.from_segments(prompts)
    x = random(2, 2, whole.positions.shape[2], 16)
    want = mrope.rotate(x, whole.positions)
    length = prompt.positions.shape[2]
    assert torch.equal(mrope.rotate(x[:, :, :length], prompt.positions), want[:, :, :length])
    for step in range(2):
        token = x[:, :, length + step : length + step + 1]
        got = mrope.rotate(token, offset=prompt.next_position + step)
        assert torch.equal(got, want[:, :, length + step : length + step + 1])


def test_results_do_not_depend_on_the_table() -> None:
    x, at = random(2, 2, 9, 16, dtype=torch.float32), grids(3, 2, 9, most=200)
    strategies: list[tuple[Any, int]] = [("on_the_fly", 0), ("hybrid", 50), ("precomputed", 200)]
    results = [
        MRoPE(16, sections=(2, 3, 3), table=table, table_length=n).rotate(x, at)
        for table, n in strategies
    ]
    assert all(torch.equal(one, results[0]) for one in results[1:])


def test_gradients_reach_inputs_and_fractional_positions() -> None:
    mrope = MRoPE(8, sections=(2, 1, 1))
    x = random(1, 1, 3, 8).requires_grad_()
    at = grids(3, 3, most=9).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, at: mrope.rotate(x, at), (x, at))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"head_dim": 64, "sections": (16, 24, 24)},
            r"add up to R/2 = 32, because every pair rotates by one axis; got \(16, 24, 24\), 64",
        ),
        ({"sections": (4, 6, 5)}, r"15 in all\. Pass the model's mrope_section, or rotary_dim=30"),
        ({"sections": (8, 12, 12)}, r"32 in all\. If these count channels, halve them"),
        ({"sections": (16,)}, r"sections must be at least 2.*got \(16,\)\. For one axis use RoPE"),
        ({"sections": 16}, r"sections must be ints >= 0, one for each section; got 16"),
        ({"sections": (8.0, 8)}, r"sections must be ints >= 0, one for each section; got \(8\.0"),
        ({"sections": (20, -4)}, r"sections must be ints >= 0, one for each section; got \(20, -4"),
        (
            {"sections": (4, 6, 6), "order": "interleaved"},
            r"order='interleaved' cannot give sections \(4, 6, 6\), because pairs go to the"
            r" sections one by one, and the rest to the first: it would give \(6, 5, 5\)",
        ),
        (
            {"sections": (4, 6, 6), "order": "alternating"},
            r"because pairs go one by one to all sections but the last: it would give \(5, 5, 6\)\."
            r" Pass those, or order='chunked'",
        ),
        ({"order": "mixed"}, r"order must be 'chunked' or 'interleaved' or 'alternating'; got 'mi"),
        ({"axes": (0, 1)}, r"axes must name the axis of each of the 3 sections \(4, 6, 6\); got"),
        ({"axes": (0, 1, 3)}, r"axes must use every axis from 0 on.*got \(0, 1, 3\)\. Leave none"),
        ({"axes": (0, 0, 0)}, r"at least 2 of them; got \(0, 0, 0\)"),
        ({"axes": "thw"}, r"axes must be ints >= 0, one for each section; got 'thw'"),
        ({"base": (1.0, 2.0)}, r"MRoPE: base must be a finite number above 0; got \(1\.0, 2\.0\)"),
        ({"head_dim": 31}, r"MRoPE: head_dim must be even"),
    ],
)
def test_bad_options_say_what_to_do(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MRoPE(**{"head_dim": 32, "sections": (4, 6, 6), **options})


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (torch.zeros(2, 5, dtype=torch.long), r"\[n, T\] or \[n, B, T\] with n = 3 axes and T = 5"),
        (torch.zeros(3, 4, dtype=torch.long), r"MRoPE: positions must be \[n, T\].*got \[3, 4\]"),
        (torch.zeros(3, 3, 5, dtype=torch.long), r"3 rows for each axis but the batch has 2"),
        (torch.zeros(4, dtype=torch.long), r"got \[4\]\. Stack one row for each axis"),
    ],
)
def test_positions_need_a_row_for_each_axis(positions: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MRoPE(8, sections=(2, 1, 1)).rotate(torch.zeros(2, 1, 5, 8), positions)


def test_a_precomputed_table_holds_every_axis() -> None:
    mrope = MRoPE(8, sections=(2, 1, 1), table="precomputed", table_length=10)
    at = torch.zeros(3, 2, dtype=torch.long)
    at[2, 1] = 10
    with pytest.raises(ValueError, match=r"positions reach from 0 to 10, but the precomputed tab"):
        mrope.rotate(torch.zeros(1, 1, 2, 8), at)


def test_options_round_trip_through_json() -> None:
    mrope = MRoPE(16, sections=[3, 3, 2], order="alternating", axes=[1, 2, 0])
    again = whorl.from_dict(mrope.to_dict())
    assert repr(again) == repr(mrope)
    assert isinstance(again, MRoPE)
    assert again.config == mrope.config
    assert not mrope.state_dict()
