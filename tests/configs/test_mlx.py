"""Configs of mlx-lm: its own initialize_rope is run where it is installed."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.configs import ConfigError, ModelPositions, read_config

BASE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 4096, "rope_theta": 10000.0,
    "quantization": {"group_size": 64, "bits": 4},
}  # fmt: skip
SHORT, LONG = [1.0 + n / 100 for n in range(32)], [1.5 + n / 4 for n in range(32)]

SCALINGS: dict[str, dict[str, Any]] = {
    "default": {"type": "default"},
    "linear": {"type": "linear", "factor": 4.0},
    "linear, new name": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2048,
    },
    "yarn": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    "deepseek_yarn": {
        "type": "deepseek_yarn", "factor": 40.0, "original_max_position_embeddings": 1024,
        "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1,
    },
    "mrope": {"type": "mrope", "mrope_section": [8, 12, 12]},
}  # fmt: skip


def theirs(scaling: dict[str, Any] | None, x: Tensor, traditional: bool, offset: int = 0) -> Tensor:
    """What mlx-lm's initialize_rope makes of x [1, 2, T, 64]."""
    mx = pytest.importorskip("mlx.core")
    rope_utils = pytest.importorskip("mlx_lm.models.rope_utils")
    rope = rope_utils.initialize_rope(64, 10000.0, traditional, scaling, 4096)
    return torch.tensor(rope(mx.array(x.numpy()), offset=offset).tolist())


def ours(found: ModelPositions, x: Tensor, **call: Any) -> Tensor:
    rope = found.build(precision="float32")
    rotated: Tensor = rope.rotate(x, **call)  # type: ignore[operator]
    return rotated


def sample(length: int = 50) -> Tensor:
    return torch.randn(1, 2, length, 64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("name", SCALINGS)
def test_rotations_equal_those_of_mlx_lm(name: str, traditional: bool) -> None:
    config = {**BASE, "rope_traditional": traditional, "rope_scaling": SCALINGS[name]}
    found = read_config(config)
    assert found.kind == "mlx"
    assert not [note for note in found.notes if note.id.startswith("mlx")]
    x = sample()
    torch.testing.assert_close(
        ours(found, x), theirs(SCALINGS[name], x, traditional), rtol=0, atol=2e-5
    )


def test_the_layout() -> None:
    for traditional, layout in ((True, "interleaved"), (False, "half")):
        found = read_config({**BASE, "rope_traditional": traditional})
        assert found.build().config.layout == layout  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match="rope_traditional must be true or false; got the string 'yes'"
    ):
        read_config({**BASE, "rope_traditional": "yes"})


def test_transformers_does_not_read_the_key() -> None:
    config = {**BASE, "rope_traditional": True}
    assert "layout-unread" in [note.id for note in read_config(config).notes]
    followed = read_config(config, parity="transformers")
    assert followed.build().config.layout == "half"  # type: ignore[attr-defined]
    usual = read_config({**BASE, "rope_traditional": False})  # what the family does anyway
    assert "layout-unread" not in [note.id for note in usual.notes]


def test_the_family_decides_without_the_key() -> None:
    cohere = {**BASE, "model_type": "cohere"}
    assert read_config(cohere).build().config.layout == "interleaved"  # type: ignore[attr-defined]
    assert read_config(BASE).build().config.layout == "half"  # type: ignore[attr-defined]


YARN = SCALINGS["yarn"]
LONGROPE = {
    "type": "longrope", "short_factor": SHORT, "long_factor": LONG,
    "original_max_position_embeddings": 1024,
}  # fmt: skip

#: The note, the keys, and by how much mlx-lm differs at least.
DIFFERENT: dict[str, tuple[dict[str, Any], float]] = {
    "mlx-attention-factor": ({**YARN, "attention_factor": 1.0}, 0.1),
    "mlx-truncate": ({**YARN, "truncate": False}, 1e-3),
    "mlx-mscale": ({**YARN, "mscale": 2.0}, 0.1),
    "mlx-long-factors": (LONGROPE, 0.1),
}


@pytest.mark.parametrize("note", DIFFERENT)
def test_where_mlx_lm_differs_a_note_says_so(note: str) -> None:
    scaling, at_least = DIFFERENT[note]
    found = read_config({**BASE, "rope_scaling": scaling})
    assert note in [one.id for one in found.notes]
    x = sample()
    assert (ours(found, x) - theirs(scaling, x, False)).abs().max() > at_least


def test_the_long_factors_are_the_same_past_the_switch() -> None:
    found = read_config({**BASE, "rope_scaling": LONGROPE})
    x = sample()
    far = ours(found, x, offset=2000)
    torch.testing.assert_close(far, theirs(LONGROPE, x, False, offset=2000), rtol=0, atol=2e-3)
    scale = found.build().frequencies().attention_scale  # type: ignore[operator]
    assert scale == pytest.approx(math.sqrt(1 + math.log(4) / math.log(1024)))


def test_type_comes_first() -> None:
    both = {"type": "linear", "rope_type": "default", "factor": 2.0}
    found = read_config({**BASE, "rope_scaling": both})
    assert [note.id for note in found.notes if note.id.startswith("mlx")] == ["mlx-type-first"]
    x = sample()
    torch.testing.assert_close(ours(found, x), theirs(both, x, False), rtol=0, atol=2e-5)
