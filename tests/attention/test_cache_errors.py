"""KVCache refuses clearly, and what it refuses changes nothing."""

from typing import Any

import pytest
import torch

import whorl
from whorl.attention.cache.kv_cache import KVCache

from .cached import D, tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, r"KVCache: window must be an int, at least 1; got 0\."),
        ({"window": 2.0}, r"KVCache: window must be an int, at least 1; got 2\.0\."),
        ({"sinks": -1, "window": 4}, r"KVCache: sinks must be an int, at least 0; got -1\."),
        ({"steps": 0}, r"KVCache: steps must be an int, at least 1; got 0\."),
        ({"capacity": None}, r"KVCache: capacity must be an int, at least 0; got None\."),
        ({"placement": "cache"}, r"placement must be 'absolute' or 'in_cache'; got 'cache'\."),
        ({"frequencies": "often"}, r"frequencies must be 'exact' or 'stepped'; got 'often'\."),
        ({"sinks": 4}, r"window must be an int with sinks=4, because nothing is dropped without"),
        ({"placement": "in_cache"}, r"with placement='in_cache', because nothing is dropped"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KVCache(whorl.RoPE(D), **options)


def test_encodings() -> None:
    with pytest.raises(
        TypeError, match=r"KVCache: encoding must be a whorl\.Encoding .*; got 'rope'\."
    ):
        KVCache("rope")  # type: ignore[arg-type]
    message = r"placement must be 'absolute' for AxialRoPE\(8\), because positions on 2 axes"
    with pytest.raises(ValueError, match=message):
        KVCache(whorl.AxialRoPE(D), window=4, placement="in_cache")


Q, K, V = tokens(2, 3, 0, torch.float32)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"q": 1},
            TypeError,
            r"update: q must be a tensor \[B, heads, tokens, channels\]; got int",
        ),
        (
            {"k": K[0]},
            ValueError,
            r"update: k must be \[B, heads, tokens, .*; got \[1, 3, 8\]\. Re",
        ),
        ({"v": V.long()}, TypeError, r"update: v must be float32, .*; got torch\.int64\."),
        ({"q": Q[:, :, :2]}, ValueError, r"same new tokens, equally many; got \[2, 2, 2, 8\], \["),
        ({"k": K[:1]}, ValueError, r"update: shapes must be q \[B, H, T, D\], .*\[1, 1, 3, 8\]"),
        ({"v": V.repeat(1, 2, 1, 1)}, ValueError, r"G a divisor of H; got \[2, 2, 3, 8\], \["),
        ({"q": Q.half()}, TypeError, r"one dtype and device; got torch\.float16 on cpu, torch"),
        (
            {"k": K.clone().requires_grad_()},
            ValueError,
            r"k must not need a gradient, because",
        ),
        ({"mask": torch.ones(2, 2).bool()}, ValueError, r"\[2, 3\], for the new tokens only; got"),
        ({"mask": [1]}, TypeError, r"mask must be a tensor, boolean or integers, .* got \[1\]\."),
        ({"mask": torch.ones(2, 3)}, TypeError, r"got torch\.float32 on cpu\. An additive mask"),
        ({"mask": K.bool()[:, 0, :, 0].to("meta")}, TypeError, r"on cpu; got torch\.bool on meta"),
        ({"positions": torch.arange(4)}, ValueError, r"KVCache\.update: positions must be \[T\]"),
        (
            {"k": K[..., :6], "q": Q[..., :6]},
            ValueError,
            r"k must be \[2, 1, T, 8\] as .* got \[2, 1, 3",
        ),
        ({n: x[:1] for n, x in (("q", Q), ("k", K), ("v", V))}, ValueError, r"Use one cache per"),
        (
            {n: x.half() for n, x in (("q", Q), ("k", K), ("v", V))},
            TypeError,
            r"k must be torch\.float32 on cpu as the .* got torch\.float16 on cpu\. reset\(\)",
        ),
    ],
)
def test_update(change: dict[str, Any], error: type[Exception], message: str) -> None:
    cache, same = (
        KVCache(whorl.RoPE(D), window=4, sinks=1),
        KVCache(whorl.RoPE(D), window=4, sinks=1),
    )
    for each in (cache, same):
        each.update(Q, K, V)
    with pytest.raises(error, match=message):
        cache.update(**{"q": Q, "k": K, "v": V, **change})
    got, want = (each.update(Q, K, V) for each in (cache, same))
    assert torch.equal(got.k, want.k)
    assert torch.equal(got.key_positions, want.key_positions)


def test_positions_that_a_later_step_would_choke_on() -> None:
    """Refused before anything changes: attention would fail with the tokens already held."""
    for wrong in (torch.nan, torch.inf):
        cache = KVCache(whorl.RoPE(D))
        cache.update(Q, K, V)
        with pytest.raises(ValueError, match=r"update: positions must be finite numbers, because"):
            cache.update(Q, K, V, positions=torch.tensor([0.0, wrong, 1.0]))
        assert cache.update(Q, K, V).positions.tolist() == [3, 4, 5]
    halves, x = torch.tensor([0.0, 0.5, 1.0]), torch.randn(1, 2, 3, D)
    t5, both = whorl.T5Bias(2), whorl.RoPE(D) + whorl.RelativeBias(2, max_distance=4)
    for bias, cache in ((t5, KVCache(t5)), (both, KVCache(both))):
        with pytest.raises(TypeError, match=r"positions must be integers for .*, whose table"):
            whorl.attention(x, x, x, bias, causal=True, cache=cache, positions=halves)
        assert cache.length == 0
    learned = KVCache(whorl.Learned(dim=16, max_length=4) + whorl.RoPE(D))  # not by its table here
    assert learned.update(x, x, x, positions=halves).positions.tolist() == [0.0, 0.5, 1.0]


def test_update_where_positions_matter() -> None:
    at = torch.arange(3)
    with pytest.raises(ValueError, match=r"positions must be None with placement='in_cache'"):
        KVCache(whorl.RoPE(D), window=4, placement="in_cache").update(Q, K, V, positions=at)
    with pytest.raises(ValueError, match=r"for AxialRoPE\(8\), because tokens have no order of"):
        KVCache(whorl.AxialRoPE(D)).update(Q, K, V)
    cache = KVCache(whorl.MRoPE(D, sections=(2, 1, 1)))
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    with pytest.raises(ValueError, match=r"with positions on 3 axes the order of tokens is that"):
        cache.update(Q, K, V, mask=mask)
    cache.update(Q, K, V, mask=mask.flip(1))
    with pytest.raises(ValueError, match=r"mask must hide only padding to the left of a first"):
        cache.update(Q, K, V, mask=mask.flip(1))


def test_what_the_encoding_refuses_empties_the_cache() -> None:
    cache = KVCache(whorl.RoPE(16))
    with pytest.raises(ValueError, match=r"RoPE: q must be .* D = head_dim = 16"):
        cache.update(Q, K, V)
    assert cache.length == 0
    cache = KVCache(whorl.RoPE(D, table="precomputed", table_length=4))
    cache.update(Q, K, V)
    with pytest.raises(ValueError, match=r"RoPE: positions reach from 3 to 5"):
        cache.update(Q, K, V)
    assert cache.length == 0
    assert cache.update(Q, K, V).positions.tolist() == [0, 1, 2]


def test_xpos_has_limits_in_half_precision() -> None:
    xpos = whorl.XPos(D)
    cache = KVCache(xpos)
    half = [x.half() for x in tokens(1, 6000, 0, torch.float32)]
    message = r"must lie within 5208 of each other with XPos in torch\.float16, .* got 0 to"
    with pytest.raises(ValueError, match=message):
        cache.update(*half)
    for start in range(0, 6000, 2000):
        cache.update(*(x[:, :, start : start + 2000] for x in half))
    cache.crop(4000)
    cache.update(*(x[:, :, :1] for x in half))
    cache.crop(100)
    with pytest.raises(ValueError, match=r"XPos in torch\.float16, .* got 0 after 4608\."):
        cache.update(*(x[:, :, :1] for x in half))
    cache.reset()
    assert cache.update(*(x[:, :, :1] for x in half)).positions.tolist() == [0]


@pytest.mark.parametrize(
    ("length", "error", "message"),
    [
        (4, ValueError, r"crop: length must be from -3 to 3, as many as are held, or one for each"),
        (-4, ValueError, r"length must be from -3 to 3"),
        (1.0, TypeError, r"crop: length must be an int, or integers \[B\]; got 1\.0\."),
        (True, TypeError, r"got True\."),
        (torch.tensor([1]), ValueError, r"an int, or integers \[B\] = \[2\]; got \[1\]\."),
        (torch.tensor([1.0, 2.0]), TypeError, r"got torch\.float32\."),
        (
            torch.tensor([1, 4]),
            ValueError,
            r"length must be from 0 to the tokens of each row, \[3, 3\]",
        ),
    ],
)
def test_crop(length: Any, error: type[Exception], message: str) -> None:
    cache = KVCache(whorl.RoPE(D))
    cache.update(Q, K, V)
    with pytest.raises(error, match=message):
        cache.crop(length)
    assert cache.lengths == [3, 3]


def test_crop_to_before_a_window_dropped_something() -> None:
    cache = KVCache(whorl.RoPE(D), window=3, sinks=1)
    cache.update(Q, K, V)
    cache.crop(1)  # nothing was dropped yet
    for _ in range(3):
        cache.update(Q, K, V)
    assert cache.lengths == [6, 6]
    message = (
        r"KVCache\.crop: length must leave row 0 at least 3 tokens, because the window has dropped"
        r" tokens .* got {}\. Crop no more than the last call added, or reset\(\)"
    )
    for length, kept in ((2, 2), (-4, 2), (0, 0), (torch.tensor([2, 3]), 2)):
        with pytest.raises(ValueError, match=message.format(kept)):
            cache.crop(length)
        assert cache.lengths == [6, 6]
    cache.crop(-3)
    assert cache.update(Q, K, V).positions.tolist() == [7, 8, 9]


def test_an_empty_cache() -> None:
    for cache in (KVCache(), KVCache(whorl.RoPE(D), window=4, sinks=1)):
        for _ in range(2):
            cache.crop(0)
            cache.evict([])
            assert cache.length == 0
            with pytest.raises(
                ValueError, match=r"crop: length must be 0, as no tokens are held; g"
            ):
                cache.crop(-1)
            with pytest.raises(ValueError, match=r"evict: drop must be empty, as .* got \[0\]\."):
                cache.evict([0])
            with pytest.raises(
                ValueError, match=r"reorder: index needs rows, but no tokens are held"
            ):
                cache.reorder([0])
            cache.update(Q, K, V)
            cache.crop(0)


@pytest.mark.parametrize(
    ("drop", "error", "message"),
    [
        ([3], ValueError, r"evict: drop must be slots from -3 to 2, .* got \[3\]\."),
        (
            "x",
            TypeError,
            r"evict: drop must be slots, or a mask \[S\] = \[3\] or \[B, S\] = \[2, 3\]",
        ),
        ([0.5], TypeError, r"true for tokens to drop; got torch\.float32 \[1\]\."),
        (torch.ones(2, dtype=torch.bool), ValueError, r"got torch\.bool \[2\]\."),
        ([0], ValueError, r"drop must not contain the first 1 tokens of a row, because they are"),
    ],
)
def test_evict(drop: Any, error: type[Exception], message: str) -> None:
    cache = KVCache(whorl.RoPE(D), window=4, sinks=1)
    cache.update(Q, K, V)
    with pytest.raises(error, match=message):
        cache.evict(drop)
    cache.evict([])
    assert cache.lengths == [3, 3]
    cache.evict([-1])
    assert cache.lengths == [2, 2]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([2], ValueError, r"index must be rows from 0 to 1; got \[2\]\."),
        ([-1], ValueError, r"index must be rows from 0 to 1; got \[-1\]\."),
        ([], ValueError, r"index must be \[N\], one old row for each new one, .* got \[0\]\."),
        (torch.tensor([[0]]), ValueError, r"got \[1, 1\]\."),
        ([0.0], TypeError, r"index must be integers, the old row of each new one; got torch\.fl"),
        ("all", TypeError, r"index must be integers, the old row of each new one; got 'all'\."),
    ],
)
def test_reorder(index: Any, error: type[Exception], message: str) -> None:
    cache, x = KVCache(whorl.RoPE(D)), torch.ones(2, 1, 3, D)
    cache.update(Q, K, V)
    with pytest.raises(error, match=r"KVCache\.reorder: .*" + message):
        cache.reorder(index)
    _, state = whorl.linear_attention(x, x, x, causal=True, return_state=True)
    with pytest.raises(error, match=r"LinearState\.reorder: .*" + message):
        state.reorder(index)


def test_repr_shows_what_was_chosen() -> None:
    cache = KVCache(whorl.RoPE(D), window=4, sinks=1)
    assert repr(cache) == "KVCache(RoPE(8), window=4, sinks=1)"
    assert repr(KVCache()) == "KVCache(None)"
