"""DeBERTa equal to the attention of DeBERTa v1, v2 and v3 in transformers, with their weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.encodings import DeBERTa

H, D = 4, 6
DIM = H * D
TERMS = [("c2p",), ("p2c",), ("c2p", "p2c")]


def encoder(name: str, kind: str, **options: Any) -> Any:
    models = pytest.importorskip(f"transformers.models.{name}.modeling_{name}")
    torch.manual_seed(0)
    config = getattr(models, f"{kind}Config")(
        vocab_size=8,
        hidden_size=DIM,
        num_hidden_layers=1,
        num_attention_heads=H,
        intermediate_size=8,
        relative_attention=True,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **options,
    )
    made = getattr(models, f"{kind}Encoder")(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.5)
    return made


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (H, D)).transpose(1, 2)


def assert_same_weights(made: Any, ours: DeBERTa, q: Tensor, k: Tensor, x: Tensor) -> None:
    """Their attention weights, and from their logarithm the score up to a constant per row."""
    length, at = x.shape[1], torch.arange(x.shape[1])
    mask = torch.ones(2, 1, length, length)
    attend = made.layer[0].attention.self
    _, want = attend(
        x,
        mask,
        output_attentions=True,
        relative_pos=made.get_rel_pos(x),
        rel_embeddings=made.get_rel_embedding(),
    )
    score = (q @ k.mT + ours.content_score(q, k, at, at)) * ours.softmax_scale(D)
    torch.testing.assert_close(score.softmax(-1), want, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("length", [3, 30])
def test_v1(terms: tuple[str, ...], length: int) -> None:
    made = encoder("deberta", "Deberta", pos_att_type=list(terms), max_relative_positions=8)
    layer = made.layer[0].attention.self
    ours = DeBERTa(H, D, terms=terms, max_distance=8)
    state = {"vectors": made.rel_embeddings.weight}
    if "c2p" in terms:
        state |= {"key.weight": layer.pos_proj.weight, "key.bias": torch.zeros(DIM)}
    if "p2c" in terms:
        state |= {f"query.{n}": p for n, p in layer.pos_q_proj.named_parameters()}
    ours.load_state_dict(state)
    x = torch.randn(2, length, DIM) / 4
    q, k, _ = layer.transpose_for_scores(layer.in_proj(x)).chunk(3, dim=-1)
    q = q + heads(layer.q_bias[None, None])
    assert_same_weights(made, ours, q, k, x)
    at = torch.arange(length)
    scale = ours.softmax_scale(D)
    rows = made.rel_embeddings.weight
    want = layer.disentangled_att_bias(q * scale, k, made.get_rel_pos(x), rows, 1 + len(terms))
    got = ours.content_score(q, k, at, at) * scale
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("norm", ["none", "layer_norm"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("buckets", [-1, 8])
def test_v2_and_v3(terms: tuple[str, ...], norm: Any, shared: bool, buckets: int) -> None:
    made = encoder(
        "deberta_v2",
        "DebertaV2",
        pos_att_type=list(terms),
        max_relative_positions=20,
        position_buckets=buckets,
        share_att_key=shared,
        norm_rel_ebd=norm,
    )
    layer = made.layer[0].attention.self
    options: Any = {"buckets": "log", "position_buckets": buckets} if buckets > 0 else {}
    ours = DeBERTa(
        H,
        D,
        terms=terms,
        max_distance=20,
        norm=norm,
        projections="shared" if shared else "own",
        **options,
    )
    state = {"vectors": made.rel_embeddings.weight}
    if norm == "layer_norm":
        state |= {f"norm.{n}": p for n, p in made.LayerNorm.named_parameters()}
    if shared:
        ours.share(layer.query_proj, layer.key_proj)
    else:
        theirs = {"c2p": ("key", "pos_key_proj"), "p2c": ("query", "pos_query_proj")}
        for name, module in (theirs[term] for term in terms):
            own = getattr(layer, module).named_parameters()
            state |= {f"{name}.{n}": p for n, p in own}
    ours.load_state_dict(state)
    x, at = torch.randn(2, 50, DIM) / 4, torch.arange(50)
    q, k = heads(layer.query_proj(x)), heads(layer.key_proj(x))
    assert_same_weights(made, ours, q, k, x)
    want = layer.disentangled_attention_bias(
        q.flatten(0, 1),
        k.flatten(0, 1),
        made.get_rel_pos(x),
        made.get_rel_embedding(),
        1 + len(terms),
    )
    got = ours.content_score(q, k, at, at) * ours.softmax_scale(D)
    torch.testing.assert_close(got, want.view_as(got), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("count", "far"), [(256, 512), (32, 128), (4, 6), (64, 4096), (10, 1000)])
def test_log_buckets(count: int, far: int) -> None:
    models = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    distance = torch.arange(-2 * far, 2 * far + 1)
    bucket = models.make_log_bucket_position(distance, count, far).long()
    want = (bucket + count).clamp(0, 2 * count - 1)
    ours = DeBERTa(1, 2, buckets="log", position_buckets=count, max_distance=far)
    assert torch.equal(ours._find_buckets(distance, torch.zeros(1, dtype=torch.long))[:, 0], want)
