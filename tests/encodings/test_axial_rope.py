"""AxialRoPE: a direct sum of rotations along axes, and the mixed variant."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import whorl


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def grid(*sizes: int) -> Tensor:
    return torch.stack(torch.meshgrid(*map(torch.arange, sizes), indexing="ij")).flatten(1)


def by_definition(
    x: Tensor, at: Tensor, axes: list[int], freqs: list[float], layout: str
) -> Tensor:
    """Every pair by itself, in float64; x [B, H, T, D], at [n, T]."""
    out, pairs = x.clone(), len(axes)
    for i in range(pairs):
        a, b = (i, i + pairs) if layout == "half" else (2 * i, 2 * i + 1)
        turn = at[axes[i]].double() * freqs[i]
        out[..., a] = x[..., a] * turn.cos() - x[..., b] * turn.sin()
        out[..., b] = x[..., b] * turn.cos() + x[..., a] * turn.sin()
    return out


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(
    ("options", "axes", "freqs"),
    [
        ({"base": 100.0}, [0, 0, 1, 1], [1.0, 0.1, 1.0, 0.1]),
        ({"base": 100.0, "order": "alternating"}, [0, 1, 0, 1], [1.0, 1.0, 0.1, 0.1]),
        ({"base": (100.0, 4.0)}, [0, 0, 1, 1], [1.0, 0.1, 1.0, 0.5]),
        ({"widths": (6, 2), "base": 1000.0}, [0, 0, 0, 1], [1.0, 0.1, 0.01, 1.0]),
        (
            {"widths": (2, 6), "base": 1000.0, "order": "alternating"},
            [0, 1, 1, 1],
            [1.0, 1.0, 0.1, 0.01],
        ),
        ({"widths": (0, 8), "base": 16.0, "fastest": 2.0}, [1, 1, 1, 1], [2.0, 1.0, 0.5, 0.25]),
        ({"base": 100.0, "fastest": (1.0, 3.0)}, [0, 0, 1, 1], [1.0, 0.1, 3.0, 0.3]),
        ({"inv_freq": [1.0, 2.0, 3.0, 0.5]}, [0, 0, 1, 1], [1.0, 2.0, 3.0, 0.5]),
    ],
)
def test_pairs_turn_along_their_axes(
    options: dict[str, Any], axes: list[int], freqs: list[float], layout: Any
) -> None:
    rope = whorl.AxialRoPE(8, layout=layout, **options)
    x, at = randn(2, 3, 6, 8), grid(2, 3)
    want = by_definition(x, at, axes, freqs, layout)
    torch.testing.assert_close(rope.rotate(x, at), want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        rope.frequencies().inv_freq, torch.tensor(freqs).double(), rtol=1e-7, atol=0
    )


@pytest.mark.parametrize("impl", ["native", "reference"])
@pytest.mark.parametrize(
    "layouts", [("half", None), ("half", "interleaved"), ("interleaved", "half")]
)
def test_an_axis_may_have_a_block_of_its_own(layouts: Any, impl: Any) -> None:
    """within="axis" is a RoPE on each block of channels."""
    layout, out_layout = layouts
    options = {"layout": layout, "out_layout": out_layout, "base": 50.0, "impl": impl}
    rope = whorl.AxialRoPE(
        22, axes=3, widths=(8, 0, 12), rotary_dim=20, rotary_start=1, within="axis", **options
    )
    x, at = randn(2, 3, 6, 22), torch.stack((*grid(2, 3), grid(3, 2)[0] + 0.5))
    want = x.clone()
    for axis, start, width in ((0, 1, 8), (2, 9, 12)):
        block = whorl.RoPE(22, rotary_start=start, rotary_dim=width, **options)
        rotated = block.rotate(x, at[axis])
        want[..., start : start + width] = rotated[..., start : start + width]
    got = rope.rotate(x, at)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(rope.rotate(got, at, inverse=True), x)
    torch.testing.assert_close(rope.rotate_(x.clone(), at), want)
    torch.testing.assert_close(rope.shift(got, 2), rope.rotate(x, at + 2))
    new = rope.frequencies()
    new = type(new)(new.inv_freq * 2)
    tuned = rope.retune(got, at, old=rope.frequencies(), new=new)
    torch.testing.assert_close(tuned, rope.rotate(x, torch.cat((at[:1] * 2, at[1:] * 2))))
    out = torch.full_like(x, math.nan)
    assert rope.rotate(x, at, out=out) is out
    torch.testing.assert_close(out, want)
    gap = torch.autograd.gradcheck(lambda x: rope.rotate(x, at), (x[:1, :1].requires_grad_(),))
    assert gap


def test_three_axes_and_every_way_to_give_positions() -> None:
    rope = whorl.AxialRoPE(24, axes=3)
    x, at = randn(2, 2, 12, 24).float(), grid(2, 2, 3)
    shared = rope.rotate(x, at)
    assert torch.equal(rope.rotate(x, at.double()), shared)
    assert torch.equal(rope.rotate(x, at.unsqueeze(1).expand(3, 2, 12)), shared)
    assert torch.equal(rope.rotate(x, at, offset=5), rope.rotate(x, at + 5))
    rows = rope.rotate(x, at, offset=torch.tensor([5, 7]))
    assert torch.equal(rows[1], rope.rotate(x, at + 7)[1])
    assert torch.equal(rope.rotate(rope.rotate(x.double(), at), at, inverse=True).float(), x)
    q, k = rope(x, x, at, at + 1)
    assert torch.equal(k, rope.rotate(x, at + 1))
    assert torch.equal(q, shared)
    far = rope.rotate(x, at + 5000)  # past the table
    assert torch.equal(far, whorl.AxialRoPE(24, axes=3, table="on_the_fly").rotate(x, at + 5000))


@pytest.mark.parametrize("impl", ["native", "reference"])
@pytest.mark.parametrize("order", ["blocks", "alternating"])
@pytest.mark.parametrize("axes", [4, 5, 7])
def test_axes_past_the_third(axes: int, order: Any, impl: Any) -> None:
    """Every axis counts, read from a table, past it, in fractions, in rows and with an offset."""
    rope = whorl.AxialRoPE(4 * axes, axes=axes, base=9.0, order=order, impl=impl)
    x = randn(2, 2, 6, 4 * axes)
    at = torch.randperm(6 * axes, generator=torch.Generator().manual_seed(1)).view(axes, 6)
    along = [a for a in range(axes) for _ in range(2)]
    freqs = [1.0, 1 / 3] * axes
    if order == "alternating":
        along, freqs = list(range(axes)) * 2, [1.0] * axes + [1 / 3] * axes
    rows = torch.stack((at, at.flip(0)), dim=1)  # [n, B, T], other ones in the second row
    for where in (at, at + 0.25, at + 100_000):
        want = by_definition(x, where, along, freqs, "half")
        torch.testing.assert_close(rope.rotate(x, where), want, rtol=0, atol=1e-9)
        single = rope.rotate(x.float(), where)  # float32 is read from the table, where it reaches
        torch.testing.assert_close(single.double(), want, rtol=0, atol=2e-6)
    want = torch.stack([by_definition(x[b], rows[:, b], along, freqs, "half") for b in range(2)])
    torch.testing.assert_close(rope.rotate(x, rows), want, rtol=0, atol=1e-12)
    torch.testing.assert_close(rope.rotate(x, at, offset=3), rope.rotate(x, at + 3))
    torch.testing.assert_close(rope.shift(rope.rotate(x, at), 3), rope.rotate(x, at + 3))
    q, k = rope(x, x, at, at + 1)
    torch.testing.assert_close(k, rope.rotate(x, at + 1))
    torch.testing.assert_close(q, rope.rotate(x, at))
    for axis in range(axes):  # no axis is left out, and none counts for another
        moved = rope.rotate(x, at + torch.eye(axes, dtype=torch.int64)[axis, :, None]) - q
        changed = moved.abs().amax((0, 1, 2))
        pairs = torch.tensor([a == axis for a in along]).repeat(2)
        assert torch.equal(changed > 1e-6, pairs)


def test_mixed_frequencies_past_the_third_axis() -> None:
    rope = whorl.AxialRoPE(16, axes=5, frequencies="mixed", num_kv_heads=2).double()
    assert rope.freqs.shape == (2, 5, 8)
    x, at = randn(1, 2, 6, 16), torch.arange(30).view(5, 6).flip(0)
    rotated = torch.einsum("nt,hnp->htp", at.double(), rope.freqs.detach())
    a, b = x.chunk(2, -1)
    want = torch.cat(
        (a * rotated.cos() - b * rotated.sin(), b * rotated.cos() + a * rotated.sin()), -1
    )
    torch.testing.assert_close(rope.rotate(x, at), want, rtol=0, atol=1e-12)


@given(
    st.integers(0, 2**31),
    st.sampled_from(["fixed", "mixed"]),
    st.tuples(st.integers(-50, 50), st.floats(-20, 20)),
)
def test_scores_depend_on_differences_only(
    seed: int, frequencies: Any, move: tuple[int, float]
) -> None:
    heads = 2 if frequencies == "mixed" else None
    torch.manual_seed(seed)
    rope = whorl.AxialRoPE(8, base=50.0, frequencies=frequencies, num_kv_heads=heads)
    q, k, at = randn(1, 4, 5, 8, seed=seed), randn(1, 2, 5, 8, seed=seed + 1), randn(2, 5) * 9
    keys = k.repeat_interleave(2, 1)
    scores = [
        rotated[0] @ rotated[1].repeat_interleave(2, 1).mT
        for rotated in (rope(q, k, at), rope(q, k, at + torch.tensor(move)[:, None]))
    ]
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-9, atol=1e-9)
    assert not torch.allclose(scores[0], q @ keys.mT)


def test_shift_moves_along_each_axis() -> None:
    for rope in (
        whorl.AxialRoPE(8, base=50.0),
        whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=2),
    ):
        k, at = randn(2, 2, 6, 8), grid(2, 3)
        rotated = rope.rotate(k, at)
        delta = torch.tensor([[1, 2], [3, 4]])  # [n, B]
        moved = rope.shift(rotated, delta)
        for row in range(2):
            want = rope.rotate(k[row : row + 1], at + delta[:, row : row + 1])
            torch.testing.assert_close(moved[row : row + 1], want)
        torch.testing.assert_close(rope.shift(rotated, 2), rope.rotate(k, at + 2))


def test_retune_takes_keys_to_other_frequencies() -> None:
    old, new = whorl.AxialRoPE(8, base=50.0), whorl.AxialRoPE(8, base=500.0)
    k, at = randn(1, 2, 6, 8), grid(2, 3)
    tuned = old.retune(old.rotate(k, at), at, old=old.frequencies(), new=new.frequencies())
    torch.testing.assert_close(tuned, new.rotate(k, at))


def test_mixed_frequencies_turn_every_pair_along_all_axes() -> None:
    rope = whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=2, layout="interleaved")
    q, at = randn(3, 4, 6, 8), grid(2, 3)
    rotated = rope.rotate(q, at)
    freqs = rope.freqs.detach().double()
    for head in range(4):
        for i in range(4):
            turn = (at.double() * freqs[head // 2, :, i, None]).sum(0)
            pair = torch.complex(q[:, head, :, 2 * i], q[:, head, :, 2 * i + 1])
            want = pair * torch.polar(torch.ones_like(turn), turn)
            torch.testing.assert_close(rotated[:, head, :, 2 * i], want.real)
            torch.testing.assert_close(rotated[:, head, :, 2 * i + 1], want.imag)
    by_row = rope.rotate(q, torch.stack((at, at + 1, at), 1))
    torch.testing.assert_close(by_row[0], rotated[0])
    torch.testing.assert_close(by_row[1], rope.rotate(q, at + 1)[1])
    cos, sin = rope.tables(at)
    assert cos.shape == (2, 6, 4)
    torch.testing.assert_close(cos**2 + sin**2, torch.ones_like(cos))
    q32 = q.float().transpose(1, 2).contiguous().transpose(1, 2)
    out = torch.full_like(q32, math.nan)
    assert rope.eval().requires_grad_(False).rotate(q32, at, out=out) is out
    torch.testing.assert_close(out, rotated.float())
    assert torch.equal(rope.rotate_(q32.clone(), at), out)


def test_mixed_frequencies_start_as_turned_ladders() -> None:
    rope = whorl.AxialRoPE(16, base=10.0, frequencies="mixed", num_kv_heads=3)
    size = rope.freqs.detach().norm(dim=1)  # [heads, pairs]
    ladder = 10.0 ** (-torch.arange(4) / 4)
    torch.testing.assert_close(size, ladder.repeat(2).expand(3, -1))
    first, second = rope.freqs.detach()[:, :, 0], rope.freqs.detach()[:, :, 4]
    torch.testing.assert_close((first * second).sum(1), torch.zeros(3), atol=1e-6, rtol=0)
    assert not torch.allclose(rope.freqs[0], rope.freqs[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axes": 1}, r"axes must be an int, at least 2; got 1\. For one axis use RoPE\."),
        ({"axes": 3}, r"16 channels do not split into 3 axes of whole pairs; pass widths="),
        ({"widths": (8, 6)}, r"widths must be 2 even numbers .* add up to 16; got \[8, 6\]"),
        ({"widths": (7, 9)}, r"widths must be 2 even numbers of channels"),
        ({"widths": (16,)}, r"widths must be 2 even numbers of channels"),
        ({"base": (1.0, 2.0, 3.0)}, r"base must be one number, or one for each of 2 axes; got \["),
        ({"base": (10.0, -1.0)}, r"base must be a finite number above 0; got -1\.0"),
        ({"base": "x"}, r"base must be a finite number above 0; got 'x'"),
        ({"order": "mixed"}, r"order must be 'blocks' or 'alternating'; got 'mixed'"),
        ({"frequencies": "trained"}, r"frequencies must be 'fixed' or 'mixed'; got 'trained'"),
        ({"fastest": 0}, r"fastest must be a finite number above 0; got 0"),
        ({"fastest": (1.0, 0.0)}, r"fastest must be a finite number above 0; got 0\.0"),
        (
            {"fastest": [1.0]},
            r"fastest must be one number, or one for each of 2 axes; got \[1\.0\]",
        ),
        ({"within": "block"}, r"within must be 'head' or 'axis'; got 'block'"),
        (
            {"within": "axis", "order": "alternating"},
            r"within='axis' lays out each axis in a block of its own, so it needs order='blocks'"
            r" and frequencies='fixed'; got 'alternating' and 'fixed'\. Leave within out",
        ),
        (
            {"within": "axis", "frequencies": "mixed", "num_kv_heads": 1},
            r"got 'blocks' and 'mixed'",
        ),
        ({"inv_freq": [1.0]}, r"inv_freq must hold 8 finite frequencies, one for each pair; got 1"),
        ({"frequencies": "mixed"}, r"num_kv_heads must be a positive int; got None"),
        (
            {"frequencies": "mixed", "num_kv_heads": 2, "widths": (8, 8)},
            r"widths and inv_freq have no meaning; leave them out",
        ),
    ],
)
def test_constructor_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="AxialRoPE: .*" + message):
        whorl.AxialRoPE(16, **options)


def test_call_errors() -> None:
    rope, q = whorl.AxialRoPE(8), torch.zeros(2, 2, 6, 8)
    with pytest.raises(
        ValueError, match=r"here \[2, T\] or \[2, B, T\].*got None\. whorl\.positions"
    ):
        rope(q, q)
    with pytest.raises(ValueError, match=r"AxialRoPE: positions must be \[n, T\].*got \[6\]"):
        rope(q, q, torch.arange(6))
    with pytest.raises(ValueError, match=r"got \[6\]"):
        rope(q, q, grid(2, 3), torch.arange(6))
    with pytest.raises(ValueError, match=r"n = 2 axes and T = 6; got \[3, 6\]\. Stack one row for"):
        rope(q, q, torch.zeros(3, 6, dtype=torch.long))
    with pytest.raises(ValueError, match=r"has 3 rows for each axis but the batch has 2; give one"):
        rope(q, q, torch.zeros(2, 3, 6, dtype=torch.long))
    with pytest.raises(ValueError, match=r"AxialRoPE\.tables: positions must be \[n, T\]"):
        rope.tables(torch.arange(6))
    with pytest.raises(
        ValueError, match=r"delta must be an int, \[n, B\] or \[n, B, S\], here \[2, 2\]"
    ):
        rope.shift(q, torch.zeros(3, 2))
    mixed = whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=4)
    with pytest.raises(
        ValueError, match=r"are for 4 key heads, so queries and keys must .*got 2\."
    ):
        mixed(q, q, grid(2, 3))
    with pytest.raises(ValueError, match=r"retune: mixed frequencies are trained, not scaled"):
        mixed.retune(q, grid(2, 3), old=rope.frequencies(), new=rope.frequencies())


def test_mixed_frequencies_start_in_every_direction() -> None:
    torch.manual_seed(0)
    first = whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=400).freqs.detach()
    turns = torch.stack((first[:, :, 0], first[:, :, 2]), -1)  # [heads, n, n]
    assert (torch.linalg.det(turns) > 0).all()  # rotations, no reflections
    assert 0.4 < (first[:, 0, 0] < 0).double().mean() < 0.6
    assert whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=1).config.base == 10.0
    assert whorl.AxialRoPE(8).config.base == 10_000.0


@pytest.mark.parametrize("heads", [1, 3, 4, 8])
def test_the_exam_asks_for_as_many_heads_as_there_are_frequencies(heads: int) -> None:
    rope = whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=heads)
    whorl.testing.check_encoding(rope, only=("dtype_kept", "chunks", "batch_rows"))


def test_what_belongs_to_mixed_frequencies_is_refused_elsewhere() -> None:
    with pytest.raises(ValueError, match=r"num_kv_heads belongs to frequencies='mixed', because"):
        whorl.AxialRoPE(8, num_kv_heads=2)
    mixed = whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=2)
    with pytest.raises(
        ValueError, match=r"describe: mixed frequencies have no wavelength of their"
    ):
        mixed.describe()
    assert mixed.frequencies().inv_freq.shape == (2, 2, 4)


def test_an_input_encoding_beside_it_takes_the_order_of_tokens_only() -> None:
    both = whorl.AxialRoPE(8) + whorl.Learned(16, max_length=9)
    x = torch.zeros(2, 6, 16)
    assert torch.equal(both.embed(x), both.embed(x, torch.arange(6)))
    with pytest.raises(ValueError, match=r"knows one axis, the order of the tokens, but positions"):
        both.embed(x, grid(2, 3))
