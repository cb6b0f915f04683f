"""M-RoPE backbones: read_config gives the rotation of each of them, and refuses XD-RoPE."""

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from tests.peers import needs_transformers_5
from whorl.configs import ConfigError, read_config
from whorl.configs.huggingface.nd.mrope import MROPE

pytest.importorskip("transformers")

pytestmark = needs_transformers_5

#: model_type -> module, rotary class, config class, and a realistic size where the default has none
BACKBONES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "cohere_compass_text": (
        *("cohere_compass", "CohereCompass", "CohereCompassText"),
        {
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "cosmos3_edge_text": ("cosmos3_edge", "Cosmos3EdgeText", "Cosmos3EdgeText", {}),
    "ernie4_5_vl_moe_text": (
        *("ernie4_5_vl_moe", "Ernie4_5_VLMoeText", "Ernie4_5_VLMoeText"),
        {},
    ),
    "glm4v_moe_text": (
        *("glm4v_moe", "Glm4vMoeText", "Glm4vMoeText"),
        {"head_dim": 128, "partial_rotary_factor": 0.5},
    ),
    "glm4v_text": ("glm4v", "Glm4vText", "Glm4vText", {"partial_rotary_factor": 0.5}),
    "glm_image_text": (
        *("glm_image", "GlmImageText", "GlmImageText"),
        {"partial_rotary_factor": 0.5},
    ),
    "glm_ocr_text": ("glm_ocr", "GlmOcrText", "GlmOcrText", {}),
    "neomme": ("neomme", "NeoMME", "NeoMME", {}),
    "paddleocr_vl_text": ("paddleocr_vl", "PaddleOCR", "PaddleOCRText", {}),
    "qwen2_5_omni_talker": ("qwen2_5_omni", "Qwen2_5Omni", "Qwen2_5OmniTalker", {}),
    "qwen2_5_omni_text": ("qwen2_5_omni", "Qwen2_5Omni", "Qwen2_5OmniText", {}),
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VL", "Qwen2_5_VLText", {}),
    "qwen2_vl_text": ("qwen2_vl", "Qwen2VL", "Qwen2VLText", {}),
    "qwen3_5_moe_text": ("qwen3_5_moe", "Qwen3_5MoeText", "Qwen3_5MoeText", {}),
    "qwen3_5_text": ("qwen3_5", "Qwen3_5Text", "Qwen3_5Text", {}),
    "qwen3_omni_moe_talker_text": (
        *("qwen3_omni_moe", "Qwen3OmniMoeTalker", "Qwen3OmniMoeTalkerText"),
        {"head_dim": 128},
    ),
    "qwen3_omni_moe_text": (
        *("qwen3_omni_moe", "Qwen3OmniMoeThinkerText", "Qwen3OmniMoeText"),
        {"head_dim": 128},
    ),
    "qwen3_vl_moe_text": ("qwen3_vl_moe", "Qwen3VLMoeText", "Qwen3VLMoeText", {}),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLText", "Qwen3VLText", {}),
    "qwen4_exp_text": (
        *("qwen4_exp", "Qwen4ExpText", "Qwen4ExpText"),
        {"partial_rotary_factor": 0.25},
    ),
}


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def peer(model_type: str, **more: Any) -> tuple[Any, Any, Any]:
    """The module, a config and a rotary module."""
    name, rotary, config, sizes = BACKBONES[model_type]
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    configs = importlib.import_module(f"transformers.models.{name}.configuration_{name}")
    given = getattr(configs, f"{config}Config")(**sizes, **more)
    return module, given, getattr(module, f"{rotary}RotaryEmbedding")(given)


def test_every_backbone_is_compared() -> None:
    refused = [name for name, backbone in MROPE.items() if backbone.order is None]
    print(
        f"M-RoPE backbones: {len(MROPE)} of 21: {len(BACKBONES)} by MRoPE, {len(refused)} refused"
    )
    assert refused == ["hunyuan_vl_text"]
    assert MROPE.keys() == {*BACKBONES, "hunyuan_vl_text"}
    assert len(MROPE) == 21


@pytest.mark.parametrize("model_type", BACKBONES)
def test_rotation_is_the_models_own(model_type: str) -> None:
    module, config, rotary = peer(model_type)
    found = read_config(config)
    groups = [group for group in found.groups if group.rotation is not None]
    assert groups
    for group in groups:
        assert group.rotation is not None
        rope = group.rotation.build(precision="float32")
        assert isinstance(rope, whorl.MRoPE)
        nested = hasattr(rotary, f"{group.name}_inv_freq")
        inv_freq = getattr(rotary, f"{group.name}_inv_freq") if nested else rotary.inv_freq
        want = inv_freq.double().sort(descending=True).values  # ERNIE stores them by axis
        torch.testing.assert_close(rope.frequencies().inv_freq, want, rtol=1e-6, atol=0)
        q, k = (random(2, 2, 7, rope.config.head_dim, seed=n) for n in (1, 2))
        random_places = torch.Generator().manual_seed(1)
        at = torch.randint(0, 3000, (rope.config.num_axes, 2, 7), generator=random_places)
        cos, sin = rotary(q, at, *([group.name] if nested else []))
        theirs = module.apply_rotary_pos_emb(q, k, cos=cos, sin=sin)
        for ours, other in zip(rope(q, k, at), theirs, strict=True):
            torch.testing.assert_close(ours, other, rtol=0, atol=1e-5)
        assert float((rope.rotate(q, at.flip(0)) - theirs[0]).abs().max()) > 0.1


SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
]


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda scaling: scaling["rope_type"])
@pytest.mark.parametrize("model_type", ["qwen2_5_vl_text", "qwen3_vl_text", "glm4v_text"])
def test_scalings(model_type: str, scaling: dict[str, Any]) -> None:
    share = BACKBONES[model_type][3]
    rope = {**scaling, "rope_theta": 1e6, **share}
    _, config, rotary = peer(model_type, rope_parameters=rope)
    found = read_config(config).build(precision="float32")
    assert isinstance(found, whorl.MRoPE)
    frequencies = found.frequencies()
    want = rotary.inv_freq.double()
    torch.testing.assert_close(frequencies.inv_freq, want, rtol=1e-6, atol=0)
    assert frequencies.attention_scale == pytest.approx(rotary.attention_scaling, rel=1e-6)


def test_a_long_row_stretches_the_whole_batch_for_transformers_only() -> None:
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    module, config, rotary = peer("qwen2_vl_text", rope_parameters=rope, max_position_embeddings=64)
    at = torch.arange(7).repeat(3, 2, 1)
    at[2, 1, 6] = 200  # a column of the second row
    q = random(2, 2, 7, 128, seed=0)
    want = module.apply_rotary_pos_emb(q, q, *rotary(q, at))[0]
    alike = read_config(config, parity="transformers").build(precision="float32")
    assert isinstance(alike, whorl.MRoPE)
    torch.testing.assert_close(alike.rotate(q, at), want, rtol=0, atol=1e-5)
    right = whorl.MRoPE.from_config(config, precision="float32").rotate(q, at)
    torch.testing.assert_close(right[1], want[1], rtol=0, atol=1e-5)
    assert float((right[0] - want[0]).abs().max()) > 0.1


def options(data: dict[str, Any]) -> dict[str, Any]:
    rotation = read_config(data).group().rotation
    assert rotation is not None
    assert rotation.encoding == "mrope"
    return dict(rotation.options)


def test_old_configs_hold_the_text_beside_the_tower() -> None:
    """Qwen2-VL-7B as its makers published it."""
    data = {
        "model_type": "qwen2_vl",
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vision_config": {"depth": 32, "embed_dim": 1280, "num_heads": 16, "hidden_size": 3584},
    }
    want = {"head_dim": 128, "base": 1e6, "order": "chunked", "sections": (16, 24, 24)}
    assert options(data) == want
    found = read_config(data)
    assert found.num_layers == 28
    tower = found.parts["vision_config"].build()
    assert isinstance(tower, whorl.AxialRoPE)
    assert tower.config.head_dim == 80


def test_sections() -> None:
    small = {"model_type": "qwen3_vl_text", "head_dim": 64}
    assert options(small)["sections"] == (11, 11, 10)
    notes = {note.id: note.text for note in read_config(small).groups[0].notes}
    assert notes["sections-not-taken"] == (
        "mrope_section is [24, 20, 20], but the model uses [11, 11, 10] of its 32 pairs: rows and"
        " columns every third pair as far as it fits, time the others."
    )
    chunked = {"model_type": "qwen2_vl_text", "head_dim": 32}
    four = {"mrope_section": [4, 4, 4, 4], "rope_type": "default"}
    assert options({**chunked, "rope_parameters": four})["axes"] == (0, 1, 2, 0)
    two = {"mrope_section": [4, 12], "rope_type": "default"}
    assert options({**chunked, "rope_parameters": two})["sections"] == (4, 12, 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"model_type": "qwen2_vl_text", "head_dim": 64},
            r"rope_parameters\.mrope_section: MRoPE: sections must add up to R/2 = 32, .* got \(16",
        ),
        (
            {"model_type": "qwen3_vl_text", "rope_parameters": {"mrope_section": [1, 2]}},
            r"rope_parameters\.mrope_section must be a list of 3 numbers of pairs; got \[1, 2\]",
        ),
        (
            {"model_type": "qwen3_vl_text", "rope_parameters": {"mrope_section": [1, -2, 3]}},
            r"rope_parameters\.mrope_section must be numbers of pairs, 0 or more; got \[1, -2, 3",
        ),
        (
            {"model_type": "qwen3_vl_text", "rope_parameters": {"mrope_section": "thw"}},
            r"rope_parameters\.mrope_section must be a list of whole numbers; got the string 'thw'",
        ),
        (
            {"model_type": "glm4v_text", "rope_parameters": {"partial_rotary_factor": 0.26}},
            r"rope_parameters\.partial_rotary_factor must be a share of 128 channels that is even,"
            r" because pairs have an axis; got 0\.26",
        ),
        (
            {
                "model_type": "ernie4_5_vl_moe_text",
                "rope_parameters": {"rope_type": "linear", "factor": 2.0},
            },
            r"must be 'default', because ernie4_5_vl_moe_text has no other frequencies; got 'lin",
        ),
    ],
)
def test_bad_sections_are_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(data)


def test_xd_rope_is_no_rotation() -> None:
    from transformers.models.hunyuan_vl import modeling_hunyuan_vl as peer
    from transformers.models.hunyuan_vl.configuration_hunyuan_vl import HunYuanVLTextConfig

    scaling = {"type": "xdrope", "factor": 1.0, "alpha": 1000.0, "xdrope_section": [16] * 4}
    config = HunYuanVLTextConfig(head_dim=128, rope_scaling=dict(scaling))
    found = read_config(config)
    (group,) = found.groups
    assert group.rotation is None
    assert "not-a-rotation" in {note.id for note in group.notes}
    with pytest.raises(ConfigError, match=r"XD-RoPE, which is not a rotation.*RoPE\(head_dim=128"):
        found.build()
    rotary = peer.HunYuanVLRotaryEmbedding(config)
    q, places = random(1, 16, 256, 128, seed=0), torch.arange(256)
    # position, column, row and number of an image of 16 x 16 after 10 tokens of text
    image = torch.stack((places + 10, places % 16, places // 16, 0 * places))
    turned = peer.apply_rotary_pos_emb(q, q, *rotary(q, image[:, None]))[0]
    change = turned.norm(dim=-1) / q.norm(dim=-1)
    assert 0.85 < float(change.min()) < 0.95
    assert 1.05 < float(change.max()) < 1.15
    # On text it is the RoPE that the refusal names.
    text = places.expand(4, 1, 256)
    want = peer.apply_rotary_pos_emb(q, q, *rotary(q, text))[0]
    rope = whorl.RoPE(128, base=10_000.0, scaling=whorl.NTK(1000.0), precision="float32")
    torch.testing.assert_close(rope.rotate(q), want, rtol=0, atol=1e-5)
