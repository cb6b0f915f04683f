"""Likeness by distance, aliases and returns, against loops."""

import math
from typing import Any

import pytest

import whorl
from whorl.analysis import aliasing
from whorl.configs import diagnosis


def test_returns_of_one_pair() -> None:
    """pi is close to 22/7 and to 355/113: 44 and 710 are close to whole turns."""
    found = aliasing(whorl.RoPE(2), 1000, count=40)
    first = found.returns[0]
    assert (first.distance, first.lowest_at) == (710, 355)
    assert first.similarity == pytest.approx(math.cos(710))
    assert first.lowest == pytest.approx(math.cos(355))
    assert 44 in [each.distance for each in found.returns]
    assert max(found.highest) == pytest.approx(math.cos(710))
    assert min(found.lowest) == pytest.approx(math.cos(355))


def test_no_returns_while_it_only_falls() -> None:
    found = aliasing(whorl.RoPE(2), 3)
    assert found.returns == ()
    assert aliasing(whorl.RoPE(2, inv_freq=[1e-6]), 1000).returns == ()


def test_bins_hold_every_distance_once() -> None:
    found = aliasing(whorl.RoPE(64), 5000, bins=50)
    theta = whorl.RoPE(64).frequencies().inv_freq
    curve = [float((m * theta).cos().mean()) for m in range(1, 5001)]
    assert max(found.highest) == pytest.approx(max(curve))
    assert min(found.lowest) == pytest.approx(min(curve))
    assert list(found.distances) == sorted(found.distances)


@pytest.mark.parametrize(("dim", "base", "length"), [(8, 10.0, 1000), (64, 10_000.0, 9000)])
def test_the_alias_is_the_one_of_the_doctor(dim: int, base: float, length: int) -> None:
    found = aliasing(whorl.RoPE(dim, base=base), length)
    shape = {"head_dim": dim, "num_attention_heads": 4, "hidden_size": 4 * dim}
    config = {"model_type": "llama", "rope_theta": base, "max_position_embeddings": length, **shape}
    said = [each for each in diagnosis.diagnose(config).findings if each.rule == "aliasing"]
    assert bool(said) is (found.alias is not None) is (dim == 8)
    if found.alias is not None:
        assert f"tokens at distance {found.alias.distance} have" in said[0].message
        assert found.alias.near == found.near <= found.alias.similarity
        theta = [base ** (-2 * i / dim) for i in range(dim // 2)]
        near = sum(math.cos(2 * t) for t in theta) / len(theta)
        assert found.near == pytest.approx(near)


def test_pairs_that_stand_still_do_not_count() -> None:
    some = aliasing(whorl.RoPE(8, inv_freq=[1.0, 0.5, 0.0, 0.0]), 300)
    assert some.highest == aliasing(whorl.RoPE(4, inv_freq=[1.0, 0.5]), 300).highest


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: aliasing(whorl.RoPE(8), 1), ValueError, r"aliasing: length must be an int >= 2"),
        (lambda: aliasing(whorl.RoPE(8), count=0), ValueError, r"count must be an int >= 1; got 0"),
        (
            lambda: aliasing(whorl.RoPE(8), bins=1),
            ValueError,
            r"bins must be an int >= 2 .*; got 1",
        ),
        (
            lambda: aliasing(whorl.RoPE(4, inv_freq=[0.0, 0.0])),
            ValueError,
            r"must rotate at least one pair",
        ),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_length_beyond_memory_is_refused_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whorl._support.memory.read_available", lambda: 10**9)
    message = r"aliasing: length 20,000,000 needs 960 MB of memory, but may use at most half of the"
    with pytest.raises(ValueError, match=message):
        aliasing(whorl.RoPE(8), 20_000_000)
