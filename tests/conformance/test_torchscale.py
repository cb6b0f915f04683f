"""torchscale's XPOS, prefill: equal scores, from one's own reference to the other's."""

import pytest
import torch

import whorl

xpos_module = pytest.importorskip("torchscale.component.xpos_relative_position")


@pytest.mark.parametrize(("length", "head_dim"), [(7, 16), (64, 64), (301, 128)])
def test_scores_equal(length: int, head_dim: int) -> None:
    peer = xpos_module.XPOS(head_dim)
    ours = whorl.XPos(head_dim, layout="interleaved")
    q, k = torch.randn(3, length, head_dim), torch.randn(3, length, head_dim)
    theirs = peer(q, downscale=False) @ peer(k, downscale=True).mT
    mine = ours(q.unsqueeze(1), k.unsqueeze(1))
    scores = (mine[0] @ mine[1].mT).squeeze(1)
    causal = torch.ones(length, length).tril()
    # Their angles are float32: 3e-5 at 301 positions, times the norms of the vectors.
    tolerance = 1e-5 * head_dim
    assert ((scores - theirs) * causal).abs().max() < tolerance
