"""RoFormer with other encodings: BERT of transformers, NEZHA as a loop, and trained in the lab."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from whorl import lab
from whorl.lab.architectures import build_model
from whorl.lab.attention import compute_attention
from whorl.lab.optimization import group_by_part, group_parameters
from whorl.lab.roformer import (
    ACTIVATIONS,
    RoFormer,
    RoFormerClassifier,
    RoFormerConfig,
    RoFormerLayer,
    RoFormerMaskedLM,
)
from whorl.lab.roformer_weights import load_roformer

SIZES: dict[str, Any] = {"vocab": 20, "width": 16, "layers": 2, "heads": 2, "inner": 24}
NEZHA = {"name": "shaw", "left": 3, "keys": "sinusoidal", "values": "sinusoidal"}
ENCODINGS: dict[str, Any] = {
    "rope": "rope",
    "learned": "learned",
    "nezha": NEZHA,
    "alibi": "alibi",
    "t5": "t5",
    "deberta": "deberta",
    "mrope": "mrope",
}


def build_random(encoding: Any, **options: Any) -> RoFormerMaskedLM:
    """A model in evaluation mode, all of whose parameters are random."""
    model = RoFormerMaskedLM(RoFormerConfig(**{**SIZES, "encoding": encoding, **options}))
    torch.manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model.eval()


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("per", ["model", "layer"])
def test_every_encoding(encoding: Any, per: Any) -> None:
    model = build_random(encoding, encoding_per=per, embedding_width=10)
    tokens = torch.arange(12).reshape(2, 6)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    logits = model(tokens, mask=mask)
    logits.square().sum().backward()
    for name, weight in model.named_parameters():
        # The bias of keys may move all scores of a query alike, and softmax does not see that.
        if not name.endswith("key.bias"):
            assert weight.grad is not None, name
            assert bool(weight.grad.any()), name
    changed = tokens.clone()
    changed[1, 4:] = 19  # padding, which no other token sees
    with torch.no_grad():
        torch.testing.assert_close(model(changed, mask=mask)[1, :4], logits[1, :4])
        difference = (model(tokens.flip(1)).flip(1) - model(tokens)).abs().max()
    # Only ALiBi is symmetric: it does not tell a text from its reverse.
    assert difference < 1e-5 if encoding == "alibi" else difference > 1e-3


def test_learned_positions_make_it_bert() -> None:
    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    torch.manual_seed(1)
    theirs = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    model = RoFormerMaskedLM(RoFormerConfig(**SIZES, encoding="learned", max_length=32)).eval()
    copy_bert(theirs, model)
    tokens, kinds = torch.randint(20, (2, 2, 9)).unbind()
    kinds, mask = kinds % 2, torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=mask, token_type_ids=kinds).logits
        found = model(tokens, mask=mask, token_types=kinds)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def copy_bert(theirs: Any, model: RoFormerMaskedLM) -> None:
    """Copy the weights of a BERT, module by module."""
    bert, encoder = theirs.bert, model.encoder
    pairs = [
        (bert.embeddings.word_embeddings, encoder.embedding),
        (bert.embeddings.token_type_embeddings, encoder.token_type_embedding),
        (bert.embeddings.position_embeddings, encoder.encoding),
        (bert.embeddings.LayerNorm, encoder.embedding_norm),
        (theirs.cls.predictions.transform.dense, model.head.dense),
        (theirs.cls.predictions.transform.LayerNorm, model.head.norm),
    ]
    for one, layer in zip(bert.encoder.layer, encoder.layers, strict=True):
        assert isinstance(layer, RoFormerLayer)
        pairs += [
            (one.attention.self.query, layer.query),
            (one.attention.self.key, layer.key),
            (one.attention.self.value, layer.value),
            (one.attention.output.dense, layer.out),
            (one.attention.output.LayerNorm, layer.attention_norm),
            (one.intermediate.dense, layer.up),
            (one.output.dense, layer.down),
            (one.output.LayerNorm, layer.mlp_norm),
        ]
    for source, target in pairs:
        target.load_state_dict(source.state_dict())
    model.head.bias.data.copy_(theirs.cls.predictions.bias)


def test_sinusoidal_keys_and_values_make_it_nezha() -> None:
    model = build_random(NEZHA, layers=1)
    layer, x = model.encoder.layers[0], torch.randn(1, 7, 16)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0]])
    assert isinstance(layer, RoFormerLayer)
    with torch.no_grad():
        found = layer(x, model.encoder.encoding, mask, None, None)[0]
        y = layer.out(attend_as_nezha(layer, x[0], visible=5))
        expected = layer.attention_norm(x[0] + y)
        inner = layer.down(ACTIVATIONS["gelu"](layer.up(expected)))
        expected = layer.mlp_norm(expected + inner)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def attend_as_nezha(layer: RoFormerLayer, x: Tensor, visible: int) -> Tensor:
    """Attention of tokens [T, C] with a vector for each distance clipped at 3, pair by pair."""
    T, D = len(x), 8
    q, k, v = (part(x).double().view(T, 2, D) for part in (layer.query, layer.key, layer.value))
    out = torch.zeros(T, 2, D, dtype=torch.float64)
    for h in range(2):
        for i in range(T):
            a = [make_vector(max(-3, min(3, j - i)) + 3) for j in range(visible)]
            scores = [float(q[i, h] @ (k[j, h] + a[j])) / math.sqrt(D) for j in range(visible)]
            weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
            out[i, h] = sum((weights[j] * (v[j, h] + a[j]) for j in range(visible)), out[i, h])
    return out.flatten(1).float()


def make_vector(position: int) -> Tensor:
    """Sines and cosines of a position, in turns."""
    angles = [position / 10000 ** (2 * (c // 2) / 8) for c in range(8)]
    values = [math.cos(x) if c % 2 else math.sin(x) for c, x in enumerate(angles)]
    return torch.tensor(values, dtype=torch.float64)


def test_weights_depend_on_the_seed_but_not_on_the_encoding() -> None:
    rope, t5 = (RoFormerClassifier(RoFormerConfig(**SIZES, encoding=e)) for e in ("rope", "t5"))
    for model in (rope, t5):
        model.reset_parameters(3)
    others = dict(t5.named_parameters())
    for name, weight in rope.named_parameters():
        assert torch.equal(weight, others[name])
    norm = others["encoder.layers.1.mlp_norm.weight"]
    assert bool((norm == 1).all() and (others["head.out.bias"] == 0).all())
    first = others["encoder.layers.0.query.weight"].detach().clone()
    assert 0.015 < float(first.std()) < 0.025
    t5.reset_parameters(4)
    assert not torch.equal(first, others["encoder.layers.0.query.weight"])


def test_dropout_acts_in_training_only() -> None:
    model = build_random("rope", dropout=0.5, attention_dropout=0.0)
    tokens = torch.arange(10)[None]
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    assert not torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 15}, "width must be a multiple of heads = 2, because all heads"),
        ({"width": 0}, "RoFormer: width must be"),
        ({"tied": 1}, "RoFormer: tied must be"),
        ({"encoding_per": "head"}, "RoFormer: encoding_per must be"),
        ({"activation": "gello"}, "activation 'gello' is unknown; did you mean 'gelu'"),
        ({"attention_dropout": 1.0}, "attention_dropout must be a number from 0 to 0.95"),
        ({"padding_token": 20}, "padding_token must be below vocab = 20; got 20"),
        ({"encoding": "xpos"}, "encoding 'xpos' is for causal attention only, and an encoder"),
        ({"encoding": "ropee"}, "model.encoding: 'ropee' is unknown; did you mean 'rope'"),
        ({"encoding": "t5", "rotary_value": True}, "rotary_value needs an encoding with RoPE;"),
    ],
)
def test_configs_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        RoFormer(RoFormerConfig(**{**SIZES, **options}))


def test_classes_must_be_a_count() -> None:
    with pytest.raises(ValueError, match=r"must be a whole number of at least 1; got 2\.0"):
        RoFormerClassifier(RoFormerConfig(**SIZES), classes=2.0)  # type: ignore[arg-type]


def make_run(small: lab.RunConfig, **options: Any) -> lab.RunConfig:
    shape = {"kind": "encoder", "architecture": "roformer", **options}
    return replace(small, model=replace(small.model, **shape))


def test_parameter_groups(small: lab.RunConfig) -> None:
    config = make_run(small, encoding="t5", tied=True).model
    model = build_model(config, vocab=9, longest=64)
    assert isinstance(model, RoFormerMaskedLM)
    groups = group_parameters(model)
    layer = [f"encoder.layers.0.{n}.weight" for n in ("query", "key", "value", "out", "up", "down")]
    assert set(groups["matrices"]) == {*layer, "head.dense.weight"}
    names = {"encoder.embedding.weight", "encoder.token_type_embedding.weight"}
    assert set(groups["embeddings"]) == names
    assert set(groups["encoding"]) == {"encoder.encoding.weight"}
    assert all(weight.dim() == 1 for weight in groups["norms"].values())
    parts = {name: len(weights) for name, weights in group_by_part(model).items()}
    sizes = {"embedding": 2, "norms": 8, "encoding": 1, "attention": 8, "mlp": 4, "head": 3}
    assert parts == sizes
    untied = build_model(replace(config, tied=False), vocab=9, longest=64)
    assert "head.decoder" in group_parameters(untied)["embeddings"]


@pytest.mark.slow
def test_the_lab_trains_and_exports_it(small: lab.RunConfig, tmp_path: Path) -> None:
    config = make_run(small)
    config = replace(config, training=replace(config.training, steps=30, warmup=3))
    lab.check_export(config, tmp_path / "out")
    run = lab.train(config, tmp_path / "run", scalings=("yarn",))
    losses = [line["loss"] for line in run.read_metrics()]
    assert sum(losses[-5:]) < sum(losses[:5]) - 2.5
    assert set(run.read_metrics()[0]["gradient_norms"]) >= {"attention", "mlp", "head"}
    model = run.load_model()
    assert isinstance(model, RoFormerMaskedLM)
    lab.export_run(run, tmp_path / "out")
    found = load_roformer(tmp_path / "out")
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(found.model(tokens), model.eval()(tokens))
    with pytest.raises(ValueError, match="trained with architecture 'roformer', whose attention"):
        compute_attention(run.folder)
    half = make_run(small, encoding={"name": "rope", "layout": "half"})
    with pytest.raises(ValueError, match="cannot be written as a RoFormer, which rotates"):
        lab.check_export(half, tmp_path / "other")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "bert"}, "model.architecture 'bert' is unknown"),
        ({"kind": "decoder"}, "model.kind must be 'encoder' with architecture = 'roformer'; got"),
        ({"attention": "linear"}, "model.attention must be 'softmax' with architecture"),
        ({"kv_heads": 1}, "model.kv_heads must be 2 with architecture = 'roformer'; got 1"),
    ],
)
def test_models_of_the_lab_that_are_refused(
    small: lab.RunConfig, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_run(small, **options)
