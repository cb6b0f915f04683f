"""Trained biases of T5, MPNet and Swin: their weights load as they are and give their biases."""

import importlib
import math
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from tests.peers import needs_transformers_5
from whorl.encodings import RelativeBias, T5Bias

pytestmark = needs_transformers_5

HEADS, D, T = 3, 8, 300
DIRECTIONS: tuple[Literal["bidirectional", "causal"], ...] = ("bidirectional", "causal")


def peer(model: str) -> Any:
    pytest.importorskip("transformers")
    return importlib.import_module(f"transformers.models.{model}.modeling_{model}")


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def square(length: int) -> Tensor:
    at = torch.arange(length)
    return at[:, None] - at[None, :]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"),
    [(32, 128), (32, 17), (64, 128), (8, 16), (6, 5), (12, 7), (32, 1000), (256, 10**6)],
)
def test_buckets_of_t5_bit_for_bit(
    num_buckets: int, max_distance: int, direction: Literal["bidirectional", "causal"]
) -> None:
    distance = torch.arange(-1_000_000, 1_000_001)
    want = peer("t5").T5Attention._relative_position_bucket(
        -distance, direction == "bidirectional", num_buckets, max_distance
    )
    bias = T5Bias(1, num_buckets=num_buckets, max_distance=max_distance, direction=direction)
    assert torch.equal(bias.buckets(distance), want)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_t5_attention(direction: Literal["bidirectional", "causal"]) -> None:
    t5 = peer("t5")
    config = t5.T5Config(
        d_model=HEADS * D,
        d_kv=D,
        num_heads=HEADS,
        is_decoder=direction == "causal",
        attn_implementation="eager",
    )
    attention = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    bias = T5Bias(HEADS, direction=direction)
    bias.load_state_dict(attention.relative_attention_bias.state_dict())
    x = random(1, T, HEADS * D)
    with torch.no_grad():
        given = bias.distance_bias(square(T))
        assert torch.equal(given, attention.compute_bias(T, T)[0])
        tail = bias.distance_bias(square(T)[-1:])  # one step of decoding
        assert torch.equal(tail, attention.compute_bias(1, T, past_seen_tokens=T - 1)[0])
        _, _, want = attention(x)
        q, k = (m(x).unflatten(-1, (HEADS, D)).transpose(1, 2) for m in (attention.q, attention.k))
        scale = bias.softmax_scale(D)
        assert scale == 1.0
        got = (q @ k.mT * scale + given).softmax(-1)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_mpnet_attention() -> None:
    mpnet = peer("mpnet")
    config = mpnet.MPNetConfig(
        hidden_size=HEADS * D, num_attention_heads=HEADS, num_hidden_layers=1, intermediate_size=8
    )
    encoder = mpnet.MPNetEncoder(config).eval()
    attention = encoder.layer[0].attention.attn
    bias = T5Bias(HEADS, scale=None)
    bias.load_state_dict(encoder.relative_attention_bias.state_dict())
    x = random(1, T, HEADS * D)
    with torch.no_grad():
        given = bias.distance_bias(square(T))
        theirs = encoder.compute_position_bias(x)
        assert torch.equal(given, theirs[0])
        _, want = attention(x, position_bias=theirs, output_attentions=True)
        q, k = (m(x).unflatten(-1, (HEADS, D)).transpose(1, 2) for m in (attention.q, attention.k))
        assert bias.softmax_scale(D) is None
        got = (q @ k.mT / math.sqrt(D) + given).softmax(-1)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_swin_window_of_one_row() -> None:
    width = 7
    swin = peer("swin").SwinRelativePositionBias(HEADS, (1, width))
    with torch.no_grad():
        swin.relative_position_bias_table.copy_(random(2 * width - 1, HEADS))
    bias = RelativeBias(HEADS, max_distance=width - 1)
    bias.load_state_dict({"weight": swin.relative_position_bias_table.detach()})
    with torch.no_grad():
        assert torch.equal(bias.distance_bias(square(width)), swin()[0])
