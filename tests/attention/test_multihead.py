"""MultiheadAttention: torch's module with an encoding inside."""

import inspect
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
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    want, _ = theirs(x, x, x, attn_mask=future)
    torch.testing.assert_close(ours(x, causal=True), want, rtol=1e-12, atol=1e-12)


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
    """Uniform over the same range: the largest of many weights and their deviation say so."""
    torch.manual_seed(0)
    ours, theirs = whorl.MultiheadAttention(256, 4), nn.MultiheadAttention(256, 4)
    for proj in (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj):
        assert not proj.bias.any()
    pairs = [(proj.weight, theirs.in_proj_weight) for proj in (ours.q_proj, ours.k_proj)]
    for mine, other in [*pairs, (ours.out_proj.weight, theirs.out_proj.weight)]:
        torch.testing.assert_close(mine.abs().max(), other.abs().max(), rtol=1e-3, atol=0.0)
        torch.testing.assert_close(mine.std(), other.std(), rtol=0.02, atol=0.0)
    grouped = whorl.MultiheadAttention(256, 4, num_kv_heads=1)  # a stack of 256 + 64 + 64 rows
    bound = (6 / (256 + 384)) ** 0.5
    assert 0.99 * bound < float(grouped.k_proj.weight.detach().abs().max()) <= bound


def test_options_are_those_of_attention() -> None:
    torch.manual_seed(0)
    taken, known = (
        set(inspect.signature(f).parameters)
        for f in (whorl.attention, whorl.MultiheadAttention.forward)
    )
    own = {"q", "k", "v", "encoding", "dropout", "query_weight"}, {"self", "query", "key", "value"}
    assert taken - own[0] == known - own[1]
    layer = whorl.MultiheadAttention(32, 4).double()
    x = torch.randn(1, 6, 32).double()
    doubled = layer(x, scale=2 * 8**-0.5)
    layer.q_proj.weight.data *= 2
    torch.testing.assert_close(doubled, layer(x))
    torch.testing.assert_close(layer(x, causal=True, block=2), layer(x, causal=True))
    xlnet = whorl.TransformerXL(4, 8, segments="xlnet")
    nn.init.normal_(xlnet.segment_vectors)
    layer = whorl.MultiheadAttention(32, 4, encoding=xlnet).double()
    told = layer(x, segments=torch.tensor([0, 0, 0, 1, 1, 1]))
    assert not torch.allclose(told, layer(x, segments=torch.zeros(6, dtype=torch.int64)))


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
        (
            {"d_model": 30},
            ValueError,
            r"d_model must be divisible by num_heads = 4, because .* got 30. Pass head_dim=",
        ),
        ({"num_heads": 0}, ValueError, r"num_heads must be a positive int up to 2\^62; got 0"),
        ({"num_kv_heads": 3}, ValueError, r"num_kv_heads must divide num_heads = 4, because each"),
        ({"head_dim": 0}, ValueError, r"head_dim must be a positive int up to 2\^62; got 0"),
        ({"dropout": 2}, ValueError, r"dropout must be a number in \[0, 1\); got 2\."),
        (
            {"encoding": whorl.RoPE(16)},
            ValueError,
            r"encoding must have head_dim=8 as the layer; got 16 in RoPE\(16\)\.",
        ),
        (
            {"encoding": whorl.RoPE(8) + whorl.ALiBi(3)},
            ValueError,
            r"encoding must have num_heads=4 as the layer; got 3 in ALiBi\(3\)\.",
        ),
        (
            {"encoding": whorl.AxialRoPE(8, frequencies="mixed", num_kv_heads=2)},
            ValueError,
            r"got 2 in .* Build it with num_kv_heads=4\.",
        ),
        (
            {"encoding": whorl.Sinusoidal(32) + whorl.NoPE()},
            ValueError,
            r"encoding must act in attention, because .* got Sinusoidal\(32\) \+ NoPE\(\)\. Call",
        ),
        (
            {"encoding": "rope"},
            TypeError,
            r"encoding must be a whorl\.Encoding such as .*, or None; got 'rope'",
        ),
    ],
)
def test_constructor_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="MultiheadAttention: .*" + message):
        whorl.MultiheadAttention(**{"d_model": 32, "num_heads": 4, **options})


def test_encodings_of_embeddings_beside_others_and_none_at_all_are_welcome() -> None:
    x = torch.randn(1, 5, 32)
    for encoding in (whorl.Sinusoidal(32) + whorl.RoPE(8), whorl.NoPE()):
        assert whorl.MultiheadAttention(32, 4, encoding=encoding)(x).shape == x.shape


def test_a_mask_of_queries_and_keys() -> None:
    """That of torch, inverted; where T = B it may be one of padding, and is refused."""
    theirs = nn.MultiheadAttention(32, 4, batch_first=True).double()
    ours, x, y = whorl.MultiheadAttention.from_torch(theirs), *torch.randn(2, 3, 5, 32).double()
    hidden = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)) > 0.6
    hidden.fill_diagonal_(False)
    want, _ = theirs(x, y, y, attn_mask=hidden)
    torch.testing.assert_close(ours(x, y, mask=~hidden), want, rtol=1e-12, atol=1e-12)
    either = hidden[:3]
    with pytest.raises(
        ValueError,
        match=r"mask must have four axes if B = T = 3, because \[3, 5\] may be \[B, S\], padding,"
        r" or .* Pass mask\[:, None, None\] for padding, mask\[None, None\] for",
    ):
        ours(x[:, :3], y, mask=~either)
    want, _ = theirs(x[:, :3], y, y, key_padding_mask=either)
    got = ours(x[:, :3], y, mask=~either[:, None, None])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    want, _ = theirs(x[:, :3], y, y, attn_mask=either)
    got = ours(x[:, :3], y, mask=~either[None, None])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    want, _ = theirs(x[:1, :1], y[:1], y[:1], attn_mask=either[:1])  # the same either way
    got = ours(x[:1, :1], y[:1], mask=~either[:1])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_from_torch_keeps_the_mode() -> None:
    theirs = nn.MultiheadAttention(32, 4, dropout=0.5, batch_first=True)
    assert whorl.MultiheadAttention.from_torch(theirs).training
    ours = whorl.MultiheadAttention.from_torch(theirs.eval(), whorl.RoPE(8))
    assert not any(module.training for module in ours.modules())
    assert ours.dropout == 0.5


def test_call_errors() -> None:
    layer = whorl.MultiheadAttention(32, 4)
    with pytest.raises(
        ValueError, match=r"got \[5, 32\]\. For one sequence .* query\.unsqueeze\(0"
    ):
        layer(torch.zeros(5, 32))
    with pytest.raises(
        ValueError, match=r"key must be \[B, T, d_model\] with d_model = 32; got \[1"
    ):
        layer(torch.zeros(1, 5, 32), torch.zeros(1, 5, 16))
    with pytest.raises(TypeError, match=r"query must be \[B, T, d_model\] .* = 32; got NoneType"):
        layer(None)
    theirs = nn.MultiheadAttention(32, 4, add_zero_attn=True, batch_first=True)
    with pytest.raises(
        ValueError, match=r"from_torch: module must be built without kdim, vdim, add_bias_kv and"
    ):
        whorl.MultiheadAttention.from_torch(theirs)
    with pytest.raises(
        ValueError, match=r"module must have batch_first=True, because inputs \[T, B"
    ):
        whorl.MultiheadAttention.from_torch(nn.MultiheadAttention(32, 4))
    with pytest.raises(TypeError, match=r"must be an nn\.MultiheadAttention; got Linear\."):
        whorl.MultiheadAttention.from_torch(nn.Linear(2, 2))  # type: ignore[arg-type]
