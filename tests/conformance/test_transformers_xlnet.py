"""TransformerXL equal to the attention of XLNet, and of a Conformer, with their own weights."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.encodings import TransformerXL

H, D = 4, 6
DIM = H * D


def xlnet(clamp: int) -> tuple[Any, Any]:
    """A model for its sinusoids, and one attention layer."""
    models = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    torch.manual_seed(0)
    config = models.XLNetConfig(
        vocab_size=8, d_model=DIM, n_layer=1, n_head=H, d_inner=8, clamp_len=clamp, dropout=0.0
    )
    layer = models.XLNetRelativeAttention(config).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return models.XLNetModel(config), layer


def from_xlnet(layer: Any, **options: Any) -> TransformerXL:
    xl = TransformerXL(H, D, segments="xlnet", **options)
    mapping = {
        "u": layer.r_w_bias,
        "v": layer.r_r_bias,
        "projection": layer.r.flatten(1).T,
        "segment_bias": layer.r_s_bias,
        "segment_vectors": layer.seg_embed,
    }
    xl.load_state_dict(mapping)
    return xl


def their_score(layer: Any, q: Tensor, k: Tensor, rows: Tensor, segments: Tensor) -> Tensor:
    """What XLNet's rel_attn_core gives to softmax; q [B, H, T, D] goes in as [T, B, H, D]."""
    seen: list[Tensor] = []
    functional = torch.nn.functional

    def noted(score: Tensor, dim: int) -> Tensor:
        seen.append(score)
        return score.softmax(dim)

    softmax, functional.softmax = functional.softmax, noted  # type: ignore[assignment]
    try:
        q_head, k_head = q.permute(2, 0, 1, 3), k.permute(2, 0, 1, 3)
        k_rows = torch.einsum("ibh,hnd->ibnd", rows, layer.r)
        layer.rel_attn_core(q_head, k_head, k_head, k_rows, seg_mat=segments)
    finally:
        functional.softmax = softmax
    return seen[0]


@torch.no_grad()
@pytest.mark.parametrize("clamp", [-1, 5])
@pytest.mark.parametrize(("T", "memory"), [(9, 0), (1, 12), (5, 8), (40, 40)])
def test_xlnet_score_with_memory_segments_and_clamp(T: int, memory: int, clamp: int) -> None:
    model, layer = xlnet(clamp)
    xl = from_xlnet(layer, clamp=clamp if clamp > 0 else None)
    S = memory + T
    q = torch.einsum("bth,hnd->bntd", torch.randn(2, T, DIM) / 4, layer.q)
    k = torch.einsum("bth,hnd->bntd", torch.randn(2, S, DIM) / 4, layer.k)
    mine, theirs = torch.randint(0, 2, (2, T)), torch.randint(0, 2, (2, S))
    other = (mine.T[:, None] != theirs.T[None, :]).long()  # [T, S, B]
    one_hot = torch.nn.functional.one_hot(other, 2).float()
    rows = model.relative_positional_encoding(T, S, bsz=2)
    want = their_score(layer, q, k, rows, one_hot)
    at, key_at = torch.arange(memory, S), torch.arange(S)
    term = xl.content_score(q, k, at, key_at, segments=mine, key_segments=theirs)
    got = (q @ k.mT + term) * D**-0.5
    largest = float(want.abs().max())
    torch.testing.assert_close(got / largest, want / largest, rtol=0, atol=1e-6)


@torch.no_grad()
def test_xlnet_attention_weights_without_segments() -> None:
    model, layer = xlnet(-1)
    x, at = torch.randn(2, 11, DIM) / 4, torch.arange(11)
    rows = model.relative_positional_encoding(11, 11, bsz=2)
    h = x.transpose(0, 1)
    _, _, want = layer(h, None, None, None, rows, None, output_attentions=True)
    q, k = (torch.einsum("bth,hnd->bntd", x, w) for w in (layer.q, layer.k))
    score = (q @ k.mT + from_xlnet(layer).content_score(q, k, at, at)) * D**-0.5
    torch.testing.assert_close(score.softmax(-1), want.permute(2, 3, 0, 1), rtol=0, atol=1e-5)


@torch.no_grad()
def test_conformer_with_relative_positions() -> None:
    models = pytest.importorskip("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert")
    torch.manual_seed(0)
    config = SimpleNamespace(
        hidden_size=DIM,
        num_attention_heads=H,
        position_embeddings_type="relative",
        max_source_positions=64,
        attention_dropout=0.0,
        _attn_implementation="eager",
    )
    layer = models.Wav2Vec2BertSelfAttention(config).eval()
    layer.pos_bias_u.normal_()
    layer.pos_bias_v.normal_()
    columns = layer.linear_pos.weight
    xl = TransformerXL(H, D)
    xl.load_state_dict(
        {
            "u": layer.pos_bias_u,
            "v": layer.pos_bias_v,
            "projection": torch.cat((columns[:, 0::2], columns[:, 1::2]), dim=1),
        }
    )
    x, at = torch.randn(2, 30, DIM), torch.arange(30)
    _, want = layer(
        x, relative_position_embeddings=models.Wav2Vec2BertRelPositionalEmbedding(config)(x)
    )
    q, k = (y(x).unflatten(-1, (H, D)).transpose(1, 2) for y in (layer.linear_q, layer.linear_k))
    score = (q @ k.mT + xl.content_score(q, k, at, at)) * D**-0.5
    torch.testing.assert_close(score.softmax(-1), want, rtol=0, atol=1e-6)
