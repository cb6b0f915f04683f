"""Whole decoders of transformers rebuilt on whorl: Llama, GPT-NeoX, BLOOM, T5.

Padding is on the left, as in generation, or in the middle; positions count tokens or slots.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from whorl import RoPE
from whorl.encodings import ALiBi, Encoding, T5Bias
from whorl.scaling import Scaling

from .models import DIM, LAYERS, D, H, Padding, attend, batch, compare, heads, merged, real, tiny

COUNTS: list[tuple[Padding, str]] = [
    ("none", "slots"),
    ("left", "slots"),
    ("left", "tokens"),
    ("middle", "tokens"),  # where the two ways to count differ in distances
]
ROTARY = {"rope_type": "default", "rope_theta": 100.0}
SCALINGS: dict[str, tuple[Scaling, dict[str, Any]]] = {
    "linear": (whorl.Linear(factor=4.0), {"factor": 4.0}),
    "llama3": (
        whorl.Llama3(factor=8.0, original_context=32),
        {
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    ),
    "yarn": (
        whorl.YaRN(factor=4.0, original_context=16),
        {"factor": 4.0, "original_max_position_embeddings": 16},
    ),
}


def counted(mask: Tensor | None, count: str = "tokens") -> Tensor | None:
    """Positions that skip padding, perhaps with gaps between them; None for those of the slots."""
    if mask is None or count == "slots":
        return None
    return whorl.positions.from_mask(mask) * (2 if count == "gaps" else 1)


def llama(
    model: Any, ids: Tensor, mask: Tensor | None, positions: Tensor | None, encoding: Encoding
) -> Tensor:
    x = model.embed_tokens(ids)
    for layer in model.layers:
        part, h = layer.self_attn, layer.input_layernorm(x)
        q, k, v = (heads(p(h)) for p in (part.q_proj, part.k_proj, part.v_proj))
        out = attend(q, k, v, encoding, causal=True, positions=positions, mask=mask)
        x = x + part.o_proj(merged(out))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.norm(x)


def tiny_llama(**options: Any) -> Any:
    return tiny(
        "llama",
        "LlamaModel",
        "LlamaConfig",
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=H,
        num_key_value_heads=2,
        intermediate_size=DIM,
        max_position_embeddings=64,
        **options,
    )


@torch.no_grad()
@pytest.mark.parametrize(("padding", "count"), [*COUNTS, ("left", "gaps")])
def test_llama_with_grouped_heads(padding: Padding, count: str) -> None:
    model = tiny_llama(rope_parameters=ROTARY)
    ids, mask = batch(padding)
    at = counted(mask, count)
    want = model(ids, attention_mask=mask, position_ids=at).last_hidden_state
    right, wrong = (RoPE(D, base=100.0, layout=name) for name in ("half", "interleaved"))
    compare(lambda encoding: llama(model, ids, mask, at, encoding), right, wrong, want, mask)


@torch.no_grad()
@pytest.mark.parametrize("name", list(SCALINGS))
def test_llama_with_scaled_frequencies(name: str) -> None:
    scaling, options = SCALINGS[name]
    model = tiny_llama(rope_parameters={**ROTARY, "rope_type": name, **options})
    ids, mask = batch("left")
    at = counted(mask)
    want = model(ids, attention_mask=mask, position_ids=at).last_hidden_state
    right, wrong = RoPE(D, base=100.0, scaling=scaling), RoPE(D, base=100.0)
    compare(lambda encoding: llama(model, ids, mask, at, encoding), right, wrong, want, mask)


def gpt_neox(
    model: Any, ids: Tensor, mask: Tensor | None, positions: Tensor | None, encoding: Encoding
) -> Tensor:
    x = model.embed_in(ids)
    for layer in model.layers:
        fused = heads(layer.attention.query_key_value(layer.input_layernorm(x)), 3 * D)
        q, k, v = fused.chunk(3, dim=-1)
        out = attend(q, k, v, encoding, causal=True, positions=positions, mask=mask)
        attended = x + layer.attention.dense(merged(out))
        fed = x if layer.use_parallel_residual else attended
        x = attended + layer.mlp(layer.post_attention_layernorm(fed))
    return model.final_layer_norm(x)


@torch.no_grad()
@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("padding", ["none", "left"])
def test_gpt_neox_rotates_half_of_the_head(padding: Padding, parallel: bool) -> None:
    model = tiny(
        "gpt_neox",
        "GPTNeoXModel",
        "GPTNeoXConfig",
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=H,
        intermediate_size=DIM,
        use_parallel_residual=parallel,
        rope_parameters={**ROTARY, "partial_rotary_factor": 0.5},
    )
    ids, mask = batch(padding)
    at = counted(mask)
    want = model(ids, attention_mask=mask, position_ids=at).last_hidden_state
    right, wrong = RoPE(D, base=100.0, rotary_dim=D // 2), RoPE(D, base=100.0)
    compare(lambda encoding: gpt_neox(model, ids, mask, at, encoding), right, wrong, want, mask)


def bloom(
    model: Any, ids: Tensor, mask: Tensor | None, positions: Tensor | None, encoding: Encoding
) -> Tensor:
    x = model.word_embeddings_layernorm(model.word_embeddings(ids))
    for block in model.h:
        part = block.self_attention
        fused = part.query_key_value(block.input_layernorm(x)).unflatten(-1, (-1, 3, D))
        q, k, v = (t.squeeze(3).transpose(1, 2) for t in fused.chunk(3, dim=3))
        out = attend(q, k, v, encoding, causal=True, positions=positions, mask=mask)
        x = x + part.dense(merged(out))
        x = block.mlp(block.post_attention_layernorm(x), x)  # which adds the second argument
    return model.ln_f(x)


@torch.no_grad()
@pytest.mark.parametrize("num_heads", [4, 6])
@pytest.mark.parametrize(("padding", "count"), COUNTS)
def test_bloom(padding: Padding, count: str, num_heads: int) -> None:
    model = tiny(
        "bloom",
        "BloomModel",
        "BloomConfig",
        hidden_size=num_heads * D,
        n_layer=LAYERS,
        n_head=num_heads,
    )
    ids, mask = batch(padding)
    at = counted(mask, count)  # BLOOM counts tokens itself
    want = model(ids, attention_mask=mask).last_hidden_state
    right, wrong = ALiBi(num_heads), ALiBi(num_heads, max_bias=4)
    compare(lambda encoding: bloom(model, ids, mask, at, encoding), right, wrong, want, mask)


def t5_stack(
    stack: Any, ids: Tensor, mask: Tensor | None, bias: Encoding, source: tuple[Any, ...] = ()
) -> Tensor:
    """The encoder; or, with the encoder's output and mask as ``source``, the decoder."""
    x = stack.embed_tokens(ids)
    for block in stack.block:
        first, last = block.layer[0], block.layer[-1]
        part, h = first.SelfAttention, first.layer_norm(x)
        q, k, v = (heads(p(h)) for p in (part.q, part.k, part.v))
        x = x + part.o(merged(attend(q, k, v, bias, causal=bool(source), mask=mask)))
        x = last(x + t5_cross(block.layer[1], x, *source) if source else x)
    return stack.final_layer_norm(x)


def t5_cross(layer: Any, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
    """Attention to the encoder, which knows no positions and no softmax scale."""
    part = layer.EncDecAttention
    q, k, v = heads(part.q(layer.layer_norm(x))), heads(part.k(memory)), heads(part.v(memory))
    at, key_at = torch.arange(q.shape[2]), torch.arange(k.shape[2])  # T may be above S
    out = attend(q, k, v, scale=1.0, positions=at, key_positions=key_at, mask=mask)
    return part.o(merged(out))


def from_t5(model: Any) -> tuple[T5Bias, T5Bias]:
    """The two tables, which all layers of a stack share."""
    options: dict[str, Any] = {"num_buckets": 8, "max_distance": 20}
    dtype = model.shared.weight.dtype
    biases = T5Bias(H, **options).to(dtype), T5Bias(H, direction="causal", **options).to(dtype)
    for bias, stack in zip(biases, (model.encoder, model.decoder), strict=True):
        first = stack.block[0].layer[0].SelfAttention
        bias.load_state_dict(first.relative_attention_bias.state_dict())
    return biases


def tiny_t5(dtype: torch.dtype) -> Any:
    return tiny(
        "t5",
        "T5Model",
        "T5Config",
        d_model=DIM,
        d_kv=D,
        d_ff=DIM,
        num_heads=H,
        num_layers=LAYERS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
    ).to(dtype)


# Scores are not scaled down, so softmax is sharp and rounding counts for more. T5 keeps to the
# dtype of its weights, so float64 shows that it was rounding.
@torch.no_grad()
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 5e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("length", [11, 60])
@pytest.mark.parametrize(("padding", "out_padding"), [("none", "none"), ("right", "left")])
def test_t5(
    padding: Padding, out_padding: Padding, length: int, dtype: torch.dtype, atol: float
) -> None:
    model = tiny_t5(dtype)
    (ids, mask), (out_ids, out_mask) = batch(padding), batch(out_padding, length=length, seed=2)
    want = model(
        ids, attention_mask=mask, decoder_input_ids=out_ids, decoder_attention_mask=out_mask
    )

    def encoded(bias: Encoding) -> Tensor:
        return t5_stack(model.encoder, ids, mask, bias)

    def decoded(biases: tuple[Encoding, Encoding]) -> Tensor:
        source = (encoded(biases[0]), mask)
        return t5_stack(model.decoder, out_ids, out_mask, biases[1], source)

    to, fro = from_t5(model)
    compare(encoded, to, fro, want.encoder_last_hidden_state, mask, atol)
    compare(decoded, (to, fro), (to, to), want.last_hidden_state, out_mask, atol)


@pytest.mark.parametrize("padding", ["none", "right"])
def test_gradients_of_a_t5_encoder(padding: Padding) -> None:
    """Of the table of biases, and through two layers of attention of the embeddings."""
    model = tiny_t5(torch.float64)
    ids, mask = batch(padding)
    bias, _ = from_t5(model)
    theirs = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    out = real(model.encoder(ids, attention_mask=mask).last_hidden_state, mask)
    cotangent = torch.randn_like(out)
    want = torch.autograd.grad(out, (theirs, model.shared.weight), cotangent)
    ours = real(t5_stack(model.encoder, ids, mask, bias), mask)
    got = torch.autograd.grad(ours, (bias.weight, model.shared.weight), cotangent)
    for mine, their in zip(got, want, strict=True):
        assert float(their.abs().max()) > 1
        torch.testing.assert_close(mine, their, rtol=1e-9, atol=1e-9)
