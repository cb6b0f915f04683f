"""Gradients of pairs: against autograd and slow loops, and what must hold for every pair."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.analysis import pair_gradients
from whorl.analysis.gradients import _differentiate, _normalize_pairs, _sample_gradients


def differentiate_by_autograd(
    rope: whorl.RoPE, q: Tensor, others: Tensor, target: Tensor, at: int
) -> Tensor:
    """d loss / d q of softmax attention from the last position, on keys in their usual order."""
    n = len(others)
    keys = others.flip(0).clone()  # others[m] is at distance m
    keys[n - 1 - at] = target
    q = q.clone().requires_grad_(True)
    rotated = rope.rotate(q.view(1, 1, 1, -1), offset=n - 1)[0, 0]
    scores = rotated @ rope.rotate(keys[None, None])[0, 0].T / math.sqrt(len(target))
    scores.log_softmax(-1)[0, n - 1 - at].neg().backward()
    assert q.grad is not None
    return q.grad


@pytest.mark.parametrize("options", [{}, {"layout": "interleaved"}, {"rotary_dim": 4}])
def test_gradients_are_those_of_autograd(options: dict[str, Any]) -> None:
    rope, n = whorl.RoPE(8, base=20.0, **options), 9
    source = torch.Generator().manual_seed(1)
    others = torch.randn(3, n, 8, generator=source, dtype=torch.float64)
    q, target = torch.randn(2, 8, generator=source, dtype=torch.float64)
    at = torch.tensor([0, 4, 8])
    seen = rope.rotate(others[:, None], torch.arange(n), inverse=True)[:, 0]
    goal = rope.rotate(target.expand(1, 1, 3, 8), at, inverse=True)[0, 0]
    fast = _differentiate(q, seen, goal, at)
    slow = [differentiate_by_autograd(rope, q, others[m], target, int(at[m])) for m in range(3)]
    torch.testing.assert_close(fast, torch.stack(slow))


def test_means_are_those_of_slow_loops() -> None:
    rope, ranges = whorl.RoPE(8, base=20.0), ((1, 2), (2, 6))
    found = pair_gradients(rope, 6, ranges=ranges, contents=3, samples=4, seed=2)
    source = torch.Generator().manual_seed(2)
    draws = [_sample_gradients(rope, 6, ranges, 4, source) for _ in range(3)]
    for r in range(2):
        for i in range(4):
            values = [[complex(g) for g in each[r][:, i]] for each in draws]
            square = sum(abs(g) ** 2 for each in values for g in each) / 12
            both = [
                (a * b.conjugate()).real
                for each in values
                for m, a in enumerate(each)
                for n, b in enumerate(each)
                if m != n
            ]
            assert found.mean_squares[r][i] == pytest.approx(square)
            assert found.shared[r][i] == pytest.approx(sum(both) / len(both) / square)


def test_every_pair_gets_the_same_and_fast_ones_share_nothing() -> None:
    found = pair_gradients(whorl.RoPE(32), 128, contents=64, samples=16)
    assert found.ranges == ((1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 128))
    sizes = torch.tensor(found.mean_squares, dtype=torch.float64)
    assert float(sizes.max() / sizes.min()) < 1.25
    shared = torch.tensor(found.shared, dtype=torch.float64)
    predicted = torch.tensor(found.predicted, dtype=torch.float64)
    assert float((shared - predicted).abs().max()) < 0.08
    assert float(shared[0].min()) > 0.9  # one distance: all of it
    assert abs(float(shared[-1, 0])) < 0.08  # many: nothing for the fastest pair
    assert float(shared[-1, -1]) > 0.9  # the slowest has not rotated


def test_predictions_are_sums_over_the_range() -> None:
    found = pair_gradients(whorl.RoPE(8), 20, ranges=((3, 11),), contents=1, samples=2)
    for i, value in enumerate(found.predicted[0]):
        theta = 10_000.0 ** (-2 * i / 8)
        mean = sum(complex(math.cos(m * theta), -math.sin(m * theta)) for m in range(3, 11)) / 8
        assert value == pytest.approx(abs(mean) ** 2)
        assert found.wavelengths[i] == pytest.approx(2 * math.pi / theta)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_pairs_of_a_target_have_one_size(layout: Any) -> None:
    rope = whorl.RoPE(8, rotary_dim=4, rotary_start=2, layout=layout)
    x = torch.arange(1.0, 9.0, dtype=torch.float64)
    made = _normalize_pairs(x, rope)
    first = (2, 3) if layout == "half" else (2, 4)
    second = (4, 5) if layout == "half" else (3, 5)
    for a, b in zip(first, second, strict=True):
        assert float(made[a] ** 2 + made[b] ** 2) == pytest.approx(2.0)
        assert float(made[a] / made[b]) == pytest.approx(float(x[a] / x[b]))
    assert made[[0, 1, 6, 7]].tolist() == x[[0, 1, 6, 7]].tolist()


def test_the_same_seed_gives_the_same_numbers() -> None:
    one, two, other = (
        pair_gradients(whorl.RoPE(4), 5, contents=2, samples=3, seed=seed) for seed in (1, 1, 2)
    )
    assert one == two
    assert one.mean_squares != other.mean_squares


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": 1}, r"pair_gradients: keys must be an int >= 2"),
        ({"samples": 1}, r"pair_gradients: samples must be an int >= 2"),
        ({"contents": 0}, r"pair_gradients: contents must be an int >= 1"),
        ({"ranges": ()}, r"ranges must be a list of \(low, high\), distances .*; got \(\)\."),
        ({"ranges": "ab"}, r"ranges must be a list of \(low, high\)"),
        ({"ranges": ((1, 9),)}, r"each of ranges must be two ints .* <= 8, .*; got \(1, 9\)\."),
        ({"ranges": ((2, 2),)}, r"each of ranges must be two ints"),
        ({"ranges": (1, 2)}, r"each of ranges must be two ints .*; got 1\."),
        ({"keys": 2**20, "samples": 2**20}, r"1048576 samples of 1,048,576 keys needs"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pair_gradients(whorl.RoPE(4), **{"keys": 8, **options})


def test_it_needs_a_rope() -> None:
    with pytest.raises(ValueError, match=r"pair_gradients: rope must be a whorl\.RoPE"):
        pair_gradients(whorl.ALiBi(2))
