"""Attention by distance: of heads whose weights are known."""

import math
from typing import Any

import pytest
import torch

from whorl.analysis import attended


def causal(length: int) -> torch.Tensor:
    even = torch.ones(1, 1, length, length).tril()
    return even / even.sum(-1, keepdim=True)


def test_heads_that_are_known() -> None:
    n = 16
    here = torch.eye(n).view(1, 1, n, n)
    before = torch.zeros(1, 1, n, n)
    before[..., torch.arange(1, n), torch.arange(n - 1)] = 1.0
    before[..., 0, 0] = 1.0
    found = attended([torch.cat([here, before, causal(n)], 1)], name="made up")
    assert found.labels() == ("0", "1", "2-3", "4-7", "8-15")
    self_head, previous, even = found.heads
    assert self_head.shares == (1.0, 0.0, 0.0, 0.0, 0.0)
    assert self_head.mean_distance == self_head.entropy == 0.0
    assert previous.shares == (0.0, 1.0, 0.0, 0.0, 0.0)
    assert previous.mean_distance == 1.0
    assert even.shares == pytest.approx(found.uniform)
    assert sum(found.uniform) == pytest.approx(1.0)
    # Queries 8 .. 15 of 16, each with i + 1 keys.
    assert found.uniform[0] == pytest.approx(sum(1 / (i + 1) for i in range(8, 16)) / 8)
    assert even.entropy == pytest.approx(sum(math.log(i + 1) for i in range(8, 16)) / 8, rel=1e-6)
    assert even.first_token == pytest.approx(found.uniform[0], rel=1e-6)
    assert [(h.layer, h.head) for h in attended([causal(4), causal(4)]).heads] == [(0, 0), (1, 0)]


def test_keys_to_come_have_their_own_bin() -> None:
    found = attended([torch.full((2, 6, 6), 1 / 6)])
    assert found.labels() == ("to come", "0", "1", "2-3", "4-5")
    assert found.heads[0].shares == pytest.approx(found.uniform)
    assert len(found.heads) == 2


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], r"attended: weights must have at least one layer; got none\."),
        ([torch.ones(2, 3)], r"weights of layer 0 must be \[B, H, T, T\] .*; got \[2, 3\]\."),
        ([causal(4), torch.ones(1, 2, 3)], r"weights of layer 1 must be"),
        (["no"], r"got str\."),
        (
            [torch.ones(1, 4, 4)],
            r"rows of weights of layer 0 must sum to 1 and not be negative; got sums",
        ),
        ([causal(4), causal(5)], r"all layers must have the same length; got \[4, 5\]\."),
    ],
)
def test_errors(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attended(weights)
