"""Shaw equal to "relative_key" attention in transformers, with that module's own weights."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.encodings import Shaw

H, D = 4, 6
LEFT, RIGHT = 7, 3


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, D)).transpose(1, 2)


def module(name: str, kind: str) -> Any:
    models = pytest.importorskip(f"transformers.models.{name}.modeling_{name}")
    torch.manual_seed(0)
    config = SimpleNamespace(
        hidden_size=H * D,
        num_attention_heads=H,
        speech_encoder_attention_heads=H,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=LEFT,
        right_max_position_embeddings=RIGHT,
        attention_dropout=0.0,
        speech_encoder_dropout=0.0,
        _attn_implementation="eager",
    )
    return getattr(models, kind)(config).eval()


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 4, 23])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("wav2vec2_bert", "Wav2Vec2BertSelfAttention"),
        ("seamless_m4t_v2", "SeamlessM4Tv2ConformerSelfAttention"),
    ],
)
def test_attention_weights_and_outputs(name: str, kind: str, length: int) -> None:
    theirs = module(name, kind)
    shaw = Shaw(H, D, left=LEFT, right=RIGHT)
    shaw.load_state_dict({"key_vectors": theirs.distance_embedding.weight})
    x, at = torch.randn(2, length, H * D), torch.arange(length)
    q, k, v = (heads(linear(x)) for linear in (theirs.linear_q, theirs.linear_k, theirs.linear_v))
    weights = ((q @ k.mT + shaw.content_score(q, k, at, at)) * D**-0.5).softmax(-1)
    out, their_weights = theirs(x)
    torch.testing.assert_close(weights, their_weights, rtol=0, atol=1e-6)
    ours = theirs.linear_out((weights @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(ours, out, rtol=0, atol=1e-6)


@torch.no_grad()
def test_score_itself() -> None:
    models = pytest.importorskip("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert")
    theirs = module("wav2vec2_bert", "Wav2Vec2BertSelfAttention")
    shaw = Shaw(H, D, left=LEFT, right=RIGHT)
    shaw.load_state_dict({"key_vectors": theirs.distance_embedding.weight})
    q, k = torch.randn(2, H, 20, D), torch.randn(2, H, 20, D)
    _, bias = models._apply_relative_key_position_encoding(theirs, q, k)
    at = torch.arange(20)
    ours = shaw.content_score(q, k, at, at) * D**-0.5
    torch.testing.assert_close(ours, bias, rtol=0, atol=1e-6)
