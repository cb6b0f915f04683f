"""Settings and inputs of single families, with whorl installed as without."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl

from .models import (
    VISION,
    add_labels,
    build_inputs,
    build_model,
    compare,
    compute_logits,
    find_gradients,
)

LENGTH = 300


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("deberta-v2", {"position_buckets": -1, "share_att_key": False}),
        ("deberta-v2", {"pos_att_type": ["c2p"], "norm_rel_ebd": "none"}),
        (
            "deberta-v2",
            {"pos_att_type": ["p2c"], "share_att_key": False, "max_relative_positions": 100},
        ),
        ("deberta-v2", {"relative_attention": False, "position_biased_input": True}),
        ("deberta", {"pos_att_type": ["p2c"], "max_relative_positions": 100}),
        ("deberta", {"pos_att_type": ["c2p"], "position_biased_input": False}),
        ("deberta", {"relative_attention": False}),
        ("xlnet", {"clamp_len": 50, "attn_type": "uni"}),
    ],
    ids=str,
)
@torch.no_grad()
def test_options_of_encoders(kind: str, options: dict[str, Any]) -> None:
    model = build_model(kind, **options)
    # transformers' XLNet fails with "uni" and padding.
    for padding in ("none", "right")[: 1 if "attn_type" in options else 2]:
        inputs = build_inputs(kind, LENGTH, padding)
        before = compute_logits(model, inputs)
        with whorl.hf.install(model):
            compare(before, compute_logits(model, inputs))


@torch.no_grad()
def test_segments_and_memory_of_xlnet() -> None:
    model, inputs = build_model("xlnet"), build_inputs("xlnet", 40, "left")
    mask, segments = inputs["attention_mask"], torch.arange(40).expand(2, -1) // 15
    inputs["token_type_ids"] = segments

    def run() -> list[Tensor]:
        first = model(inputs["input_ids"].flip(1), token_type_ids=segments)
        second = model(**inputs, mems=first.mems, output_attentions=True)
        third = model(inputs["input_ids"], input_mask=1 - mask)
        weights = [found[1] for found in second.attentions]
        return [first.logits, second.logits[mask.bool()], third.logits[mask.bool()], *weights]

    before = run()
    with whorl.hf.install(model):
        for one, other in zip(before, run(), strict=True):
            compare(one, other)


@torch.no_grad()
def test_masks_that_transformers_xlnet_refuses() -> None:
    model, inputs = build_model("xlnet"), build_inputs("xlnet", 7)
    inputs["attention_mask"] = torch.zeros(2, 1, 7, 7)  # numbers to add, for other models
    with whorl.hf.install(model), pytest.raises(RuntimeError, match="size of tensor"):
        model(**inputs)


def test_gradients_of_segments() -> None:
    model, inputs = build_model("xlnet"), add_labels(build_inputs("xlnet", 40))
    inputs["token_type_ids"] = torch.arange(40).expand(2, -1) // 15
    before = find_gradients(model, inputs)
    with whorl.hf.install(model):
        after = find_gradients(model, inputs)
    for name, gradient in before.items():
        compare(gradient, after[name])


def test_two_streams_and_dropout_of_xlnet_are_left_alone() -> None:
    model, inputs = build_model("xlnet", dropout=0.1), build_inputs("xlnet", 12)
    streams = {"perm_mask": torch.ones(12, 12).triu().expand(2, 12, 12)}
    streams["target_mapping"] = torch.eye(12)[None, 6:].expand(2, 6, 12)

    def run() -> list[Tensor]:
        torch.manual_seed(0)
        return [model.eval()(**inputs, **streams).logits, model.train()(**inputs).logits]

    before = run()
    with whorl.hf.install(model):
        for one, other in zip(before, run(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    "options",
    [
        {"alibi": False},  # one head of keys
        {"alibi": False, "new_decoder_architecture": True, "num_kv_heads": 2},
        {"alibi": False, "multi_query": False, "parallel_attn": False},
        {"new_decoder_architecture": True, "num_kv_heads": 2},
    ],
    ids=str,
)
@torch.no_grad()
def test_options_of_falcon(options: dict[str, Any]) -> None:
    model, inputs = build_model("falcon", **options), build_inputs("falcon", LENGTH, "left")
    before = compute_logits(model, inputs)
    with whorl.hf.install(model):
        compare(before, compute_logits(model, inputs))
    if model.config.rotary:
        with whorl.hf.install(model, precision="float64"):
            compare(before, compute_logits(model, inputs), 1e-3)


@torch.no_grad()
def test_exact_alibi_in_falcon() -> None:
    """The bias itself, where transformers rounds slopes and biases to bfloat16."""
    model, inputs = build_model("falcon"), build_inputs("falcon", LENGTH, "middle")
    exact = whorl.ALiBi(6, slope_scale=8**-0.5)
    before = compute_logits(model, inputs)
    with whorl.hf.install(model, exact):
        after = compute_logits(model, inputs)
    assert 1e-3 < float((before - after).abs().max()) < 0.5
    with pytest.raises(ValueError, match="scaling must be None for Falcon with ALiBi, which"):
        whorl.hf.install(model, scaling=whorl.Linear(2.0))
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    layer, x = model.transformer.h[0].self_attention, torch.randn(1, LENGTH, 48)
    bias = exact.distance_bias(torch.arange(LENGTH)[:, None] - torch.arange(LENGTH))
    q, k, v = (part.transpose(1, 2) for part in layer._split_heads(layer.query_key_value(x)))
    scores = (q @ k.mT * 8**-0.5 + bias).masked_fill(~mask, float("-inf"))
    want = layer.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    with whorl.hf.install(model, exact):
        found, _ = layer(x, torch.zeros(6, 1, LENGTH), None)
    compare(want, found)


@torch.no_grad()
def test_rotated_values_of_roformer() -> None:
    model, inputs = build_model("roformer", rotary_value=True), build_inputs("roformer", LENGTH)
    before = compute_logits(model, inputs)
    with whorl.hf.install(model):
        compare(before, compute_logits(model, inputs))


@pytest.mark.parametrize("kind", ["deberta", "deberta-v2"])
@torch.no_grad()
def test_relative_positions_of_the_caller(kind: str) -> None:
    """Any positions are possible there, so that transformers' own way is taken."""
    model, inputs = build_model(kind), build_inputs(kind, 20)
    encoder, x = model.deberta.encoder, model.deberta.embeddings(inputs["input_ids"])
    arguments = {"attention_mask": torch.ones(2, 20), "relative_pos": torch.zeros(1, 20, 20).long()}
    before = encoder(x, **arguments).last_hidden_state
    with whorl.hf.install(model):
        compare(before, encoder(x, **arguments).last_hidden_state)
    assert not torch.equal(before, encoder(x, torch.ones(2, 20)).last_hidden_state)


@pytest.mark.parametrize("kind", sorted(VISION))
@torch.no_grad()
def test_positions_on_three_axes(kind: str) -> None:
    """Of the text part, alone or in the whole model."""
    model, inputs = build_model(kind), build_inputs(kind, 40)
    text = model.model.language_model
    source = torch.Generator().manual_seed(3)
    inputs["position_ids"] = torch.randint(0, 40, (3, 2, 40), generator=source).sort(-1).values
    before = text(**inputs).last_hidden_state
    for part in (model, text):
        for precision in ("float32", "float64"):
            with whorl.hf.install(part, precision=precision):
                compare(before, text(**inputs).last_hidden_state)
    inputs["position_ids"] = inputs["position_ids"].flip(0)
    assert not torch.allclose(before, text(**inputs).last_hidden_state, atol=0.1)
    with pytest.raises(ValueError, match="encoding must have positions on one axis, because att"):
        whorl.hf.install(model, whorl.MRoPE(12, sections=(2, 2, 2)))


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@torch.no_grad()
def test_flan_t5(padding: str) -> None:
    """Which is T5 with gates in its feed-forward layers, and an output matrix of its own."""
    model = build_model("t5", feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    inputs = build_inputs("t5", LENGTH, padding)
    before = compute_logits(model, inputs)
    with whorl.hf.install(model):
        compare(before, compute_logits(model, inputs))


@pytest.mark.parametrize("padding", ["none", "left"])
@torch.no_grad()
def test_images_in_gemma3(padding: str) -> None:
    """Tokens of an image see each other, also later ones."""
    model, inputs = build_model("gemma3"), build_inputs("gemma3", 120, padding)
    source = torch.Generator().manual_seed(3)
    inputs["pixel_values"] = torch.randn(2, 3, 16, 16, generator=source)
    inputs["input_ids"][:, 50:54] = 1
    inputs["token_type_ids"] = (inputs["input_ids"] == 1).long()
    before = compute_logits(model, inputs)
    model.generation_config.eos_token_id = None
    settings: dict[str, Any] = {"do_sample": False, "max_new_tokens": 6, "pad_token_id": 0}
    text = model.generate(**inputs, **settings)
    with whorl.hf.install(model):
        assert model.config.text_config is model.model.language_model.config
        compare(before, compute_logits(model, inputs))
        assert torch.equal(text, model.generate(**inputs, **settings))
        model.config.text_config.use_cache = False
    assert model.config.text_config is model.model.language_model.config
    assert model.config.text_config.use_cache is False
    assert model.config.text_config._attn_implementation != "whorl"
    del inputs["token_type_ids"]
    assert not torch.allclose(before, compute_logits(model, inputs), atol=1e-3)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@torch.no_grad()
def test_gemma3_as_an_encoder(padding: str) -> None:
    """As EmbeddingGemma is: every token sees all of them, or a window on both sides."""
    model = build_model("gemma3_text", use_bidirectional_attention=True)
    inputs = build_inputs("gemma3_text", LENGTH, padding)
    before = compute_logits(model, inputs)
    with whorl.hf.install(model):
        compare(before, compute_logits(model, inputs))


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@torch.no_grad()
def test_roformer_as_a_decoder(padding: str) -> None:
    model, inputs = build_model("roformer", is_decoder=True), build_inputs("roformer", 60, padding)
    tokens, mask = inputs["input_ids"], inputs.get("attention_mask", torch.ones(2, 60).long())

    def run() -> list[Tensor]:
        whole = model(tokens, mask, use_cache=False).logits
        cache = model(tokens[:, :40], mask[:, :40], use_cache=True).past_key_values
        rest = model(tokens[:, 40:], mask, past_key_values=cache).logits
        return [whole[mask.bool()], rest[mask[:, 40:].bool()]]

    before = run()
    with whorl.hf.install(model):
        for one, other in zip(before, run(), strict=True):
            compare(one, other)
