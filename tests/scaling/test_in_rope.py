"""Scalings inside RoPE: transformers' modules end to end, partial rotation, rows, retuning."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import whorl
from tests.peers import needs_transformers_5
from whorl.encodings.rope import RoPEConfig
from whorl.scaling import DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN

from .samples import FOLLOWING, LONG, SCALINGS, SHORT, name_of


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Options of transformers, and the same scaling here, for 16 channels trained on 32 tokens.
MODELS: list[tuple[dict[str, Any], Scaling]] = [
    ({"rope_type": "linear", "factor": 4.0}, Linear(4.0)),
    ({"rope_type": "dynamic", "factor": 4.0}, DynamicNTK(4.0, 32)),
    (
        {"rope_type": "yarn", "factor": 4.0, "truncate": False, "beta_fast": 3.0},
        YaRN(4.0, 32, truncate=False, beta_fast=3.0),
    ),
    (
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        Llama3(8.0, 32),
    ),
    (
        {
            "rope_type": "longrope",
            "factor": 8.0,
            "short_factor": list(SHORT),
            "long_factor": list(LONG),
        },
        LongRoPE(SHORT, LONG, 32, factor=8.0),
    ),
    (
        {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        Proportional(0.5),
    ),
]


@needs_transformers_5
@pytest.mark.parametrize("length", [8, 32, 33, 100])
@pytest.mark.parametrize(("parameters", "scaling"), MODELS, ids=lambda v: getattr(v, "name", ""))
def test_tables_are_those_of_transformers_modules(
    parameters: dict[str, Any], scaling: Scaling, length: int
) -> None:
    shared = {"rope_theta": 10_000.0, "original_max_position_embeddings": 32}
    config = LlamaConfig(
        head_dim=16, max_position_embeddings=32, rope_parameters={**shared, **parameters}
    )
    positions = torch.arange(length)[None]
    cos, sin = LlamaRotaryEmbedding(config)(torch.empty(1), positions)
    rope = whorl.RoPE(16, scaling=scaling, precision="float32")
    got_cos, got_sin = rope.tables(positions)
    torch.testing.assert_close(got_cos, cos[..., :8], rtol=0, atol=2e-5)
    torch.testing.assert_close(got_sin, sin[..., :8], rtol=0, atol=2e-5)


@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
def test_partial_rotation_is_the_rotation_of_a_smaller_head(scaling: Scaling) -> None:
    x = random(2, 3, 50, 24)
    partial = whorl.RoPE(24, rotary_dim=16, rotary_start=4, scaling=scaling).rotate(x)
    small = whorl.RoPE(16, scaling=scaling).rotate(x[..., 4:20].contiguous())
    torch.testing.assert_close(partial[..., 4:20], small, rtol=0, atol=1e-12)
    assert torch.equal(partial[..., :4], x[..., :4])
    assert torch.equal(partial[..., 20:], x[..., 20:])


@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
def test_each_row_is_as_it_would_be_alone(scaling: Scaling) -> None:
    rope = whorl.RoPE(16, scaling=scaling)
    q, k = random(3, 2, 5, 16), random(3, 1, 5, 16, seed=1)
    positions = torch.arange(5) + torch.tensor([0, 30, 200])[:, None]
    together = rope(q, k, positions)
    for row in range(3):
        one = slice(row, row + 1)
        longest = int(positions[row].max()) + 1
        alone = rope(q[one], k[one], positions[one], context_length=longest)
        counted = rope(q[one], k[one], offset=int(positions[row, 0]))
        for got, want, again in zip(together, alone, counted, strict=True):
            torch.testing.assert_close(got[one], want, rtol=0, atol=1e-12)
            torch.testing.assert_close(got[one], again, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scaling", SCALINGS, ids=name_of)
def test_the_attention_scale_is_applied_once_and_undone(scaling: Scaling) -> None:
    rope, x = whorl.RoPE(16, scaling=scaling), random(2, 2, 40, 16)
    rotated = rope.rotate(x)
    scale = float(rope.frequencies(40).attention_scale)
    torch.testing.assert_close(rotated.norm(dim=-1), scale * x.norm(dim=-1))
    torch.testing.assert_close(rope.rotate(rotated, inverse=True), x)


@pytest.mark.parametrize("scaling", FOLLOWING, ids=name_of)
def test_retuned_keys_are_those_of_the_new_length(scaling: Scaling) -> None:
    rope, k = whorl.RoPE(16, scaling=scaling), random(2, 2, 20, 16)
    lengths = torch.tensor([64, 300])
    old = rope.rotate(k, context_length=20)
    new = rope.rotate(k, context_length=lengths)
    moved = rope.retune(old, old=rope.frequencies(20), new=rope.frequencies(lengths))
    torch.testing.assert_close(moved, new, rtol=0, atol=1e-12)


def test_a_dictionary_serves_as_scaling() -> None:
    scaling = YaRN(4.0, 32, truncate=False)
    assert whorl.make("rope", head_dim=16, scaling=scaling.to_dict()).config == RoPEConfig(
        16, scaling=scaling
    )
    assert repr(whorl.RoPE(16, scaling=scaling)) == f"RoPE(16, scaling={scaling!r})"


def test_trained_frequencies_start_from_the_scaled_ones() -> None:
    rope = whorl.RoPE(16, scaling=YaRN(4.0, 32), frequencies="trained")
    fixed = whorl.RoPE(16, scaling=YaRN(4.0, 32))
    assert torch.equal(rope.frequencies().inv_freq, fixed.frequencies().inv_freq)
