"""MultiheadAttention: torch's module with an encoding inside."""

from typing import Any

import pytest
import torch
from torch import nn

import whorl


@pytest.mark.parametrize("bias", [True, False])
def test_is_that_of_torch_with_its_weights(bias: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(32, 4, bias=bias, batch_first=True).double()
    if bias:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    ours = whorl.MultiheadAttention.from_torch(theirs)
    x, y = torch.randn(2, 7, 32).double(), torch.randn(2, 9, 32).double()
    padded = torch.zeros(2, 9, dtype=torch.bool)
    padded[0, 6:] = True
    want, _ = theirs(x, y, y, key_padding_mask=padded)
    got = ours(x, y, y, mask=~padded)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    want, _ = theirs(x, x, x, attn_mask=future)
    torch.testing.assert_close(ours(x, causal=True), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "encoding", [whorl.RoPE(8), whorl.ALiBi(4), whorl.Shaw(4, 8, values="trained")], ids=repr
)
def test_the_encoding_acts_and_trains(encoding: whorl.Encoding) -> None:
    layer = whorl.MultiheadAttention(32, 4, num_kv_heads=2, encoding=encoding, causal=True).double()
    x = torch.randn(2, 6, 32).double()
    plain = whorl.MultiheadAttention(32, 4, num_kv_heads=2, causal=True).double()
    plain.load_state_dict(layer.state_dict(), strict=False)
    assert not torch.allclose(layer(x), plain(x))
    layer(x).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())
    last = layer(x)[:, -1]
    x[:, -1] += 1
    assert not torch.allclose(layer(x)[:, -1], last)


def test_initial_weights_are_those_of_torch() -> None:
    torch.manual_seed(0)
    ours, theirs = whorl.MultiheadAttention(64, 4), nn.MultiheadAttention(64, 4)
    # Theirs is Glorot over the three projections at once; ours over each.
    assert not any(proj.bias.any() for proj in (ours.q_proj, ours.k_proj, ours.out_proj))
    assert theirs.in_proj_weight.std() < ours.q_proj.weight.std() < 2 * theirs.in_proj_weight.std()


def test_dropout_in_training_only() -> None:
    layer = whorl.MultiheadAttention(32, 4, dropout=0.5)
    x = torch.randn(1, 6, 32)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    assert "32, heads 4" in repr(layer)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"d_model": 30}, ValueError, r"d_model = 30 does not divide into 4 heads; pass head_dim="),
        ({"num_heads": 0}, ValueError, r"num_heads must be a positive int; got 0"),
        ({"num_kv_heads": 3}, ValueError, r"num_kv_heads must divide num_heads = 4, because each"),
        ({"head_dim": 0}, ValueError, r"head_dim must be a positive int; got 0"),
        (
            {"encoding": "rope"},
            TypeError,
            r"encoding must be a whorl encoding, or None; got 'rope'",
        ),
    ],
)
def test_constructor_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="MultiheadAttention: .*" + message):
        whorl.MultiheadAttention(**{"d_model": 32, "num_heads": 4, **options})


def test_call_errors() -> None:
    layer = whorl.MultiheadAttention(32, 4)
    with pytest.raises(
        ValueError, match=r"key must be \[B, T, d_model\] with d_model = 32; got \[1"
    ):
        layer(torch.zeros(1, 5, 32), torch.zeros(1, 5, 16))
    with pytest.raises(ValueError, match=r"from_torch: kdim, vdim, add_bias_kv and add_zero_attn"):
        whorl.MultiheadAttention.from_torch(nn.MultiheadAttention(32, 4, add_zero_attn=True))
