"""Rotations by unusual coordinates: nine families, by AxialRoPE or refused."""

import importlib
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from tests.peers import needs_transformers_5
from whorl.configs import ConfigError, read_config
from whorl.configs.huggingface.nd.others import OTHERS

from .nd_models import rotation

pytest.importorskip("transformers")

pytestmark = needs_transformers_5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def model(name: str) -> Any:
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def built(config: Any) -> whorl.AxialRoPE:
    rope = rotation(config).build(precision="float32")
    assert isinstance(rope, whorl.AxialRoPE)
    return rope


def close(ours: Any, theirs: Any) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_count() -> None:
    refused = [name for name in OTHERS if name == "vjepa2"]
    print(f"others: 9 of 9: {len(OTHERS) - len(refused)} by a class, {len(refused)} refused")
    assert len(OTHERS) == 9


@pytest.mark.parametrize(
    ("name", "rotary", "config"),
    [
        ("dinov3_vit", "DINOv3ViTRopePositionEmbedding", "DINOv3ViTConfig"),
        ("sapiens2", "Sapiens2RopePositionEmbedding", "Sapiens2Config"),
        ("eomt_dinov3", "EomtDinov3RotaryEmbedding", "EomtDinov3Config"),
    ],
)
def test_centres_of_patches(name: str, rotary: str, config: str) -> None:
    peer = model(name)
    given = getattr(peer, config)()
    theirs, rope = getattr(peer, rotary)(given).eval(), built(given)
    want = 2 * math.pi * theirs.inv_freq.double()
    torch.testing.assert_close(rope.frequencies().inv_freq, want.repeat(2), rtol=1e-6, atol=0)
    size = given.patch_size
    cos_sin = theirs(torch.zeros(1, 3, 5 * size, 3 * size))
    q, k = (random(1, 2, 20, rope.config.head_dim, seed=n) for n in (1, 2))
    turned = peer.apply_rotary_pos_emb(q, k, *cos_sin)
    at = whorl.positions.grid(5, 3, coordinates="centers")
    close(rope(q[:, :, 5:], k[:, :, 5:], at), (x[:, :, 5:] for x in turned))
    assert torch.equal(turned[0][:, :, :5], q[:, :, :5])  # class and registers


def test_llama4_vision() -> None:
    peer = model("llama4")
    config = peer.Llama4VisionConfig(image_size=70, patch_size=14)
    rope = built(config)
    q, k = (random(1, 26, 2, rope.config.head_dim, seed=n) for n in (1, 2))  # [B, T, H, D]
    want = peer.vision_apply_rotary_emb(q, k, peer.Llama4VisionRotaryEmbedding(config)(q))
    at = torch.cat((whorl.positions.grid(5, 5).flip(0) + 1, torch.zeros(2, 1)), 1)
    ours = rope(q.transpose(1, 2), k.transpose(1, 2), at)
    close((x.transpose(1, 2) for x in ours), want)


def test_efficientloftr() -> None:
    peer = model("efficientloftr")
    config = peer.EfficientLoFTRConfig()
    theirs, rope = peer.EfficientLoFTRRotaryEmbedding(config), built(config)
    want = theirs.inv_freq.double().repeat_interleave(2)
    torch.testing.assert_close(rope.frequencies().inv_freq, want, rtol=1e-6, atol=0)
    cos, sin = theirs(torch.zeros(1, 256, 12, 20))  # 3 x 5 after aggregation
    q, k = (random(1, 15, 1, 256, seed=n) for n in (1, 2))
    flat = cos.flatten(1, 2), sin.flatten(1, 2)
    turned = peer.apply_rotary_pos_emb(q, k, *flat, unsqueeze_dim=2)
    ours = rope(q.transpose(1, 2), k.transpose(1, 2), whorl.positions.grid(3, 5) + 1)
    close((x.transpose(1, 2) for x in ours), turned)


def test_lightglue() -> None:
    peer = model("lightglue")
    config = peer.LightGlueConfig()
    theirs, rope = peer.LightGluePositionalEncoder(config), built(config)
    with torch.no_grad():
        rope.freqs.copy_(theirs.projector.weight.T)
    points = random(1, 7, 2, seed=3)
    q, k = (random(1, 4, 7, rope.config.head_dim, seed=n) for n in (1, 2))
    with torch.no_grad():
        turned = peer.apply_rotary_pos_emb(q, k, *theirs(points)[0])
        close(rope(q, k, points.movedim(-1, 0)), turned)


def test_musicflamingo() -> None:
    peer = model("musicflamingo")
    config = peer.MusicFlamingoConfig()
    theirs = peer.MusicFlamingoRotaryEmbedding(config)
    found = read_config(config)
    assert isinstance(found.build(), whorl.RoPE)  # of its text
    rope = found.parts["audio_time"].build()
    assert isinstance(rope, whorl.AxialRoPE)
    want = theirs.inv_freq.double().repeat(2)
    torch.testing.assert_close(rope.frequencies().inv_freq, want, rtol=1e-6, atol=0)
    frames, step = 5, config.audio_frame_step * 4
    times = torch.arange(10.0).view(2, 5) * step + 3 * step * frames  # from the fourth window on
    hidden = random(2, frames, rope.config.head_dim)
    turned = peer.apply_rotary_time_emb(hidden, *theirs(times, frames))
    windows = torch.tensor([[3.0], [4.0]]).expand(2, frames)
    at = torch.stack((-times * windows, -2 * math.pi * times * torch.arange(frames)))
    at = at.double() * 2 * math.pi / config.max_position_embeddings
    close([rope.rotate(hidden.unsqueeze(1), at).squeeze(1)], [turned])


@pytest.mark.parametrize("head", [32, 40])
def test_esmfold2(head: int) -> None:
    peer = model("esmfold2")
    atoms = peer.EsmFold2AtomEncoderConfig(head_dim=head)
    config = peer.EsmFold2Config(atom_encoder=atoms.to_dict())
    rope = built(config)
    places, numbers = random(1, 9, 3, seed=3) * 5, torch.arange(9).view(1, 9) // 2
    cos_sin = peer.EsmFold2RotaryEmbedding(atoms)(places, numbers, torch.float32)
    q, k = (random(1, 2, 9, head, seed=n) for n in (1, 2))
    at = torch.cat((places.movedim(-1, 0), numbers[None].float()))
    close(rope(q, k, at), peer.apply_rotary_pos_emb(q, k, *cos_sin))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"model_type": "efficientloftr", "num_attention_heads": 4},
            r"hidden_size must be 512, because rows and columns rotate 256 channels each",
        ),
        (
            {"model_type": "musicflamingo", "rope_parameters": {"partial_rotary_factor": 0.7}},
            r"partial_rotary_factor must be a share that two axes can take of 1280 channels, in wh",
        ),
        (
            {
                "model_type": "esmfold2",
                "atom_encoder": {
                    "uid_rope_base_frequency": 5e-324,
                    "head_dim": 512,
                    "num_uid_rope_pairs": 200,
                },
            },
            r"AxialRoPE: inv_freq must hold 256 finite frequencies",
        ),
        (
            {"model_type": "esmfold2", "atom_encoder": {"num_uid_rope_pairs": 11}},
            r"atom_encoder\.num_uid_rope_pairs must be at most 10, because heads have 32; got 11",
        ),
        (
            {"model_type": "dinov3_vit", "rope_parameters": {"rope_type": "linear"}},
            r"rope_parameters\.rope_type must be 'default', because this model has no other",
        ),
        ({"model_type": "lightglue", "descriptor_dim": 2}, r"got 2 channels for 4 heads"),
        (
            {"model_type": "efficientloftr", "partial_rotary_factor": 1e308},
            r"hidden_size must be \d+, because .*1e\+308",
        ),
    ],
)
def test_bad_values_are_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(data)


@pytest.mark.parametrize("model_type", OTHERS)
def test_a_config_may_leave_everything_out(model_type: str) -> None:
    found = read_config({"model_type": model_type})
    (group,) = (found.parts.get("audio_time") or found).groups
    assert (group.rotation is None) == (model_type == "vjepa2")
    if group.rotation is not None:
        assert isinstance(group.rotation.build(), whorl.AxialRoPE)


def test_vjepa2_is_no_rotation() -> None:
    peer = model("vjepa2")
    found = read_config(peer.VJEPA2Config())
    (group,) = found.groups
    assert group.rotation is None
    assert "not-a-rotation" in {note.id for note in group.notes}
    with pytest.raises(
        ConfigError,
        match=r"vjepa2 uses different angles for the channels 2 i and 2 i \+ 1 of a pair",
    ):
        found.build()
    x = random(1, 16, 16, 20)  # what an axis has of a head of 64
    turned = peer.rotate_queries_or_keys(x, torch.arange(16))
    change = turned.norm(dim=-1) / x.norm(dim=-1)
    assert 0.75 < float(change.min()) < 0.85
    assert 1.15 < float(change.max()) < 1.25
    one = x[:, :1, :1].expand(1, 1, 16, 20)
    turned = peer.rotate_queries_or_keys(one, torch.arange(16))[0, 0]
    near, far = (float(turned[n + 3] @ turned[n]) for n in (0, 10))  # as far apart
    assert abs(near - far) > 0.5
