"""Shares of the heads of an encoding, and what cannot be shared."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import whorl


@dataclass(frozen=True)
class ByHeadConfig(whorl.Config):
    num_heads: int


class ByHead(whorl.Encoding):
    """Does not say which axis of its parameters is that of the heads."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.config = ByHeadConfig(num_heads)


def test_alibi_keeps_the_slopes_of_all_heads() -> None:
    whole = whorl.ALiBi(12, max_bias=6.0)
    thirds: Any = [whole.shard_heads(rank, 3) for rank in range(3)]
    assert repr(thirds[1]) == "ALiBi(4, max_bias=6.0, first_head=4, total_heads=12)"
    slopes = [slope for third in thirds for slope in third.slopes().tolist()]
    assert slopes == whole.slopes().tolist()
    assert thirds[1].slopes().tolist() != whorl.ALiBi(4, max_bias=6.0).slopes().tolist()
    again: Any = thirds[2].shard_heads(1, 2)
    assert again.slopes().tolist() == whole.slopes().tolist()[10:]
    with pytest.raises(ValueError, match=r"first_head \+ num_heads must be at most.*3 \+ 2 of 4\."):
        whorl.ALiBi(2, first_head=3, total_heads=4)


@pytest.mark.slow  # the first parameters on the meta device take a second
def test_gradients_go_to_the_parameters_of_the_whole() -> None:
    whole = whorl.T5Bias(4).train(False)
    share: Any = whole.shard_heads(1, 2)
    assert not share.training
    share.distance_bias(torch.arange(3)).sum().backward()
    gradient: Any = whole.weight.grad
    assert gradient.sum(0).tolist() == [0.0, 0.0, 3.0, 3.0]
    assert whorl.from_dict(share.to_dict()).config == share.config


@pytest.mark.slow  # the first parameters on the meta device take a second
def test_encodings_without_heads_are_returned() -> None:
    rope = whorl.RoPE(16)
    assert rope.shard_heads(1, 2) is rope
    both = rope + whorl.Kerple(4)
    assert repr(both.shard_heads(0, 2)) == "RoPE(16) + Kerple(2)"
    assert both.head_axes == {"_parts.1.raw_r1": 0, "_parts.1.raw_r2": 0}
    assert (rope + ByHead(4)).head_axes is None


@pytest.mark.slow  # the first parameters on the meta device take a second
def test_shared_projections_must_be_handed_over_anew() -> None:
    shared = whorl.DeBERTa(4, 8, projections="shared", max_distance=4)
    q_proj, k_proj = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
    assert shared.list_outer_parameters() == []
    shared.share(q_proj, k_proj)
    assert len((shared + whorl.NoPE()).list_outer_parameters()) == 4
    q, at = torch.randn(1, 2, 3, 8), torch.arange(3)
    with pytest.raises(RuntimeError, match=r"but none came; call encoding\.share"):
        shared.shard_heads(0, 2).content_score(q, q, at, at)


@pytest.mark.parametrize(
    ("share", "message"),
    [
        ((2, 2), r"ALiBi\.shard_heads: rank must be an int in 0 \.\. world - 1.*rank 2 of world 2"),
        ((0, 0), "rank 0 of world 0"),
        ((0, 1.0), r"rank 0 of world 1\.0"),
        ((0, 3), r"ALiBi\.shard_heads: num_heads must be divisible by world.*got 4 for world 3"),
    ],
)
def test_wrong_shares_are_refused(share: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        whorl.ALiBi(4).shard_heads(*share)


def test_an_encoding_that_does_not_say_how_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the class must declare head_axes.*it has num_heads"):
        ByHead(4).shard_heads(0, 2)
