"""KVCache over long streams: no drift, memory that stays, copies that do not add up."""

from itertools import pairwise
from typing import Any

import pytest
import torch

import whorl
from whorl.attention.cache.kv_cache import KVCache
from whorl.scaling import DynamicNTK, LongRoPE

from .cached import D, scores, tokens


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "evicted"),
    [(torch.bfloat16, 4000), (torch.float16, 500), (torch.float32, 500)],
)
def test_after_many_evictions_keys_are_rounded_once(dtype: torch.dtype, evicted: int) -> None:
    rope, window, sinks, count = whorl.RoPE(D), 12, 4, evicted + 16
    cache = KVCache(rope, window=window, sinks=sinks, placement="in_cache")
    q, k, v = tokens(1, count, 0, dtype)
    for t in range(count):
        step = cache.update(q[:, :, t : t + 1], k[:, :, t : t + 1], v[:, :, t : t + 1])
    assert step.key_positions.tolist() == list(range(16))
    assert step.positions.tolist() == [15]
    held = torch.cat((k[:, :, :sinks], k[:, :, -window:]), 2)
    afresh = rope.rotate(held, offset=count - 16)
    assert torch.equal(step.k, afresh)
    assert torch.equal(step.v, torch.cat((v[:, :, :sinks], v[:, :, -window:]), 2))
    exact = scores(
        rope,
        q[0, :, -1:].double(),
        held[0].double().expand(2, -1, -1),
        torch.tensor([15]),
        torch.arange(16),
        16,
    )
    got = step.q[0].double() @ step.k[0].double().mT
    size = q[0, :, -1:].double().norm(dim=-1, keepdim=True) * held[0].double().norm(dim=-1)
    assert ((got - exact).abs() <= torch.finfo(dtype).eps * size).all()


def test_moving_keys_step_by_step_would_drift() -> None:
    """What the cache avoids, so that the test above could fail."""
    rope = whorl.RoPE(D)
    k = tokens(1, 4, 0, torch.bfloat16)[1]
    moved = k
    for _ in range(1000):
        moved = rope.shift(moved, 1)
    afresh = rope.rotate(k, torch.full((4,), 1000))
    assert (moved - afresh).abs().max() > 0.3


def test_memory_of_a_stream_stays() -> None:
    cache = KVCache(whorl.RoPE(D), window=50, sinks=3)
    q, k, v = tokens(1, 5000, 0, torch.float32)
    cache.update(q, k, v)
    long = cache.memory
    addresses = set()
    for _ in range(400):
        step = cache.update(q[:, :, :1], k[:, :, :1], v[:, :, :1])
        addresses.add(step.v.untyped_storage().data_ptr())
        assert step.k.shape[2] == 53
    assert cache.memory < long / 20
    assert len(addresses) <= 2


def test_growth_copies_by_doubling() -> None:
    cache = KVCache(whorl.RoPE(D))
    q, k, v = tokens(1, 1, 0, torch.float32)
    addresses = [cache.update(q, k, v).k.untyped_storage().data_ptr() for _ in range(1000)]
    assert sum(a != b for a, b in pairwise(addresses)) <= 8
    whole = KVCache(whorl.RoPE(D), capacity=1000)
    kept = {whole.update(q, k, v).k.untyped_storage().data_ptr() for _ in range(1000)}
    assert len(kept) == 1
    assert whole.memory == 1000 * (4 * D + 4 * 3 + 8)


def test_reset_uses_memory_again() -> None:
    cache = KVCache(whorl.RoPE(D))
    q, k, v = tokens(2, 5, 0, torch.float32)
    before = cache.update(q, k, v)
    cache.reset()
    assert cache.length == 0
    after = cache.update(q, k, v)
    assert after.k.data_ptr() == before.k.data_ptr()
    assert after.positions.tolist() == list(range(5))
    cache.reset()
    assert cache.update(*tokens(3, 1, 0, torch.float16)).k.shape == (3, 1, 1, D)


def test_stepped_frequencies_change_seldom_and_are_at_most_a_step_ahead() -> None:
    """The stated error: one rounding, and the frequencies of a length up to 1/16 longer."""
    rope = whorl.RoPE(D, scaling=DynamicNTK(factor=2.0, original_context=16))
    cache = KVCache(rope, frequencies="stepped", steps=16)
    q, k, v = tokens(1, 256, 0, torch.float32)
    lengths = []
    for t in range(256):
        step = cache.update(q[:, :, t : t + 1], k[:, :, t : t + 1], v[:, :, t : t + 1])
        length = next(
            n
            for n in range(t + 1, 2 * t + 3)
            if torch.equal(step.q, rope.rotate(q[:, :, t : t + 1], offset=t, context_length=n))
        )
        lengths.append(length)
        assert t + 1 <= length <= (t + 1) * 17 / 16 + 1
    assert torch.equal(step.k, rope.rotate(k, context_length=lengths[-1]))
    changes = sum(a != b for a, b in pairwise(lengths[16:]))
    assert changes <= 16 * 4  # 4 doublings


def test_longrope_switches_once_and_not_before() -> None:
    scaling = LongRoPE([1.0] * 4, [1.0, 2.0, 4.0, 8.0], 50, factor=4.0)
    rope = whorl.RoPE(D, scaling=scaling)
    for frequencies in ("exact", "stepped"):
        cache = KVCache(rope, frequencies=frequencies)
        q, k, v = tokens(1, 70, 0, torch.bfloat16)
        for t in range(70):
            new = slice(t, t + 1)
            step = cache.update(q[:, :, new], k[:, :, new], v[:, :, new])
            side = 50 if t < 50 else 51
            assert torch.equal(step.k, rope.rotate(k[:, :, : t + 1], context_length=side))


@pytest.mark.parametrize("trained", [77, 1003])
def test_a_step_does_not_reach_past_the_trained_length(trained: int) -> None:
    """With 4 steps for each doubling 77 would be served by 80, and 1003 by 1024: not trained."""
    scaling = LongRoPE([1.0] * 4, [1.0, 2.0, 4.0, 8.0], trained, factor=4.0)
    dynamic = DynamicNTK(factor=2.0, original_context=trained)
    q, k, v = tokens(1, trained + 1, 0, torch.float32)
    for rope in (whorl.RoPE(D, scaling=scaling), whorl.RoPE(D, scaling=dynamic)):
        cache = KVCache(rope, frequencies="stepped", steps=4)
        for begun, end in ((0, trained - 3), (trained - 3, trained), (trained, trained + 1)):
            step = cache.update(*(x[:, :, begun:end] for x in (q, k, v)))
            want = rope.rotate(k[:, :, :end], context_length=end)
            if end <= trained:
                assert torch.equal(step.k, want)
        short = rope.rotate(k[:, :, :end], context_length=trained)
        assert not torch.allclose(step.k, short, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("frequencies", ["exact", "stepped"])
def test_keys_follow_where_only_the_attention_scale_changes(frequencies: Any) -> None:
    factors = [1.0, 1.5, 2.0, 4.0]
    scaling = LongRoPE(factors, factors, 37, attention_factor=1.0, long_attention_factor=1.5)
    rope = whorl.RoPE(D, scaling=scaling)
    cache = KVCache(rope, frequencies=frequencies)
    q, k, v = tokens(1, 50, 0, torch.float32)
    for t in range(50):
        step = cache.update(*(x[:, :, t : t + 1] for x in (q, k, v)))
        want = rope.rotate(k[:, :, : t + 1], context_length=t + 1)
        assert torch.equal(step.k, want)
    torch.testing.assert_close(want, 1.5 * rope.rotate(k, context_length=1))


def test_the_capacity_asked_for_is_what_is_allocated() -> None:
    """A prompt that fits, and tokens up to the capacity, need no more; one past it doubles."""
    cache = KVCache(whorl.RoPE(D), capacity=170)
    bytes_of_slot = 4 * D + 4 * 3 + 8
    cache.update(*tokens(1, 160, 0, torch.float32))
    assert cache.memory == 170 * bytes_of_slot
    address = cache.update(*tokens(1, 9, 1, torch.float32)).k.untyped_storage().data_ptr()
    step = cache.update(*tokens(1, 1, 2, torch.float32))
    assert step.k.untyped_storage().data_ptr() == address
    assert cache.memory == 170 * bytes_of_slot
    cache.update(*tokens(1, 1, 3, torch.float32))
    assert cache.memory == 2 * 171 * bytes_of_slot
    longer = KVCache(whorl.RoPE(D), capacity=170)
    longer.update(*tokens(1, 171, 0, torch.float32))
    assert longer.memory == 2 * 171 * bytes_of_slot


def test_rows_follow_their_own_length() -> None:
    rope = whorl.RoPE(D, scaling=DynamicNTK(factor=2.0, original_context=4))
    q, k, v = tokens(2, 9, 0, torch.float32)
    mask = torch.arange(9) >= torch.tensor([[0], [6]])
    for frequencies in ("exact", "stepped"):
        cache = KVCache(rope, frequencies=frequencies)
        step = cache.update(q, k, v, mask=mask)
        assert torch.equal(step.k[0], rope.rotate(k[:1], context_length=9)[0])
        assert torch.equal(step.k[1:, :, 6:], rope.rotate(k[1:, :, 6:], context_length=3))
        assert step.valid is not None
        assert torch.equal(step.valid, mask)


def test_xpos_far_out_in_half_precision() -> None:
    """100 blocks: keys keep their bits until they are about to vanish."""
    xpos = whorl.XPos(D, scale_base=32.0)
    cache = KVCache(xpos)
    q, k, v = tokens(1, 3200, 0, torch.float16)
    for t in range(0, 3200, 8):
        new = slice(t, t + 8)
        step = cache.update(q[:, :, new], k[:, :, new], v[:, :, new])
    want = xpos.rotate(k, role="key", reference=xpos.reference_for(3195))
    normal, least = want.abs() >= torch.finfo(torch.float16).tiny, 2.0**-24
    assert torch.equal(step.k[normal], want[normal])
    assert (step.k - want).abs().max() <= 2 * least
    assert (step.k[:, :, :100, 0] == 0).all()


@pytest.mark.parametrize("wrong", [0, 3])
@pytest.mark.parametrize("window", [1, 2, 6])
@pytest.mark.parametrize("options", [{}, {"sinks": 3}, {"sinks": 3, "placement": "in_cache"}])
def test_guesses_can_be_taken_back_from_a_full_window(
    options: Any, window: int, wrong: int
) -> None:
    plain, guessing = (KVCache(whorl.RoPE(D), window=window, **options) for _ in range(2))
    q, k, v = tokens(1, 40, 0, torch.float32)
    for t in range(36):
        new, ahead = slice(t, t + 1), slice(t, t + 1 + wrong)
        guessing.update(q[:, :, ahead], k[:, :, ahead], v[:, :, ahead])
        guessing.crop(-wrong - 1)
        got, want = (
            each.update(q[:, :, new], k[:, :, new], v[:, :, new]) for each in (guessing, plain)
        )
        assert torch.equal(got.k, want.k)
        assert torch.equal(got.v, want.v)
        assert torch.equal(got.key_positions, want.key_positions)


def test_undoing_a_call_restores_the_position_that_follows() -> None:
    """Also where the largest position is no longer held: evicted, or dropped by the window."""
    q, k, v = tokens(1, 4, 0, torch.float32)
    cache = KVCache(whorl.RoPE(D))
    cache.update(q, k, v)
    cache.evict([3])
    assert cache.update(q, k, v).positions.tolist() == [4, 5, 6, 7]
    cache.crop(-3)
    assert cache.update(q, k, v).positions.tolist() == [5, 6, 7, 8]
    cache.crop(-2)
    cache.crop(-2)
    assert cache.update(q, k, v).positions.tolist() == [5, 6, 7, 8]
    window = KVCache(whorl.RoPE(D), window=2)
    window.update(q, k, v, positions=torch.tensor([0, 90, 5, 6]))
    assert window.update(q, k, v).positions.tolist() == [91, 92, 93, 94]
    window.crop(-4)
    assert window.update(q, k, v).positions.tolist() == [91, 92, 93, 94]


def test_rows_are_taken_back_by_what_each_got() -> None:
    q, k, v = tokens(2, 4, 0, torch.float32)
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 1]])
    caches = [KVCache(whorl.RoPE(D), window=2, sinks=1) for _ in range(2)]
    for cache in caches:
        cache.update(q, k, v)
    caches[0].update(q, k, v, mask=mask)
    assert caches[0].lengths == [6, 3]
    caches[0].crop(torch.tensor([2, 2]))
    got, want = (cache.update(q, k, v) for cache in caches)
    assert torch.equal(got.k, want.k)
    assert torch.equal(got.positions, torch.arange(4, 8).expand_as(got.positions))


def test_modes_may_change_between_calls() -> None:
    cache = KVCache(whorl.RoPE(D), window=4, sinks=1)
    q, k, v = tokens(1, 3, 0, torch.float32)
    with torch.inference_mode():
        cache.update(q, k, v)
        cache.reorder([0, 0])
        cache.update(*tokens(2, 1, 1, torch.float32), positions=torch.tensor([3.5]))
    step = cache.update(*tokens(2, 9, 1, torch.float32))
    assert step.k.shape[0] == 2
    assert not step.k.requires_grad
