"""ALiBi of BLOOM, MPT and Falcon: the same slopes for every number of heads, the same attention."""

import importlib
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl.encodings import ALiBi

T, D = 23, 8


def peer(model: str) -> Any:
    pytest.importorskip("transformers")
    return importlib.import_module(f"transformers.models.{model}.modeling_{model}")


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def hidden(visible: Tensor) -> Tensor:
    """An additive mask that hides what is not visible."""
    return torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)


def probabilities(alibi: ALiBi, q: Tensor, k: Tensor, positions: Tensor, visible: Tensor) -> Tensor:
    distance = positions.unsqueeze(-1) - positions.unsqueeze(-2)  # [(B,) T, T]
    bias = alibi.distance_bias(distance).movedim(0, -3)  # [(B,) H, T, T]
    return (q @ k.mT / math.sqrt(D) + bias + hidden(visible)).softmax(-1)


@pytest.mark.parametrize("heads", range(1, 41))
def test_slopes(heads: int) -> None:
    ours = ALiBi(heads).slopes()
    ones = torch.ones(1, 2, dtype=torch.long)
    bloom = peer("bloom").build_alibi_tensor(ones, heads, torch.float32)[:, 0, 1]
    # BLOOM takes powers of a rounded base: the error of the base times the power.
    torch.testing.assert_close(bloom.double(), ours, rtol=heads * 2.0**-24, atol=0)
    mpt = -peer("mpt").build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
    torch.testing.assert_close(mpt.double(), ours, rtol=2.0**-21, atol=0)
    falcon = peer("falcon").build_alibi_tensor(ones, heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(falcon.double(), ours, rtol=2.0**-8, atol=0)  # bfloat16 slopes


@pytest.mark.parametrize("max_bias", [4, 8, 16])
def test_max_bias_of_mpt(max_bias: int) -> None:
    mpt = -peer("mpt").build_mpt_alibi_tensor(12, 2, alibi_bias_max=max_bias)[:, 0, 0]
    ours = ALiBi(12, max_bias=max_bias).slopes()
    torch.testing.assert_close(mpt.double(), ours, rtol=2.0**-20, atol=0)


@pytest.mark.parametrize("heads", [1, 3, 8, 11])
def test_bloom_attention_with_left_padding(heads: int) -> None:
    bloom = peer("bloom")
    config = bloom.BloomConfig(hidden_size=heads * D, n_head=heads, n_layer=1)
    attention = bloom.BloomAttention(config, layer_idx=0).eval()
    x = random(2, T, heads * D)
    mask = torch.ones(2, T, dtype=torch.long)
    mask[1, :5] = 0
    visible = (mask.bool()[:, None] & torch.ones(T, T).tril().bool()).unsqueeze(1)
    given = bloom.build_alibi_tensor(mask, heads, torch.float32)
    with torch.no_grad():
        _, want = attention(
            x, torch.zeros_like(x), given, attention_mask=hidden(visible), output_attentions=True
        )[:2]
        q, k, _ = attention._reshape(attention.query_key_value(x))
    got = probabilities(ALiBi(heads), q, k, whorl.positions.from_mask(mask), visible)
    real = mask.bool()[:, None, :, None].expand_as(got)  # rows of padding see nothing
    torch.testing.assert_close(got[real], want[real], rtol=0, atol=1e-6)


@pytest.mark.parametrize("heads", [1, 3, 8, 11])
def test_mpt_attention(heads: int) -> None:
    mpt = peer("mpt")
    config = mpt.MptConfig(d_model=heads * D, n_heads=heads, n_layers=1, max_seq_len=64)
    attention = mpt.MptAttention(config, layer_idx=0).eval()
    x = random(2, T, heads * D)
    visible = torch.ones(T, T).tril().bool()
    with torch.no_grad():
        given = mpt.build_mpt_alibi_tensor(heads, 64)
        _, want = attention(x, given, attention_mask=~visible)
        parts = attention.Wqkv(x).chunk(3, -1)
        q, k, _ = (t.unflatten(-1, (heads, D)).transpose(1, 2) for t in parts)
    got = probabilities(ALiBi(heads), q, k, torch.arange(T), visible)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_falcon_attention_scales_its_slopes_as_it_scales_scores() -> None:
    falcon = peer("falcon")
    heads = 8  # whose slopes bfloat16 holds exactly
    config = falcon.FalconConfig(
        hidden_size=heads * D,
        num_attention_heads=heads,
        alibi=True,
        multi_query=False,
        new_decoder_architecture=False,
        attn_implementation="eager",
    )
    attention = falcon.FalconAttention(config, layer_idx=0).eval()
    x = random(2, T, heads * D)
    visible = torch.ones(T, T).tril().bool()
    given = falcon.build_alibi_tensor(torch.ones(2, T, dtype=torch.long), heads, torch.float32)
    with torch.no_grad():
        torch.nn.init.normal_(attention.query_key_value.weight, std=0.3)
        _, want = attention(x, given, hidden(visible).expand(2, 1, T, T), output_attentions=True)
        q, k, _ = (t.transpose(1, 2) for t in attention._split_heads(attention.query_key_value(x)))
    alibi = ALiBi(heads, slope_scale=D**-0.5)
    got = probabilities(alibi, q, k, torch.arange(T), visible)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)
    other = probabilities(ALiBi(heads), q, k, torch.arange(T), visible)
    assert float((other - want).abs().max()) > 0.05


def test_far_keys_merge_in_falcon_and_not_here() -> None:
    ones = torch.ones(1, 2048, dtype=torch.long)
    theirs = peer("falcon").build_alibi_tensor(ones, 8, torch.float32)[0, 0]
    assert int((theirs.diff() == 0).sum()) > 1000  # products in bfloat16
    ours = ALiBi(8).distance_bias(torch.arange(2**24 - 2048, 2**24))[0]
    assert bool((ours.diff() < 0).all())
