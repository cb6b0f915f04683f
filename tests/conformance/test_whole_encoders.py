"""Whole encoders of transformers rebuilt on whorl: MPNet, DeBERTa v1 to v3, XLNet, RoFormer."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl import RoPE
from whorl.encodings import DeBERTa, Encoding, Sinusoidal, T5Bias, TransformerXL

from .models import DIM, LAYERS, D, H, Padding, attend, batch, compare, heads, merged, tiny

SIZES = {
    "hidden_size": DIM,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": H,
    "intermediate_size": DIM,
}


def fed(layer: Any, x: Tensor) -> Tensor:
    """The feed-forward half of a layer in BERT's manner."""
    return layer.output(layer.intermediate(x), x)


def mpnet(model: Any, ids: Tensor, mask: Tensor | None, encoding: Encoding) -> Tensor:
    x = model.embeddings(ids)
    for layer in model.encoder.layer:
        part = layer.attention.attn
        q, k, v = (heads(p(x)) for p in (part.q, part.k, part.v))
        out = part.o(merged(attend(q, k, v, encoding, mask=mask)))
        x = fed(layer, layer.attention.LayerNorm(out + x))
    return x


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("padding", ["none", "right"])
def test_mpnet(padding: Padding, dtype: torch.dtype, atol: float) -> None:
    model = tiny("mpnet", "MPNetModel", "MPNetConfig", **SIZES).to(dtype)
    ids, mask = batch(padding, pad=1)
    want = model(ids, attention_mask=mask).last_hidden_state
    right, wrong = T5Bias(H, scale=None), T5Bias(H, scale=None, max_distance=30)
    for bias in (right, wrong):
        bias.to(dtype).load_state_dict(model.encoder.relative_attention_bias.state_dict())
    compare(lambda encoding: mpnet(model, ids, mask, encoding), right, wrong, want, mask, atol)


def deberta(
    model: Any,
    ids: Tensor,
    mask: Tensor | None,
    split: Callable[[Any, Tensor], Sequence[Tensor]],
    encodings: Sequence[Encoding],
) -> Tensor:
    """Either version, which differ in how ``split`` makes queries, keys and values."""
    kept = torch.ones_like(ids) if mask is None else mask
    x = start = model.embeddings(ids, mask=kept)
    for n, (layer, encoding) in enumerate(zip(model.encoder.layer, encodings, strict=True)):
        q, k, v = split(layer.attention.self, x)
        out = merged(attend(q, k, v, encoding, mask=mask))
        x = fed(layer, layer.attention.output(out, x))
        if n == 0 and getattr(model.encoder, "conv", None) is not None:
            x = model.encoder.conv(start, x, kept)
    return x


def fused(part: Any, x: Tensor) -> Sequence[Tensor]:
    """v1: one projection for all, head by head; biases of queries and values only."""
    q, k, v = heads(part.in_proj(x), 3 * D).chunk(3, dim=-1)
    return q + heads(part.q_bias[None, None]), k, v + heads(part.v_bias[None, None])


def apart(part: Any, x: Tensor) -> Sequence[Tensor]:
    return [heads(p(x)) for p in (part.query_proj, part.key_proj, part.value_proj)]


def tied(encodings: list[DeBERTa]) -> list[DeBERTa]:
    """One P, and one norm of it, for all layers."""
    for other in encodings[1:]:
        other.vectors = encodings[0].vectors
        if encodings[0].config.norm == "layer_norm":
            other.norm = encodings[0].norm
    return encodings


def from_v1(model: Any) -> list[DeBERTa]:
    made = []
    for layer in model.encoder.layer:
        part = layer.attention.self
        encoding = DeBERTa(H, D, max_distance=8)
        state = {f"query.{n}": p for n, p in part.pos_q_proj.named_parameters()}
        state |= {"key.weight": part.pos_proj.weight, "key.bias": torch.zeros(DIM)}
        encoding.load_state_dict({"vectors": model.encoder.rel_embeddings.weight, **state})
        made.append(encoding)
    return tied(made)


@torch.no_grad()
@pytest.mark.parametrize("padding", ["none", "right"])
def test_deberta_v1(padding: Padding) -> None:
    model = tiny(
        "deberta",
        "DebertaModel",
        "DebertaConfig",
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        max_relative_positions=8,
        position_biased_input=False,
        **SIZES,
    )
    ids, mask = batch(padding)
    want = model(ids, attention_mask=mask).last_hidden_state
    right, wrong = from_v1(model), from_v1(model)
    for encoding in wrong:
        encoding.load_state_dict(encoding.state_dict() | {"query.bias": torch.zeros(DIM)})
    compare(lambda encodings: deberta(model, ids, mask, fused, encodings), right, wrong, want, mask)


def from_v2(model: Any, max_distance: int) -> list[DeBERTa]:
    made = []
    for layer in model.encoder.layer:
        part = layer.attention.self
        encoding = DeBERTa(
            H,
            D,
            buckets="log",
            position_buckets=8,
            max_distance=max_distance,
            projections="shared" if part.share_att_key else "own",
            norm="layer_norm",
        )
        state = {"vectors": model.encoder.rel_embeddings.weight}
        state |= {f"norm.{n}": p for n, p in model.encoder.LayerNorm.named_parameters()}
        if part.share_att_key:
            encoding.share(part.query_proj, part.key_proj)
        else:
            state |= {f"key.{n}": p for n, p in part.pos_key_proj.named_parameters()}
            state |= {f"query.{n}": p for n, p in part.pos_query_proj.named_parameters()}
        encoding.load_state_dict(state)
        made.append(encoding)
    return tied(made)


@torch.no_grad()
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("padding", ["none", "right"])
def test_deberta_v2_and_v3(padding: Padding, shared: bool) -> None:
    model = tiny(
        "deberta_v2",
        "DebertaV2Model",
        "DebertaV2Config",
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        max_relative_positions=20,
        position_buckets=8,
        share_att_key=shared,
        norm_rel_ebd="layer_norm",
        position_biased_input=False,
        conv_kernel_size=0 if shared else 3,  # v2 has models with it
        **SIZES,
    )
    ids, mask = batch(padding)
    want = model(ids, attention_mask=mask).last_hidden_state
    right, wrong = from_v2(model, 20), from_v2(model, 40)
    compare(lambda encodings: deberta(model, ids, mask, apart, encodings), right, wrong, want, mask)


def roformer(model: Any, ids: Tensor, mask: Tensor | None, encoding: RoPE) -> Tensor:
    x = model.embeddings(ids)
    for layer in model.encoder.layer:
        part = layer.attention.self
        q, k, v = (heads(p(x)) for p in (part.query, part.key, part.value))
        v = encoding.rotate(v) if part.rotary_value else v
        out = merged(attend(q, k, v, encoding, causal=part.is_decoder, mask=mask))
        x = fed(layer, layer.attention.output(out, x))
    return x


@torch.no_grad()
@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize("rotary_value", [False, True])
@pytest.mark.parametrize("padding", ["none", "right"])
def test_roformer(padding: Padding, rotary_value: bool, decoder: bool) -> None:
    model = tiny(
        "roformer",
        "RoFormerModel",
        "RoFormerConfig",
        embedding_size=DIM,
        max_position_embeddings=64,
        rotary_value=rotary_value,
        is_decoder=decoder,
        **SIZES,
    )
    table = Sinusoidal(D, order="concatenated").table(torch.arange(64))
    torch.testing.assert_close(model.encoder.embed_positions.weight, table, rtol=0, atol=1e-7)
    ids, mask = batch(padding)
    want = model(ids, attention_mask=mask).last_hidden_state
    right, wrong = RoPE(D, layout="interleaved"), RoPE(D)
    compare(lambda encoding: roformer(model, ids, mask, encoding), right, wrong, want, mask)


def from_xlnet(model: Any, clamp: int | None) -> list[TransformerXL]:
    made = []
    for layer in model.layer:
        part, xl = layer.rel_attn, TransformerXL(H, D, clamp=clamp, segments="xlnet")
        state = {"u": part.r_w_bias, "v": part.r_r_bias, "projection": part.r.flatten(1).T}
        state |= {"segment_bias": part.r_s_bias, "segment_vectors": part.seg_embed}
        xl.load_state_dict(state)
        made.append(xl)
    return made


def xlnet(
    model: Any,
    ids: Tensor,
    mask: Tensor | None,
    segments: Tensor | None,
    encodings: Sequence[TransformerXL],
    memory: Sequence[Tensor] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """The output, and the inputs of all layers, which are memory for the next stretch of text."""
    x, kept = model.word_embedding(ids), []
    past = 0 if memory is None else memory[0].shape[1]
    if past and mask is not None:  # all of the memory is seen
        mask = torch.nn.functional.pad(mask, (past, 0), value=1)
    if past and segments is not None:  # and counts as segment 0
        segments = torch.nn.functional.pad(segments, (past, 0))
    for n, (layer, xl) in enumerate(zip(model.layer, encodings, strict=True)):
        kept.append(x)
        part = layer.rel_attn
        keys = x if memory is None else torch.cat((memory[n], x), dim=1)
        q, k, v = (
            torch.einsum("bth,hnd->bntd", h, w)
            for h, w in ((x, part.q), (keys, part.k), (keys, part.v))
        )
        causal = model.attn_type == "uni"
        out = attend(q, k, v, xl, causal=causal, mask=mask, segments=segments)
        mixed = torch.einsum("bntd,hnd->bth", out, part.o)
        x = layer.ff(part.layer_norm(mixed + x))
    return x, kept


def tiny_xlnet(**options: Any) -> Any:
    sizes = {"d_model": DIM, "n_layer": LAYERS, "n_head": H, "d_inner": DIM, "mem_len": 64}
    return tiny("xlnet", "XLNetModel", "XLNetConfig", **sizes, **options)


def one_by_one(
    model: Any,
    ids: Tensor,
    mask: Tensor | None,
    segments: Tensor,
    memory: Sequence[Tensor] | None = None,
) -> Tensor:
    """The model's own output, row by row: with attn_type="uni" it fails on a mask of several."""
    outs = []
    for b in range(ids.shape[0]):
        row = slice(b, b + 1)
        out = model(
            ids[row],
            attention_mask=None if mask is None else mask[row],
            token_type_ids=segments[row],
            mems=None if memory is None else [m[:, row] for m in memory],  # [S, B, H D]
        )
        outs.append(out.last_hidden_state)
    return torch.cat(outs)


@torch.no_grad()
@pytest.mark.parametrize("clamp", [None, 10])
@pytest.mark.parametrize("kind", ["bi", "uni"])
@pytest.mark.parametrize("padding", ["none", "right"])
def test_xlnet_with_token_types_and_memory(padding: Padding, kind: str, clamp: int | None) -> None:
    model = tiny_xlnet(attn_type=kind, clamp_len=clamp or -1)
    first, _ = batch("none", length=30, seed=2)
    ids, mask = batch(padding)
    types = (torch.arange(ids.shape[1]) > torch.tensor([[12], [19]])).long()
    memory = model(first, use_mems=True).mems

    def rebuilt(encodings: list[TransformerXL]) -> Tensor:
        _, own = xlnet(model, first, None, None, encodings)
        return xlnet(model, ids, mask, types, encodings, own)[0]

    right, wrong = from_xlnet(model, clamp), from_xlnet(model, 3)
    compare(rebuilt, right, wrong, one_by_one(model, ids, mask, types, memory), mask)
    compare(
        lambda encodings: xlnet(model, ids, mask, types, encodings)[0],
        right,
        wrong,
        one_by_one(model, ids, mask, types),
        mask,
    )


@torch.no_grad()
def test_xlnet_without_token_types() -> None:
    """Token types change the output; without them the term is one that softmax ignores."""
    model = tiny_xlnet()
    ids, _ = batch("none")
    types = (torch.arange(ids.shape[1]) > 12).long().expand(2, -1)
    encodings = from_xlnet(model, None)
    with_types, without = (xlnet(model, ids, None, t, encodings)[0] for t in (types, None))
    assert float((with_types - without).abs().max()) > 0.1
    torch.testing.assert_close(without, model(ids).last_hidden_state, rtol=0, atol=1e-5)
