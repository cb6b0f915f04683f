"""Recovered positions: against slow loops, closed forms and limits."""

import math
from typing import Any

import pytest
import torch

import whorl
from whorl.analysis import recoverability
from whorl.analysis.recoverability import _build_rope, _sample_case


def recover_slowly(rope: whorl.RoPE, noise: float, length: int, samples: int) -> tuple[float, ...]:
    """Accuracy and mean error by loops over samples and candidates, rotating every vector."""
    case = _sample_case(rope.config.head_dim, length, "random", samples, 3)
    errors = []
    for u, g, p in zip(case.u, case.g, case.positions.tolist(), strict=True):
        y = rope.rotate(u.view(1, 1, 1, -1), offset=p).flatten() + noise * g
        scores = [
            float(y @ rope.rotate(u.view(1, 1, 1, -1), offset=n).flatten()) for n in range(length)
        ]
        errors.append(abs(scores.index(max(scores)) - p))
    return sum(error == 0 for error in errors) / samples, sum(errors) / samples


@pytest.mark.parametrize("distinct", [None, 2])
def test_slow_loops_agree(distinct: int | None) -> None:
    found = recoverability((8,), (50.0,), (0.5, 2.0), (12,), distinct=distinct, samples=20, seed=3)
    rope = _build_rope(8, 50.0, distinct)
    for row in found.rows:
        slow = recover_slowly(rope, row.noise, 12, 20)
        assert (row.accuracy, row.mean_error) == pytest.approx(slow)
    assert 0 < found.rows[-1].accuracy < 1


def test_vectors_and_noise_have_the_lengths_that_are_said() -> None:
    case = _sample_case(64, 100, "random", 2000, 0)
    torch.testing.assert_close(case.u.norm(dim=-1), torch.ones(2000, dtype=torch.float64))
    assert float((case.g**2).sum(-1).mean()) == pytest.approx(1.0, abs=0.02)
    assert (int(case.positions.min()), int(case.positions.max())) == (0, 99)


@pytest.mark.parametrize("noise", [0.5, 1.5])
def test_two_positions_follow_the_closed_form(noise: float) -> None:
    """With two candidates the error is the normal tail that the module states."""
    D, n = 32, 40_000
    row = recoverability((D,), (100.0,), (noise,), (2,), vector="equal", samples=n).rows[0]
    alike = float(whorl.RoPE(D, base=100.0).frequencies().inv_freq.cos().mean())
    right = 0.5 * math.erfc(-math.sqrt(D * (1 - alike) / 2) / noise / math.sqrt(2))
    assert row.accuracy == pytest.approx(right, abs=4 * math.sqrt(right * (1 - right) / n))
    assert row.mean_error == pytest.approx(1 - row.accuracy)


def test_limits_of_no_noise_and_of_noise_alone() -> None:
    silent, loud = recoverability((16,), (1e4,), (0, 1e6), (64,), samples=4000).rows
    assert (silent.accuracy, silent.mean_error) == (1.0, 0.0)
    assert loud.accuracy == pytest.approx(1 / 64, abs=0.01)
    assert 64 / 3 * 0.8 < loud.mean_error < 64 / 2  # a guess


def test_four_times_the_width_is_worth_twice_the_noise() -> None:
    wide = recoverability((256,), (1e4,), (2.0,), (64,), samples=4000).rows[0]
    narrow = recoverability((64,), (1e4,), (1.0,), (64,), samples=4000).rows[0]
    assert wide.accuracy == pytest.approx(narrow.accuracy, abs=0.05)
    louder = recoverability((64,), (1e4,), (2.0,), (64,), samples=4000).rows[0]
    assert wide.accuracy > louder.accuracy + 0.2


def test_a_row_does_not_depend_on_the_others() -> None:
    many = recoverability((8, 16), (10.0, 1e4), (1.0, 2.0), (16, 32), samples=30, seed=5)
    alone = recoverability((16,), (1e4,), (2.0,), (32,), samples=30, seed=5).rows[0]
    assert alone in many.rows
    assert len(many.rows) == 16
    assert many == recoverability((8, 16), (10.0, 1e4), (1.0, 2.0), (16, 32), samples=30, seed=5)
    assert many != recoverability((8, 16), (10.0, 1e4), (1.0, 2.0), (16, 32), samples=30, seed=6)


def test_repeated_frequencies_keep_their_base() -> None:
    rows = recoverability((16,), (100.0,), (1.0,), (16,), distinct=4, samples=10).rows
    assert rows[0].base == 100.0
    theta = _build_rope(16, 100.0, 4).frequencies().inv_freq
    few = whorl.RoPE(8, base=100.0).frequencies().inv_freq
    assert torch.equal(theta, few.repeat_interleave(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dims": ()}, r"recoverability: head_dims must be a list of ints; got \(\)\."),
        ({"head_dims": (7,)}, r"head_dim must be even"),
        ({"bases": ()}, r"recoverability: bases must be a list of numbers; got \(\)\."),
        ({"noises": (-1.0,)}, r"noises must be a list of numbers >= 0, .*; got \(-1\.0,\)\."),
        ({"noises": "1"}, r"noises must be a list of numbers >= 0"),
        ({"noises": (math.nan,)}, r"noises must be a list of numbers >= 0"),
        ({"lengths": (1,)}, r"each of lengths must be an int >= 2"),
        ({"samples": 0}, r"samples must be an int >= 1"),
        ({"vector": "ones"}, r"vector must be 'random' or 'equal'; got 'ones'\."),
        ({"distinct": 3}, r"distinct must divide the number of pairs, .* got 3 for 8 pairs\."),
        ({"distinct": 9}, r"distinct must be an int >= 1 and at most 8; got 9\."),
        ({"seed": 0.5}, r"recoverability: seed must be an int of 64 bits; got 0\.5\."),
        ({"lengths": (2**20,), "samples": 2**20}, r"length 1,048,576 needs 17\.6 TB of memory"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recoverability(**{"head_dims": (16,), **options})
