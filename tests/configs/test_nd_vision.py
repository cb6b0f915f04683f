"""Vision encoders: read_config gives the rotation of each encoder of transformers."""

from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from tests.peers import needs_transformers_5
from whorl.configs import ConfigError, read_config
from whorl.configs.huggingface.nd.vision import VISION_ENCODERS

pytest.importorskip("transformers")

from . import nd_models

pytestmark = needs_transformers_5


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_every_vision_encoder_has_a_peer() -> None:
    assert VISION_ENCODERS.keys() == nd_models.TOWER_CLASSES.keys()
    print(f"vision encoders: {len(VISION_ENCODERS)} of 30")
    assert len(VISION_ENCODERS) == 30


@pytest.mark.parametrize("model_type", VISION_ENCODERS)
def test_rotation_is_the_models_own(model_type: str) -> None:
    peer, tower = nd_models.tower(model_type), VISION_ENCODERS[model_type]
    rope = nd_models.rotation(peer.config).build(precision="float32")
    assert isinstance(rope, whorl.AxialRoPE)
    inv_freq, axes = rope.frequencies().inv_freq, rope.config.axes
    by_axis = (
        inv_freq.view(-1, axes).T if rope.config.order == "alternating" else inv_freq.view(axes, -1)
    )
    want = peer.rotary.inv_freq.double()
    want = want.view(2, -1) if tower.share == "one" else want.expand(axes, -1)
    torch.testing.assert_close(by_axis, want, rtol=1e-6, atol=0)
    positions = torch.stack([peer.raw[name] for name in tower.coordinates]) + tower.first
    q, k = (random(1, 2, positions.shape[1], rope.config.head_dim, seed=n) for n in (1, 2))
    for ours, theirs in zip(rope(q, k, positions), peer.turned(q, k), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    other = rope.rotate(q, positions.flip(0))
    assert float((other - peer.turned(q, k)[0]).abs().max()) > 0.1  # the axes matter


@pytest.mark.parametrize("model_type", VISION_ENCODERS)
def test_a_config_may_leave_everything_out(model_type: str) -> None:
    whole = read_config(nd_models.tower(model_type).config)
    short = read_config({"model_type": model_type})
    assert [group.rotation for group in short.groups] == [group.rotation for group in whole.groups]
    assert short.num_layers > 0


def only(data: dict[str, Any]) -> dict[str, Any]:
    (group,) = read_config(data).groups
    assert group.rotation is not None
    return dict(group.rotation.options)


def test_old_configs() -> None:
    pixtral = {"model_type": "pixtral", "rope_theta": 1e6, "head_dim": 32}
    assert only(pixtral) == {"head_dim": 32, "base": 1e6, "fastest": (1.0, 1e6 ** (-1 / 16))}
    both = {**pixtral, "rope_parameters": {"rope_theta": 5.0, "rope_type": "axial"}}
    assert only(both)["base"] == 5.0
    legacy = {"model_type": "step3p5_vision", "width": 64, "heads": 4, "layers": 3}
    assert only(legacy)["head_dim"] == 16
    assert read_config(legacy).num_layers == 3


def test_layers_of_sam3_differ_in_their_positions() -> None:
    found = read_config({"model_type": "sam3_vit_model"})
    assert [(group.name, len(group.layers)) for group in found.groups] == [
        ("window", 28),
        ("global", 4),
    ]
    assert found.groups[0].rotation == found.groups[1].rotation
    ids = [{note.id for note in group.notes} for group in found.groups]
    assert ids[1] - ids[0] == {"fractional-positions"}
    peer = nd_models.tower("sam3_vit_model")
    config, rope = peer.config, whorl.AxialRoPE.from_config(peer.config, precision="float32")
    config.image_size, config.patch_size = (14 * 5, 14 * 6), 14
    across = peer.module.Sam3ViTLayer.precompute_positions(config, 0)
    at = whorl.positions.grid(6, 5).flip(0) * (config.window_size / 5)
    q = random(1, 2, 30, 64, seed=0)
    want = peer.module.apply_rotary_pos_emb_2d(q, q, *peer.rotary(q, across))[0]
    torch.testing.assert_close(rope.rotate(q, at), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
            r"rope_parameters\.rope_type must be 'axial', because this model has no other"
            r" frequencies; got 'yarn'\.",
        ),
        ({"rope_theta": "x"}, r"rope_theta must be a finite number above 0; got the string 'x'"),
        ({"hidden_size": 72, "num_attention_heads": 12}, r"6 channels do not split into 2 axes"),
        (
            {"hidden_size": 8, "num_attention_heads": 16},
            r"heads must have 2 to \d+ channels.*got 8 channels for 16 heads",
        ),
        ({"hidden_size": [1]}, r"hidden_size must be a whole number from 1 to \d+; got \[1\]"),
        ({"depth": 1e30}, r"depth must be a whole number from 0 to \d+; got 1e\+30"),
    ],
)
def test_bad_values_are_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config({"model_type": "qwen3_vl_vision", **data})
