"""RoPE does what its definition says, through every door of its interface."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import whorl
from whorl.kernels import reference

from .rotations import DTYPES, IMPLS, LAYOUTS, oracle, random


@given(
    layout=st.sampled_from(LAYOUTS),
    pairs=st.integers(1, 20),
    rest=st.integers(0, 5),
    length=st.integers(0, 7),
    base=st.floats(1.5, 1e7),
    offset=st.integers(-50, 100_000),
    impl=st.sampled_from(IMPLS),
)
@settings(max_examples=150)
def test_rotation_is_the_definition(
    layout: whorl.Layout,
    pairs: int,
    rest: int,
    length: int,
    base: float,
    offset: int,
    impl: whorl.Impl,
) -> None:
    rope = whorl.RoPE(2 * pairs + rest, base=base, layout=layout, rotary_dim=2 * pairs, impl=impl)
    x = random(2, 3, length, 2 * pairs + rest)
    want = oracle(x, torch.arange(length) + offset, base, layout, 2 * pairs)
    torch.testing.assert_close(rope.rotate(x, offset=offset), want, rtol=0, atol=1e-9)
    single = rope.rotate(x.float(), offset=offset)
    torch.testing.assert_close(single.double(), want, rtol=0, atol=2e-6)


@given(m=st.integers(0, 5000), n=st.integers(0, 5000), step=st.integers(0, 100_000))
def test_scores_depend_on_distance_only(m: int, n: int, step: int) -> None:
    rope = whorl.RoPE(32)
    q, k = random(1, 1, 1, 32), random(1, 1, 1, 32, seed=1)
    near = (rope.rotate(q, offset=m) * rope.rotate(k, offset=n)).sum()
    far = (rope.rotate(q, offset=m + step) * rope.rotate(k, offset=n + step)).sum()
    assert abs(float(near - far)) < 1e-8


@given(p=st.integers(-(2**20), 2**20), r=st.integers(-(2**20), 2**20))
def test_rotations_add_up_keep_norms_and_undo_themselves(p: int, r: int) -> None:
    rope = whorl.RoPE(32, layout="interleaved")
    x = random(1, 2, 1, 32)
    once = rope.rotate(x, offset=p)
    torch.testing.assert_close(rope.rotate(once, offset=r), rope.rotate(x, offset=p + r))
    torch.testing.assert_close(once.norm(dim=-1), x.norm(dim=-1))
    torch.testing.assert_close(rope.rotate(once, offset=p, inverse=True), x)
    torch.testing.assert_close(rope.rotate(x, offset=-p), rope.rotate(x, offset=p, inverse=True))


def test_position_zero_is_the_identity() -> None:
    x = random(1, 2, 1, 64, dtype=torch.float32)
    assert torch.equal(whorl.RoPE(64).rotate(x), x)


def test_layouts_agree_up_to_one_permutation() -> None:
    x = random(2, 2, 5, 16, dtype=torch.float32)
    order = torch.arange(16).view(2, 8).T.flatten()  # half position of each interleaved channel
    half = whorl.RoPE(16).rotate(x)
    inter = whorl.RoPE(16, layout="interleaved").rotate(x[..., order].contiguous())
    assert torch.equal(inter, half[..., order])


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_out_layout_writes_the_other_order(layout: whorl.Layout, impl: whorl.Impl) -> None:
    other: whorl.Layout = "interleaved" if layout == "half" else "half"
    x = random(1, 2, 5, 20, dtype=torch.float32)
    rope = whorl.RoPE(20, layout=layout, out_layout=other, rotary_dim=12, rotary_start=4, impl=impl)
    same = whorl.RoPE(20, layout=layout, rotary_dim=12, rotary_start=4).rotate(x, offset=3)
    a, b = reference.split_pairs(same[..., 4:16], layout)
    want = torch.cat((x[..., :4], reference.merge_pairs(a, b, other), x[..., 16:]), dim=-1)
    got = rope.rotate(x, offset=3)
    assert torch.equal(got, want)
    assert torch.equal(rope.rotate_(x.clone(), offset=3), want)
    torch.testing.assert_close(rope.rotate(got, offset=3, inverse=True), x)
    moved = rope.shift(got, 4)
    torch.testing.assert_close(moved, rope.rotate(x, offset=7), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_and_keys_with_their_own_heads_and_positions(dtype: torch.dtype) -> None:
    rope = whorl.RoPE(16)
    q, k = random(2, 6, 3, 16, dtype=dtype), random(2, 2, 9, 16, dtype=dtype, seed=1)
    positions, key_positions = torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.arange(9)
    got_q, got_k = rope(q, k, positions, key_positions)
    assert torch.equal(got_q, rope.rotate(q, positions))
    assert torch.equal(got_k, rope.rotate(k, key_positions))
    later_q, same_k = rope(q, k, positions, key_positions, offset=2)
    assert torch.equal(later_q, rope.rotate(q, positions + 2))
    assert torch.equal(same_k, got_k)  # explicit key positions are taken as they are


def test_fractional_positions_lie_between_whole_ones() -> None:
    rope, x = whorl.RoPE(8), random(1, 1, 1, 8)
    half = rope.rotate(x, torch.tensor([2.5]))
    assert torch.allclose(rope.rotate(half, torch.tensor([0.5])), rope.rotate(x, offset=3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_out_and_in_place_equal_a_new_tensor(layout: whorl.Layout, dtype: torch.dtype) -> None:
    rope = whorl.RoPE(24, layout=layout, rotary_dim=16)
    x, k = random(2, 3, 5, 24, dtype=dtype), random(2, 1, 5, 24, dtype=dtype, seed=1)
    want = rope.rotate(x, offset=9)
    out = torch.full_like(x, float("nan"))
    assert rope.rotate(x, offset=9, out=out) is out
    assert torch.equal(out, want)
    cache = torch.zeros(2, 1, 9, 24, dtype=dtype)
    rope(x, k, offset=9, out=(out.fill_(float("nan")), cache[:, :, 2:7]))
    assert torch.equal(out, want)
    assert torch.equal(cache[:, :, 2:7], rope.rotate(k, offset=9))
    assert not cache[:, :, :2].any()
    own, own_k = x.clone(), k.clone()
    assert rope.rotate_(own, offset=9) is own
    assert torch.equal(own, want)
    own = x.clone()
    rope.forward_(own, own_k, offset=9)
    assert torch.equal(own, want)
    assert torch.equal(own_k, rope.rotate(k, offset=9))


def test_shift_moves_rotated_keys() -> None:
    rope = whorl.RoPE(16)
    k = random(2, 2, 4, 16)
    rotated = rope.rotate(k, offset=5)
    for delta in (3, -5, torch.tensor([3, -2]), torch.tensor([[1, 2, 3, 4], [0, 0, 7, -5]])):
        by_row = delta if not isinstance(delta, Tensor) or delta.dim() == 2 else delta[:, None]
        want = rope.rotate(k, torch.arange(4).expand(2, 4) + 5 + by_row)
        torch.testing.assert_close(rope.shift(rotated, delta), want)


def test_retune_takes_keys_to_other_frequencies() -> None:
    scaling = whorl.DynamicNTK(factor=4.0, original_context=8)
    rope = whorl.RoPE(16, scaling=scaling)
    k = random(2, 2, 6, 16)
    old, new = rope.frequencies(8), rope.frequencies(torch.tensor([20, 9]))
    rotated = rope.rotate(k, context_length=8)
    want = rope.rotate(k, context_length=torch.tensor([20, 9]))
    torch.testing.assert_close(rope.retune(rotated, old=old, new=new), want)


class Doubling(whorl.Scaling):
    """Halves frequencies and carries an attention scale, to prove the rule for it."""

    name = "doubling"

    def frequencies(self, ladder: whorl.Ladder, context_length: object) -> whorl.Frequencies:
        return whorl.Frequencies(ladder.inv_freq / 2, 1.25)


@pytest.mark.parametrize("impl", IMPLS)
def test_attention_scale_is_applied_once(impl: whorl.Impl) -> None:
    rope, plain = (
        whorl.RoPE(16, scaling=Doubling(), rotary_dim=8, impl=impl),
        whorl.RoPE(16, scaling=whorl.Linear(2.0), rotary_dim=8),
    )
    x = random(1, 2, 5, 16)
    want = plain.rotate(x, offset=3).clone()
    want[..., :8] *= 1.25
    got = rope.rotate(x, offset=3)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(rope.rotate(got, offset=3, inverse=True), x)
    torch.testing.assert_close(rope.shift(got, 2), rope.rotate(x, offset=5))
    flat = whorl.Frequencies(plain.frequencies().inv_freq, 2.5)
    doubled = rope.retune(got, old=rope.frequencies(), new=flat, offset=3)
    torch.testing.assert_close(doubled[..., :8], 2 * got[..., :8])
    cos, _ = rope.tables(torch.arange(3))
    torch.testing.assert_close(cos[0], torch.full((4,), 1.25))


def test_tables_are_float32_and_follow_positions() -> None:
    rope = whorl.RoPE(8)
    cos, sin = rope.tables(torch.tensor([[0, 1], [5, 100_000]]))
    assert cos.shape == sin.shape == (2, 2, 4)
    assert cos.dtype == sin.dtype == torch.float32
    theta = reference.compute_inv_freq(8)
    torch.testing.assert_close(cos[1, 1].double(), (100_000 * theta).cos(), rtol=0, atol=6e-8)
    one_row, _ = rope.tables(torch.tensor([[3, 4]]))
    assert one_row.shape == (1, 2, 4)


def test_known_frequencies() -> None:
    inv_freq = whorl.RoPE(128).frequencies().inv_freq
    known = torch.tensor([1.0, 0.865964, 0.749894, 0.649382, 0.562341], dtype=torch.float64)
    torch.testing.assert_close(inv_freq[:5], known, rtol=0, atol=5e-7)
    assert round(float(inv_freq.mean()), 6) == 0.116562
    assert round(float(inv_freq.min()), 6) == 0.000115


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_results_do_not_depend_on_the_table(precision: whorl.Precision, dtype: torch.dtype) -> None:
    x = random(2, 2, 40, 16, dtype=dtype)
    positions = torch.arange(40) + torch.tensor([[0], [70]])
    results = []
    strategies: list[tuple[Any, int]] = [
        ("on_the_fly", 0),
        ("hybrid", 64),
        ("hybrid", 3),
        ("precomputed", 200),
    ]
    for table, length in strategies:
        rope = whorl.RoPE(16, table=table, table_length=length, precision=precision)
        results.append((rope.rotate(x, offset=40), rope.rotate(x, positions)))
    for one, other in results[1:]:
        assert torch.equal(one, results[0][0])
        assert torch.equal(other, results[0][1])


def test_custom_and_trained_frequencies() -> None:
    x = random(1, 2, 6, 8)
    theta = [1.0, 0.3, 0.1, 0.0]
    own = whorl.RoPE(8, inv_freq=theta)
    angles = torch.arange(6).double()[:, None] * torch.tensor(theta).double()
    torch.testing.assert_close(own.rotate(x), reference.rotate_complex(x, angles))
    trained = whorl.RoPE(8, frequencies="trained")
    torch.testing.assert_close(trained.rotate(x), whorl.RoPE(8).rotate(x))
    assert [n for n, _ in trained.named_parameters()] == ["alpha"]
    trained.rotate(x).square().sum().backward()  # norms do not depend on angles
    assert trained.alpha.grad is not None
    assert float(trained.alpha.grad.abs().max()) < 1e-6
    trained.rotate(x).sum().backward()
    assert float(trained.alpha.grad.abs().max()) > 1e-3


def test_training_moves_frequencies_towards_a_target() -> None:
    torch.manual_seed(0)
    target, rope = whorl.RoPE(8, base=100.0), whorl.RoPE(8, base=120.0, frequencies="trained")
    optimizer = torch.optim.Adam(rope.parameters(), lr=0.02)
    x = torch.randn(4, 2, 12, 8)
    for _ in range(120):
        loss = (rope.rotate(x) - target.rotate(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-3
    learned, wanted = rope.frequencies().inv_freq.detach(), target.frequencies().inv_freq
    torch.testing.assert_close(learned, wanted, rtol=0.02, atol=0)


def test_float32_mode_departs_as_documented() -> None:
    """The two precisions differ by 1e-5 at 64, 8e-4 at 4096 and 8e-3 at 131,072."""
    for length, most in ((64, 2e-5), (4096, 1e-3), (131_072, 1e-2)):
        positions = torch.arange(max(0, length - 4096), length)
        exact, _ = whorl.RoPE(128).tables(positions)
        rough, _ = whorl.RoPE(128, precision="float32").tables(positions)
        assert most / 20 < float((exact - rough).abs().max()) < most


def test_dynamic_length_is_per_row_and_by_default_the_last_position() -> None:
    rope = whorl.RoPE(16, scaling=whorl.DynamicNTK(factor=2.0, original_context=8))
    x = random(2, 1, 6, 16)
    positions = torch.arange(6) + torch.tensor([[0], [30]])
    both = rope.rotate(x, positions)
    short, long = rope.rotate(x[:1], positions[:1]), rope.rotate(x[1:], positions[1:])
    assert torch.equal(both, torch.cat((short, long)))
    assert torch.equal(short, whorl.RoPE(16).rotate(x[:1]))
    assert torch.equal(long, rope.rotate(x[1:], offset=30, context_length=36))
    _, k = rope(x[:1, :, :1], x[:1], torch.tensor([20]), torch.arange(6))
    assert torch.equal(k, rope.rotate(x[:1], context_length=21))  # keys follow the longest of both


def test_describe_says_what_the_scaling_does() -> None:
    rope = whorl.RoPE(128, base=1e6, scaling=whorl.YaRN(factor=4.0, original_context=32_768))
    found = rope.describe()
    assert found.counts == {"kept": 24, "blended": 16, "interpolated": 24, "unused": 0}
    assert found.original_context == 32_768
    assert "0-23   kept" in str(found)
    plain = whorl.RoPE(8).describe(original_context=512)
    assert plain.counts["kept"] == 4
    assert plain.effective_context == 512
    following = whorl.RoPE(8, scaling=whorl.DynamicNTK(factor=2.0, original_context=16))
    assert following.describe().counts["kept"] == 4
    assert following.describe(64).counts["kept"] == 1


def test_a_scaling_that_does_not_fit_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"LongRoPE: .*short_factors"):
        whorl.RoPE(
            16,
            scaling=whorl.LongRoPE(
                short_factors=[1.0], long_factors=[2.0], original_context=16, factor=4.0
            ),
        )


def test_describe_looks_at_trained_frequencies_too() -> None:
    rope = whorl.RoPE(8, frequencies="trained")
    with torch.no_grad():
        rope.alpha.fill_(-1.0)
    found = rope.describe(original_context=64)
    assert found.counts["kept"] == 0
    assert found.pairs[0].factor == pytest.approx(math.e)
    assert found.scaling == "no scaling"
    with pytest.raises(
        ValueError, match=r"RoPE\.describe: original_context must be a positive int"
    ):
        rope.describe(original_context=-5)
    with pytest.raises(
        ValueError, match=r"RoPE\.describe: context_length must be an int; got '4k'"
    ):
        rope.describe("4k")  # type: ignore[arg-type]
    yarn = whorl.RoPE(8, scaling=whorl.YaRN(factor=2.0, original_context=64))
    with pytest.raises(ValueError, match=r"must be 64, the scaling's own value; got 99"):
        yarn.describe(original_context=99)
