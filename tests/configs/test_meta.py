"""params.json of Meta: against its complex rotation and its scaling, written out."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.configs import ConfigError, read_config
from whorl.scaling import Llama3

LLAMA2 = {
    "dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-05,
    "vocab_size": -1,
}  # fmt: skip
LLAMA31 = {
    "dim": 4096, "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "n_heads": 32, "n_kv_heads": 8,
    "n_layers": 32, "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": True,
    "vocab_size": 128256,
}  # fmt: skip
SCOUT = {
    "dim": 5120, "ffn_dim_multiplier": 1.2, "multiple_of": 2048, "n_heads": 40, "n_kv_heads": 8,
    "n_layers": 48, "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": True,
    "nope_layer_interval": 4, "use_qk_norm": True, "attention_chunk_size": 8192,
    "attn_temperature_tuning": True, "moe_args": {"num_experts": 16}, "vocab_size": 202048,
}  # fmt: skip


def frequencies(base: float, scaled: tuple[float, float] | None = None) -> Tensor:
    """Frequencies of a head with 128 channels; scaled: factor and high_freq_factor."""
    found = []
    for index in range(64):
        theta = base ** (-index / 64)
        wavelength = 2 * math.pi / theta
        if scaled is not None:
            factor, high = scaled
            if wavelength > 8192:
                theta /= factor
            elif wavelength >= 8192 / high:
                smooth = (8192 / wavelength - 1) / (high - 1) if high != 1 else 0.0
                theta = (1 - smooth) * theta / factor + smooth * theta
        found.append(theta)
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        (LLAMA2, frequencies(10_000.0)),
        ({**LLAMA2, "rope_theta": 1e6}, frequencies(1e6)),  # Code Llama
        (LLAMA31, frequencies(500000.0, (8.0, 4.0))),
        ({**LLAMA31, "rope_scaling_factor": 32.0}, frequencies(500000.0, (32.0, 4.0))),
        (SCOUT, frequencies(500000.0, (16.0, 1.0))),
    ],
)
def test_rotation_is_the_complex_product(params: dict[str, Any], wanted: Tensor) -> None:
    rope = read_config(params).build()
    torch.testing.assert_close(rope.frequencies().inv_freq, wanted, rtol=1e-12, atol=0)  # type: ignore[operator]
    x = torch.randn(1, 2, 9, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    angles = torch.arange(9, dtype=torch.float64).outer(wanted)
    turns = torch.polar(torch.ones_like(angles), angles)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns
    expected = torch.view_as_real(turned).flatten(-2)
    torch.testing.assert_close(rope.rotate(x), expected, rtol=0, atol=1e-6)  # type: ignore[operator]


def test_llama2() -> None:
    found = read_config(LLAMA2)
    assert (found.kind, found.model_type, found.num_layers) == ("meta", "llama", 32)
    assert found.context is None
    assert found.group().notes == ()


def test_the_factor_is_an_assumption() -> None:
    found = read_config(LLAMA31)
    assert found.build().config.scaling == Llama3(8.0, 8192)  # type: ignore[attr-defined]
    assert found.trained_context == 8192
    assert [note.id for note in found.group().notes] == ["factor-assumed"]
    assert read_config({**LLAMA31, "rope_scaling_factor": 32.0}).group().notes == ()
    assert read_config({**LLAMA31, "rope_scale_factor": 32}).group().parameters["factor"] == 32.0


def test_llama4() -> None:
    found = read_config(SCOUT)
    assert found.model_type == "llama4"
    assert found.group(layer=3).rotation is None
    assert found.group("full_attention").layers == tuple(range(3, 48, 4))
    scale = found.group(layer=3).query_scale
    assert scale is not None
    assert (scale.rule, scale.beta, scale.length, scale.shift) == ("log", 0.1, 8192.0, 1)
    ids = [note.id for note in found.group("chunked_attention").notes]
    assert ids == ["qk-norm-after", "chunked-attention"]
    assert [group.window for group in found.groups] == [8192, None]
    assert (
        read_config({**SCOUT, "attn_temperature_tuning": False}).group(layer=3).query_scale is None
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_heads": None}, "n_heads is missing; head_dim, which also"),
        ({"dim": None}, "dim is missing; head_dim, which also"),
        ({"dim": 16}, "dim must be a whole number from 32"),
        ({"dim": 32 * 63}, "head_dim must be even"),
        ({"n_layers": -1}, "n_layers must be a whole number from 1"),
        ({"rope_theta": "big"}, "rope_theta must be a finite number above 0; got the string 'big'"),
        ({"use_scaled_rope": 1}, "use_scaled_rope must be true or false"),
        ({"use_scaled_rope": True, "rope_scaling_factor": 0.5}, "Llama3: factor must be"),
    ],
)
def test_wrong_values_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_config({**LLAMA2, **change})
