"""Names of q and k in many families, what must be left alone, and what must be refused."""

import pytest

from whorl.weights.tensor_names import parse_layer, parse_pattern, read_name

LAYER = "model.layers.3.self_attn"
#: name: role, layer, leaf
KNOWN = {
    f"{LAYER}.q_proj.weight": ("q", 3, "weight"),
    f"{LAYER}.k_proj.bias": ("k", 3, "bias"),
    f"{LAYER}.q_norm.weight": ("q", 3, "weight"),
    f"{LAYER}.k_layernorm.norms.7.weight": ("k", 3, "norms.7.weight"),
    "layers.11.attention.wq.weight": ("q", 11, "weight"),
    "layers.11.attention.wk.weight": ("k", 11, "weight"),
    "transformer.h.0.attn.k_proj.weight": ("k", 0, "weight"),
    "roformer.encoder.layer.2.attention.self.query.weight": ("q", 2, "weight"),
    "esm.encoder.layer.2.attention.self.key.bias": ("k", 2, "bias"),
    "gpt_neox.layers.5.attention.query_key_value.weight": ("fused", 5, "weight"),
    "transformer.h.5.self_attention.query_key_value.bias": ("fused", 5, "bias"),
    f"{LAYER}.qkv_proj.weight": ("fused", 3, "weight"),
    "layers.3.attn.Wqkv.weight": ("fused", 3, "weight"),
    "model.layers.3.attention.wqkv.weight": ("fused", 3, "weight"),
    "model.blocks.0.qkv.weight": ("fused", 0, "weight"),
    f"base_model.model.{LAYER}.q_proj.lora_B.weight": ("q", 3, "lora_B.weight"),
    f"base_model.model.{LAYER}.q_proj.lora_B.default.weight": ("q", 3, "lora_B.default.weight"),
    f"base_model.model.{LAYER}.k_proj.lora_magnitude_vector": ("k", 3, "lora_magnitude_vector"),
    f"base_model.model.{LAYER}.k_proj.base_layer.weight": ("k", 3, "base_layer.weight"),
    f"{LAYER}.q_proj.lora_b": ("q", 3, "lora_b"),
    "model.layers.1.self_attn.q_b_proj.weight": ("q", 1, "weight"),
    "model.layers.1.self_attn.kv_a_proj_with_mqa.weight": ("k", 1, "weight"),
}
ALONE = [
    f"{LAYER}.v_proj.weight",
    f"{LAYER}.o_proj.weight",
    f"{LAYER}.rotary_emb.inv_freq",
    f"{LAYER}.q_proj.lora_A.weight",
    f"{LAYER}.q_proj.lora_A.default.weight",
    f"{LAYER}.q_proj.lora_a",
    f"{LAYER}.k_proj.k_scale",
    f"{LAYER}.q_proj.input_scale",
    "model.layers.1.self_attn.q_a_proj.weight",
    "model.layers.1.self_attn.q_a_layernorm.weight",
    "model.layers.1.self_attn.indexer.wk.weight",
    "vision_tower.encoder.layers.0.self_attn.q_proj.weight",
    "model.vision_model.layers.0.self_attn.k_proj.weight",
    "visual.blocks.0.attn.qkv.weight",
    "audio_tower.layers.0.self_attn.q_proj.weight",
    "model.decoder.layers.0.encoder_attn.q_proj.weight",
    "rwkv.blocks.0.attention.key.weight",  # no attention of ours
    "model.embed_tokens.weight",
]
QUANTISED = ["qweight", "qzeros", "scales", "g_idx", "biases", "SCB", "weight_packed"]
QUANTISED += ["weight_scale", "weight_scale_inv", "weight.absmax", "weight.quant_map"]
QUANTISED += ["weight.quant_state.bitsandbytes__nf4", "base_layer.weight.absmax"]


@pytest.mark.parametrize("name", KNOWN)
def test_known(name: str) -> None:
    found = read_name(name)
    assert found is not None
    assert (found.role, found.layer, found.leaf) == KNOWN[name]
    assert found.problem is None
    assert name.startswith(f"{found.attention}.{found.module}")
    assert found.axis == ("last" if name.endswith("lora_b") else "first")


@pytest.mark.parametrize("name", ALONE)
def test_left_alone(name: str) -> None:
    assert read_name(name) is None


@pytest.mark.parametrize("leaf", QUANTISED)
def test_quantised(leaf: str) -> None:
    found = read_name(f"{LAYER}.q_proj.{leaf}")
    assert found is not None
    assert found.problem is not None
    assert "whose rows share scales or words" in found.problem


def test_what_is_not_known() -> None:
    found = read_name(f"{LAYER}.q_proj.strange")
    assert found is not None
    assert found.problem is not None
    assert "what 'strange' is of it is not known" in found.problem


def test_patterns_come_first() -> None:
    patterns = [parse_pattern(text) for text in (r"q=\.alpha\.", r"leave=q_proj", "grouped=mix$")]
    found = read_name("net.4.alpha.weight", patterns)
    assert found is not None
    assert (found.role, found.layer, found.attention) == ("q", 4, "net.4")
    assert read_name(f"{LAYER}.q_proj.weight", patterns) is None
    fused = read_name("net.4.mix", patterns)
    assert fused is not None
    assert fused.role == "grouped"
    assert read_name(f"{LAYER}.k_proj.weight", patterns) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("q_proj", "must be ROLE=REGEX, such as"),
        ("q=", "must be ROLE=REGEX, such as"),
        ("Q=x", "unknown role 'Q'"),
        ("groupd=x", "did you mean 'grouped'? Known: q, k, concatenated, grouped, codegen, leave"),
        ("fused=x", "unknown role 'fused'"),
        ("q=(", "is no regular expression: missing"),
    ],
)
def test_patterns_that_are_none(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="pattern") as caught:
        parse_pattern(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("model.layers.3.mlp.experts.7.w1.weight", 3),
        ("model.layers.12.self_attn.q_norm.norms.5.weight", 12),
        ("transformer.h.0.attn.1.q_proj.weight", 0),
        ("layers.2.attention.wq.weight", 2),
        ("q_proj.weight", None),
        ("model.layers.123456.self_attn.q_proj.weight", None),
        ("model.layers.1a.self_attn.q_proj.weight", None),
        ("model.layers.\u0663.self_attn.q_proj.weight", None),
    ],
)
def test_the_layer_is_the_first_number(name: str, number: int | None) -> None:
    """Experts, adapters and lists of norms have numbers of their own behind it."""
    assert parse_layer(name) == number
    named = read_name(name)
    assert named is None or named.layer == number


def test_the_layer_of_tensors_with_several_numbers() -> None:
    for name, number in [
        ("model.layers.4.self_attn.0.q_proj.weight", 4),
        ("model.layers.4.self_attn.1.k_proj.weight", 4),
        ("base.layers.9.blocks.2.attn.q_norm.norms.7.weight", 9),
    ]:
        named = read_name(name)
        assert named is not None
        assert named.layer == number
    pattern = read_name("net.5.heads.2.mine.weight", [parse_pattern("q=mine")])
    assert pattern is not None
    assert pattern.layer == 5
