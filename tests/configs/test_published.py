"""Models published with code of their own, whose types transformers does not have."""

from typing import Any

import pytest
import torch

import whorl
from whorl.configs import ConfigError, read_config
from whorl.configs.huggingface import defaults
from whorl.configs.inspection import inspect
from whorl.configs.inspection.verdict import write_verdict
from whorl.explore import api
from whorl.explore.state import ExplorerState
from whorl.scaling import DynamicNTK

SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 2}
CHATGLM = {
    "model_type": "chatglm", "hidden_size": 4096, "kv_channels": 128, "num_attention_heads": 32,
    "num_layers": 40, "seq_length": 131072, "rope_ratio": 500, "original_rope": True,
}  # fmt: skip
KIMI = {
    "model_type": "kimi_k2", "hidden_size": 7168, "num_attention_heads": 64,
    "num_hidden_layers": 61, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "kv_lora_rank": 512,
    "max_position_embeddings": 131072, "rope_theta": 50000.0,
    "rope_scaling": {
        "type": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
    },
}  # fmt: skip


def ids(found: Any) -> list[str]:
    return [note.id for note in found.notes]


def options(data: dict[str, Any]) -> Any:
    return read_config(data).group().rotation.options  # type: ignore[union-attr]


def test_chatglm_rotates_half_a_head_by_its_ratio() -> None:
    found = read_config(CHATGLM)
    assert (found.model_type, found.context, found.num_layers) == ("glm", 131072, 40)
    assert options(CHATGLM) == {
        "head_dim": 128, "base": 5e6, "layout": "interleaved", "rotary_dim": 64,
    }  # fmt: skip
    assert options({**CHATGLM, "rope_ratio": None})["base"] == 1e4
    halves = {**CHATGLM, "original_rope": False}
    assert options(halves) == {"head_dim": 128, "base": 5e6, "rotary_dim": 64}
    assert ids(read_config(halves)) == ["unknown-family"]
    with pytest.raises(
        ConfigError, match=r"position_encoding_2d must be false, because .* ChatGLM"
    ):
        read_config({**CHATGLM, "position_encoding_2d": True})


def test_the_note_says_as_what_it_was_read() -> None:
    (note,) = read_config(CHATGLM).notes
    assert note.id == "read-as"
    assert note.text.startswith("transformers has no type 'chatglm'; it is read as glm")


def test_kimi_k2_is_deepseek_v3() -> None:
    found, same = read_config(KIMI), read_config({**KIMI, "model_type": "deepseek_v3"})
    assert found.groups == same.groups
    assert found.group().softmax_scale == pytest.approx(1.8133, abs=1e-4)
    assert ids(found) == ["read-as", "mla"]
    novel = read_config({**KIMI, "model_type": "novel_mla"})
    assert novel.groups == same.groups
    assert ids(novel) == ["unknown-family", "mla"]


@pytest.mark.parametrize("name", ["RefinedWeb", "RefinedWebModel"])
def test_falcon_as_first_published(name: str) -> None:
    data = {"model_type": name, "hidden_size": 4544, "n_head": 71, "n_layer": 32, "alibi": False}
    found = read_config(data)
    assert (found.model_type, found.num_layers, ids(found)) == ("falcon", 32, ["read-as"])
    assert options(data) == {"head_dim": 64, "base": 1e4}
    assert read_config({**data, "alibi": True}).groups[0].rotation is None


def test_stablelm_epoch_has_its_share_under_another_name() -> None:
    data = {"model_type": "stablelm_epoch", **SIZES, "rope_pct": 0.5}
    assert options(data) == {"head_dim": 128, "base": 1e4, "rotary_dim": 64}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rope_scaling": None}, {}),
        ({"rope_interleave": None}, {}),
        ({"rope_pct": 0.25}, {"rotary_dim": 32}),
        ({"rotary_pct": 0.25, "rotary_emb_base": 7.0}, {"rotary_dim": 32, "base": 7.0}),
        ({"rotary_emb_fraction": 0.5}, {"rotary_dim": 64}),
        ({"partial_rotary_factor": 0.5}, {"rotary_dim": 64}),
        ({"rotary_dim": 32}, {"rotary_dim": 32}),
        ({"kv_channels": 64, "rope_theta": 7.0}, {"head_dim": 64, "base": 7.0}),
        ({"position_embedding_type": "rope"}, {}),
    ],
)
@pytest.mark.parametrize("name", ["plamo", "LLaMA"])
def test_types_that_nothing_knows_are_read_by_their_keys(
    name: str, keys: dict[str, Any], expected: dict[str, Any]
) -> None:
    data = {"model_type": name, **SIZES, **keys}
    assert options(data) == {"head_dim": 128, "base": 1e4, **expected}
    found = read_config(data)
    assert (ids(found), ids(found.group())) == (["unknown-family"], [])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "no-sign"),
        ({"model_type": "novel"}, "no-sign"),
        ({"model_type": "novel", **SIZES}, "no-sign"),
        ({"model_type": "novel", "head_dim": 64, "num_layers": 2}, "no-sign"),
        ({"model_type": "novel", **SIZES, "use_rope": False}, "no-sign"),
        ({"model_type": "novel", **SIZES, "properties": 1, "propeller": 1}, "no-sign"),
        (SIZES, "no-sign"),
        ({"model_type": "bert", **SIZES}, "no-rotary"),
        ({"model_type": "novel", **SIZES, "position_embedding_type": "absolute"}, "no-rotary"),
        ({"model_type": "novel", **SIZES, "alibi": True}, "alibi-instead"),
        ({"model_type": "baichuan", **SIZES, "num_hidden_layers": 40}, "alibi-instead"),
    ],
)
def test_what_is_not_read_as_a_rotation(data: dict[str, Any], why: str) -> None:
    found = read_config(data)
    assert (found.groups, ids(found)) == ((), [why])


def test_towers_that_nothing_knows_do_not_rotate_without_a_sign() -> None:
    text, tower = {"model_type": "llama", **SIZES}, {"model_type": "novel_vit", **SIZES}
    data = {"model_type": "novel_vl", "text_config": text, "vision_config": tower}
    found = read_config(data)
    assert ids(found.parts["vision_config"]) == ["no-sign"]
    assert found.groups == read_config(text).groups
    data["text_config"] = {"model_type": "novel_text", **SIZES}
    assert "no-sign" in ids(read_config(data))
    data["text_config"] = {"model_type": "novel_text", "rope_theta": 1e4, **SIZES}
    assert ids(read_config(data)) == ["unknown-family"]


def test_no_published_name_is_a_type_of_transformers() -> None:
    for name in ("RefinedWeb", "RefinedWebModel", "chatglm", "kimi_k2", "stablelm_epoch"):
        assert defaults.get_entry(name) is None
        assert not defaults.has_no_rotation(name)


def test_unknown_types_slide_by_their_window() -> None:
    data = {"model_type": "novel", **SIZES, "sliding_window": 512, "rope_theta": 1e4}
    assert read_config(data).group().window == 512
    assert read_config({**data, "use_sliding_window": False}).group().window is None
    kinds = {**data, "layer_types": ["full_attention", "sliding_attention"]}
    assert [group.window for group in read_config(kinds).groups] == [None, 512]
    assert isinstance(whorl.RoPE.from_config(kinds, layer=1), whorl.RoPE)


def test_deepseek_ocr_switches_latent_attention_off() -> None:
    text = {"model_type": "deepseek_v2", "use_mla": False, "qk_rope_head_dim": 0}
    text |= {"hidden_size": 1280, "num_attention_heads": 10, "num_hidden_layers": 12}
    found = read_config({"model_type": "deepseek_vl_v2", "language_config": text})
    assert found.build().config == whorl.RoPE(128).config
    with pytest.raises(ConfigError, match="use_mla false is not read"):
        read_config(text, parity="transformers")


def test_phi_3_small() -> None:
    factors = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    scaling = {"type": "su", "short_mscale": 1.0, "long_mscale": 1.19, **factors}
    scaling["original_max_position_embeddings"] = 8192
    data: dict[str, Any] = {"model_type": "phi3small", "hidden_size": 4096}
    data |= {"num_attention_heads": 32, "max_position_embeddings": 131072}
    data |= {"rope_embedding_base": 1e6, "rope_position_scale": 1.0, "rope_scaling": scaling}
    rope = whorl.RoPE.from_config(data)
    assert rope.config.base == 1e6
    short, long = rope.frequencies(8192), rope.frequencies(8193)
    torch.testing.assert_close(short.inv_freq, 2 * long.inv_freq)
    assert (float(short.attention_scale), float(long.attention_scale)) == (1.0, 1.19)
    with pytest.raises(
        ConfigError, match="rope_position_scale must be 1, because scaled positions"
    ):
        read_config({**data, "rope_position_scale": 2.0})


def test_mpt_rotates_where_its_attention_says_so() -> None:
    attention: dict[str, Any] = {"rope": True, "rope_theta": 5e5, "rope_impl": "hf"}
    attention["rope_hf_config"] = {"type": "linear", "factor": 2.0}
    data = {"model_type": "mpt", "d_model": 128, "n_heads": 4, "n_layers": 2}
    found = read_config({**data, "attn_config": attention})
    assert whorl.RoPE.from_config({**data, "attn_config": attention}).config.base == 5e5
    assert found.groups[0].rotation is not None
    assert found.groups[0].rotation.options["scaling"] == whorl.Linear(2.0)
    assert "transformers-differs" in [note.id for note in found.notes]
    assert not read_config({**data, "attn_config": attention}, parity="transformers").groups
    off = read_config({**data, "attn_config": {**attention, "rope": False}})
    assert (off.groups, [note.id for note in off.notes]) == ((), ["no-rotary"])
    plain = {**attention, "rope_hf_config": {"type": "no_scaling", "factor": 1.0}}
    assert whorl.RoPE.from_config({**data, "attn_config": plain}).config.scaling is None
    dail = {"rope": True, "rope_impl": "dail", "rope_dail_config": {"type": "xpos"}}
    with pytest.raises(ConfigError, match="must be 'original', because XPos is not read"):
        read_config({**data, "attn_config": dail})


NOMIC = {
    "model_type": "nomic_bert",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 8192,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "max_trained_positions": 2048,
}


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        ({}, {}),
        ({"rotary_emb_base": 10000}, {"base": 10_000.0}),
        ({"rotary_emb_fraction": 0.5}, {"rotary_dim": 32}),
        ({"rotary_emb_interleaved": True}, {"layout": "interleaved"}),
        ({"rotary_scaling_factor": 2}, {"scaling": DynamicNTK(2.0, 2048)}),
        (
            {"rotary_scaling_factor": 2, "max_trained_positions": 512},
            {"scaling": DynamicNTK(2, 512)},
        ),
    ],
)
def test_the_names_of_nomic_count(keys: dict[str, Any], options: dict[str, Any]) -> None:
    """They are those of its own code; the class of transformers reads none, and a note says so."""
    found = read_config({**NOMIC, **keys})
    (group,) = found.groups
    assert group.rotation is not None
    assert group.rotation.options == {"head_dim": 64, "base": 1000.0, **options}
    said = [note.text for note in found.notes if note.id == "transformers-differs"]
    assert bool(said) == bool(options)
    (theirs,) = read_config({**NOMIC, **keys}, parity="transformers").groups
    assert theirs.rotation is not None
    assert theirs.rotation.options == {"head_dim": 64, "base": 1000.0}


def test_what_nomic_cannot_be_read_with() -> None:
    message = r"rotary_emb_scale_base must be null, because XPos is not read; got 512"
    with pytest.raises(ConfigError, match=message):
        read_config({**NOMIC, "rotary_emb_scale_base": 512})


def test_another_layout_is_named() -> None:
    (note,) = read_config({**NOMIC, "rotary_emb_interleaved": True}).notes
    assert "layout half, not layout interleaved" in note.text


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        ({"rope_freq_constant": 50000}, {"base": 50_000.0}),
        ({"rope_freq_base": 50000}, {"base": 50_000.0}),
        ({"rotary_percent": 0.5}, {"rotary_dim": 64}),
        ({"rotary_emb_interleaved": True}, {"layout": "interleaved"}),
    ],
)
def test_more_names_of_models_that_are_not_known(
    keys: dict[str, Any], options: dict[str, Any]
) -> None:
    (group,) = read_config({"model_type": "novel", **SIZES, **keys}).groups
    assert group.rotation is not None
    head = group.rotation.options["head_dim"]
    assert group.rotation.options == {"head_dim": head, "base": 10_000.0, **options}


def test_of_an_unknown_type_we_cannot_tell() -> None:
    message = (
        "novel may or may not have a rotary embedding: its model type is not known, and no key"
        " mentions one."
    )
    with pytest.raises(ConfigError, match=message):
        read_config({"model_type": "novel"}).build()
    with pytest.raises(ConfigError, match=r"bert has no rotary embedding\."):
        read_config({"model_type": "bert", **SIZES}).build()
    assert write_verdict(inspect({"model_type": "novel"})) == message
    request = {"source": {"text": '{"model_type": "novel"}'}}
    assert api.answer_report(ExplorerState(), request)["problem"] == (
        message.removesuffix(".") + ", so there is nothing to draw."
    )
