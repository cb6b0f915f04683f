"""Reading configs of transformers without transformers: layers, parts, notes and wrong values."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import whorl
from tests.fresh import run_fresh
from whorl.configs import ConfigError, QueryScale, read_config
from whorl.configs._notes import TEXTS
from whorl.configs.huggingface import defaults
from whorl.configs.huggingface.families import FAMILIES

LLAMA: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}


def ids(found: whorl.configs.ModelPositions, group: int | None = None) -> list[str]:
    notes = found.notes if group is None else found.groups[group].notes
    return [note.id for note in notes]


def test_a_file_its_folder_and_its_dictionary_read_alike(tmp_path: Path) -> None:
    data = {**LLAMA, "rope_theta": 5e5, "num_hidden_layers": 3}
    (tmp_path / "config.json").write_text(json.dumps(data))
    found = read_config(data)
    assert found == read_config(tmp_path) == read_config(tmp_path / "config.json")
    assert found.num_layers == 3
    assert isinstance(found.build(), whorl.RoPE)
    assert json.loads(json.dumps(found.to_dict()))["groups"][0]["rotation"]["base"] == 5e5


def test_transformers_is_not_needed() -> None:
    found = run_fresh(
        "import sys, whorl; sys.modules['transformers'] = None;"
        "raise SystemExit(whorl.RoPE.from_config({'model_type': 'gpt_oss'}))"
    )
    said = "SystemExit: RoPE(64, base=150000.0, scaling=YaRN(factor=32.0"
    assert str(found.error).startswith(said)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"rope_theta": 5e5}, {"rope_type": "default", "rope_theta": 5e5}),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0},
        ),
        (
            {"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}},
            {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0},
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": {"rope_theta": 7.0, "factor": 2.0}},
            {"rope_type": "default", "rope_theta": 7.0},
        ),
        ({"rope_theta": 5e5, "rope_scaling": None}, {"rope_theta": 5e5}),
        ({"rope_theta": 5e5, "rope_scaling": {}}, {"rope_theta": 5e5}),
    ],
)
def test_old_keys_say_what_new_ones_do(old: dict[str, Any], new: dict[str, Any]) -> None:
    first, second = read_config({**LLAMA, **old}), read_config({**LLAMA, "rope_parameters": new})
    assert first.groups[0].rotation == second.groups[0].rotation


def test_an_old_rope_scaling_replaces_new_parameters() -> None:
    both = {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}}
    both["rope_parameters"] = {"rope_type": "dynamic", "factor": 3.0, "rope_theta": 7.0}
    rope = whorl.RoPE.from_config(both)
    assert rope.config.scaling == whorl.Linear(2.0)
    assert rope.config.base == 10_000.0


@pytest.mark.parametrize(
    ("model_type", "layers", "unrotated"),
    [
        ("afmoe", 32, 8),
        ("beam", 52, 9),
        ("cohere2", 40, 10),
        ("cohere2_moe", 40, 10),
        ("exaone4", 32, 8),
        ("exaone_moe", 32, 8),
        ("flint", 49, 14),
        ("kolibri1", 50, 10),
        ("llama4_text", 48, 12),
        ("mistral_large4_text", 72, 18),
        ("mllama_text_model", 40, 8),
        ("muse_glimmer_text", 52, 13),
        ("muse_spark_text", 62, 16),
        ("smollm3", 36, 9),
    ],
)
def test_layers_without_rotation_are_known(model_type: str, layers: int, unrotated: int) -> None:
    found = read_config({"model_type": model_type})
    still = [group for group in found.groups if group.rotation is None]
    assert found.num_layers == layers
    assert sum(len(group.layers) for group in still) == unrotated
    for group in still:
        assert [note.id for note in group.notes] in (
            ["nope-layers"],
            ["cross-attention-unrotated"],
        )
        assert isinstance(found.build(layer=group.layers[0]), whorl.NoPE)


def test_layers_of_other_kinds() -> None:
    hybrid = read_config({"model_type": "qwen3_next", "num_hidden_layers": 8})
    assert [(g.name, g.layers) for g in hybrid.groups] == [
        ("linear_attention", (0, 1, 2, 4, 5, 6)),
        ("full_attention", (3, 7)),
    ]
    assert ids(hybrid, 0) == ["no-attention"]
    old = read_config({"model_type": "bamba", "layer_types": ["mamba", "attention"]})
    assert [group.name for group in old.groups] == ["linear_attention", "full_attention"]
    several = {"model_type": "granite_swa", "num_hidden_layers": 4}
    bases = read_config({**several, "layer_rope_theta": [1e4, 0, 1e4, 5e5]})
    assert [group.layers for group in bases.groups] == [(0,), (1,), (2,), (3,)]
    assert bases.build(layer=3).config.base == 5e5  # type: ignore[attr-defined]
    assert isinstance(bases.build(layer=1), whorl.NoPE)
    nope = read_config({"model_type": "olmo_hybrid", "rope_parameters": {"rope_theta": None}})
    assert all(group.rotation is None for group in nope.groups)
    partly = {"model_type": "molmo2_text", "num_hidden_layers": 2, "rope_scaling_layers": [1]}
    partly["rope_scaling"] = {"rope_type": "linear", "factor": 8.0}
    scalings = [read_config(partly).build(layer=n).config for n in (0, 1)]
    assert [c.scaling for c in scalings] == [None, whorl.Linear(8.0)]  # type: ignore[attr-defined]


def test_windows_and_layer_types_of_gemma() -> None:
    found = read_config({"model_type": "gemma3_text", "sliding_window": 512})
    assert [
        (g.name, g.window, g.rotation and g.rotation.options["base"]) for g in found.groups
    ] == [
        ("sliding_attention", 512, 1e4),
        ("full_attention", None, 1e6),
    ]
    modern = read_config({"model_type": "modernbert", "local_attention": 128})
    assert {group.name: group.window for group in modern.groups}["sliding_attention"] == 64
    wide = read_config({"model_type": "gemma4_text", "global_head_dim": 384})
    assert wide.build("full_attention").config.head_dim == 384  # type: ignore[attr-defined]
    assert wide.build("sliding_attention").config.head_dim == 256  # type: ignore[attr-defined]


def test_scales_of_queries_and_of_the_softmax() -> None:
    ministral = read_config({"model_type": "ministral3"}).groups[0]
    assert ministral.query_scale == QueryScale("log", 0.1, 16_384)
    llama4 = read_config({"model_type": "llama4_text"})
    assert {g.rotation is None: g.query_scale for g in llama4.groups} == {
        False: None,
        True: QueryScale("log", 0.1, 8192.0, shift=1),
    }
    beam = read_config({"model_type": "beam"})
    assert {g.rotation is None: g.query_scale for g in beam.groups} == {
        False: None,
        True: QueryScale("power", 0.1, 2048),
    }
    yarn = {"type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    latent = read_config({"model_type": "deepseek_v3", "rope_scaling": yarn}).groups[0]
    assert latent.softmax_scale == pytest.approx((0.1 * math.log(40) + 1) ** 2)
    plain = read_config({"model_type": "llama", "rope_scaling": yarn}).groups[0]
    assert plain.softmax_scale == 1.0


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("axk2", ["mla", "indexer-half"]),
        ("clvp_encoder", ["values-rotated"]),
        ("deepseek_v4", ["output-unrotated", "window-start-positions"]),
        ("hunyuan_v1_dense", ["qk-norm-after"]),
        ("mistral_large4_text", ["mla", "learned-gains", "learned-query-scale", "shared-keys"]),
        ("nanochat", ["sign-reversed", "qk-norm-after"]),
        ("neucodec", ["head-index-positions"]),
        ("olmo2", ["fp32-tables"]),
        ("qwen2_5_omni_dit", ["one-head"]),
        ("timesfm2_5", ["negative-positions", "qk-norm-after"]),
        ("wav2vec2-bert", []),
        ("llama", []),
    ],
)
def test_what_models_do_besides_is_said(model_type: str, expected: list[str]) -> None:
    assert ids(read_config({"model_type": model_type})) == expected


def test_notes_are_of_what_is_switched_on() -> None:
    on = {"model_type": "wav2vec2-bert", "position_embeddings_type": "rotary"}
    assert ids(read_config(on)) == ["before-projection"]


def test_every_note_has_a_text_and_a_use() -> None:
    named = {name for family in FAMILIES.values() for name in (*family.notes, family.reason)}
    others = {"no-attention", "no-rotary", "odd-rotary-width", "partial-ignored", "unknown-family"}
    others |= {"backward-ramp", "chunked-attention", "no-sign"}
    assert named | others == set(TEXTS)
    assert all(text.endswith(".") for text in TEXTS.values())


def test_switched_off_rotations() -> None:
    for data, why in (
        ({"model_type": "falcon", "alibi": True}, "alibi-instead"),
        ({"model_type": "wav2vec2-bert"}, "rope-off"),
        ({"model_type": "zamba2"}, "no-attention"),
        ({"model_type": "granitemoehybrid", "layer_types": ["full_attention"]}, "rope-off"),
    ):
        found = read_config(data)
        assert all(group.rotation is None for group in found.groups)
        assert ids(found, 0) == [why]
        with pytest.raises(ConfigError, match=r"RoPE\.from_config: nothing to build"):
            whorl.RoPE.from_config(data, layer=0)


@pytest.mark.parametrize(
    ("data", "window"),
    [
        ({"model_type": "mistral"}, 4096),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "mixtral", "sliding_window": 512}, 512),
        ({"model_type": "starcoder2", "sliding_window": 512}, 512),
        ({"model_type": "phi3", "sliding_window": 2047}, 2047),
        ({"model_type": "qwen3_moe", "sliding_window": 512}, None),
        ({"model_type": "qwen3_moe", "sliding_window": 512, "use_sliding_window": True}, 512),
        ({"model_type": "llama", "sliding_window": 512}, None),
        ({"model_type": "minimax", "sliding_window": 512}, 512),
    ],
)
def test_windows_of_all_layers(data: dict[str, Any], window: int | None) -> None:
    assert read_config(data).group().window == window


def test_windows_that_are_chunks() -> None:
    found = read_config({"model_type": "llama4_text", "attention_chunk_size": 512})
    assert [(g.name, g.window) for g in found.groups] == [
        ("chunked_attention", 512),
        ("full_attention", None),
    ]
    assert ids(found, 0) == ["chunked-attention"]


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "bloom", "t5", "jamba", "kimi_linear"])
def test_models_without_rotation(model_type: str) -> None:
    found = read_config({"model_type": model_type, "rope_scaling": None})
    assert (found.groups, ids(found)) == ((), ["no-rotary"])
    with pytest.raises(ConfigError, match=f"{model_type} has no rotary embedding"):
        found.build()


def test_rope_keys_speak_for_themselves_where_transformers_rotates_nothing() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    for keys in ({"rope_theta": 7.0}, {"rope_parameters": {"rope_theta": 7.0}}):
        found = read_config({"model_type": "bert", **sizes, **keys})
        assert ids(found) == ["unknown-family", "transformers-differs"]
        assert found.build().config.base == 7.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("model_type", sorted(defaults.POSITION_FREE))
def test_some_models_carry_a_base_that_nothing_reads(model_type: str) -> None:
    found = read_config({"model_type": model_type, "rope_theta": 1e4})
    assert (found.groups, ids(found)) == ((), ["no-rotary"])


def test_unknown_model_types() -> None:
    sizes = {"n_embd": 64, "n_head": 4, "n_layer": 2, "max_seq_len": 128}
    found = read_config({"model_type": "novel", **sizes, "rope_theta": 7.0})
    assert ids(found) == ["unknown-family"]
    assert (found.context, found.num_layers) == (128, 2)
    assert found.build().config.base == 7.0  # type: ignore[attr-defined]
    nested = {"a": {"rope_theta": 7.0}, "b": {"rope_theta": 9.0}}
    by_looks = read_config({**sizes, "rope_parameters": nested})
    assert [(g.name, g.layers) for g in by_looks.groups] == [("a", ()), ("b", ())]
    with pytest.raises(
        ConfigError, match=r"does not say how many layers .* layer_type=, one of 'a', 'b'"
    ):
        by_looks.build(layer=0)
    uncounted = read_config({"model_type": "novel", "head_dim": 64, "rope_theta": 1e4})
    with pytest.raises(ConfigError, match=r"layer=0 cannot be found; leave layer out"):
        uncounted.build(layer=0)
    del nested["b"]
    alone = read_config({**sizes, "rope_parameters": nested})
    assert [(g.name, g.layers) for g in alone.groups] == [("a", (0, 1))]


def test_parts_are_read_and_the_text_stands_for_the_model() -> None:
    llava = read_config({"model_type": "llava", "text_config": {"model_type": "qwen3"}})
    assert set(llava.parts) == {"text_config", "vision_config"}
    assert llava.groups == llava.parts["text_config"].groups
    assert llava.parts["text_config"].model_type == "qwen3"
    assert ids(llava.parts["vision_config"]) == ["no-rotary"]
    deep = read_config({"model_type": "qwen2_5_omni"})
    assert "text_config" in deep.parts["thinker_config"].parts
    novel = {"model_type": "novel_vl", "llm_config": {**LLAMA, "rope_theta": 7.0}}
    assert read_config(novel).build().config.base == 7.0  # type: ignore[attr-defined]
    blt = read_config({"model_type": "blt"})
    assert set(blt.parts) == {
        *("patcher_config", "encoder_config", "decoder_config", "global_config")
    }


def test_an_unreadable_tower_does_not_fail_the_text() -> None:
    broken = {"model_type": "qwen2_vl_vision", "embed_dim": "many"}
    found = read_config({"model_type": "qwen2_vl", "vision_config": broken})
    assert found.groups
    (note,) = found.parts["vision_config"].notes
    assert note.id == "unreadable-part"
    assert "vision_config.embed_dim" in note.text
    with pytest.raises(ConfigError, match=r"text_config\.head_dim must be a whole number"):
        read_config({"model_type": "llava", "text_config": {**LLAMA, "head_dim": "wide"}})


def test_old_multimodal_configs_have_the_text_beside_the_parts() -> None:
    flat = {"model_type": "qwen2_vl", "hidden_size": 128, "num_attention_heads": 2}
    flat |= {"rope_theta": 7.0, "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}}
    rope = whorl.MRoPE.from_config(flat)
    assert (rope.config.base, rope.config.head_dim, rope.config.sections) == (7.0, 64, (8, 12, 12))


def test_defaults_fill_in_what_a_config_leaves_out() -> None:
    assert whorl.RoPE.from_config({"model_type": "llama"}).config.head_dim == 128
    assert whorl.RoPE.from_config({"model_type": "qwen3", "head_dim": None}).config.head_dim == 128
    dbrx = whorl.RoPE.from_config({"model_type": "dbrx", "d_model": 64, "n_heads": 2})
    assert dbrx.config.head_dim == 32
    neox = whorl.RoPE.from_config({"model_type": "gpt_neox", "rotary_pct": 0.5})
    assert neox.config.rotary_dim == 48
    assert defaults.get_version().startswith("5.")


def test_asking_the_wrong_class_or_layer() -> None:
    with pytest.raises(ConfigError, match=r"MRoPE\.from_config: llama rotates by RoPE; call RoPE"):
        whorl.MRoPE.from_config(LLAMA)
    with pytest.raises(ConfigError, match="rotates by MRoPE; call MRoPE"):
        whorl.RoPE.from_config({"model_type": "qwen3_vl"})
    gemma = {"model_type": "gemma3_text"}
    with pytest.raises(ConfigError, match="rotate in 2 different ways; pass layer= or layer_type="):
        whorl.RoPE.from_config(gemma)
    with pytest.raises(ConfigError, match="no layer type 'full_atention'; did you mean 'full_atte"):
        whorl.RoPE.from_config(gemma, layer_type="full_atention")
    with pytest.raises(ConfigError, match=r"has layers 0 \.\. 25; got layer=26"):
        whorl.RoPE.from_config(gemma, layer=26)
    with pytest.raises(ConfigError, match="layer 0 of gemma3_text is of the type 'sliding_attent"):
        whorl.RoPE.from_config(gemma, layer=0, layer_type="full_attention")
    assert whorl.RoPE.from_config(gemma, layer=5).config.base == 1e6
    assert whorl.RoPE.from_config(LLAMA, precision="float32", table_length=8).config == (
        whorl.RoPE(16, precision="float32", table_length=8).config
    )
