"""Which layers of a GGUF model slide, rotate, or do neither, and how their queries are scaled."""

from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.configs import ConfigError, ModelPositions, read_config
from whorl.scaling import Ladder, Linear, Proportional

from .test_gguf import file_with, options, read


def gemma4(tmp_path: Path) -> ModelPositions:
    factors = [1.0] * 16 + [1e30] * 48
    return read_config(
        file_with(
            tmp_path,
            {"rope_freqs.weight": factors},
            "gemma4",
            block_count=6,
            attention__key_length=128,
            attention__key_length_swa=64,
            attention__sliding_window=512,
            attention__sliding_window_pattern=[True] * 5 + [False],
            rope__freq_base=1e6,
            rope__freq_base_swa=1e4,
            rope__dimension_count=128,
            rope__dimension_count_swa=64,
        )
    )


def test_gemma4_has_two_widths_and_still_pairs(tmp_path: Path) -> None:
    found = gemma4(tmp_path)
    sliding, full = found.groups
    assert (sliding.name, sliding.layers, sliding.window) == (
        "sliding_attention",
        (0, 1, 2, 3, 4),
        512,
    )
    assert (full.name, full.layers, full.window) == ("full_attention", (5,), None)
    assert options(found, layer=0) == {"head_dim": 64, "base": 1e4, "layout": "half"}
    assert options(found, layer=5)["scaling"] == Proportional(0.25)
    still = found.build(layer=5).frequencies().inv_freq  # type: ignore[operator]
    assert torch.equal(still[16:], torch.zeros(48, dtype=torch.float64))
    torch.testing.assert_close(still[:16], Ladder.of(128, 1e6).inv_freq[:16])


@pytest.mark.parametrize(
    ("architecture", "keys", "sliding"),
    [
        ("gemma2", {}, [0, 2, 4, 6]),
        ("gpt-oss", {}, [0, 2, 4, 6]),
        ("gemma3", {}, [0, 1, 2, 3, 4, 6, 7]),
        ("olmo2", {}, [0, 1, 2, 4, 5, 6]),
        ("modern-bert", {}, [1, 2, 4, 5, 7]),
        ("gemma3", {"attention__sliding_window_pattern": 2}, [0, 2, 4, 6]),
        ("gemma3", {"attention__sliding_window_pattern": [1, 1, 0, 0] * 2}, [0, 1, 4, 5]),
        ("gemma3", {"attention__sliding_window": None}, []),
        ("llama", {}, []),
    ],
)
def test_sliding_layers(architecture: str, keys: dict[str, Any], sliding: list[int]) -> None:
    found = read(architecture, **{"block_count": 8, "attention__sliding_window": 128, **keys})
    groups = {group.name: list(group.layers) for group in found.groups}
    assert groups.get("sliding_attention", []) == sliding
    assert found.num_layers == 8


def test_step35_rotates_half_of_the_head_where_it_sees_everything() -> None:
    found = read(
        "step35",
        attention__sliding_window=128,
        attention__sliding_window_pattern=[0, 1, 1, 1],
        rope__dimension_count=64,
    )
    assert options(found, layer=0)["rotary_dim"] == 32
    assert "rotary_dim" not in options(found, layer=1)


def test_bases_of_sliding_layers() -> None:
    keys = {"block_count": 8, "attention__sliding_window": 128, "rope__scaling__factor": 8.0}
    for architecture, base, scaled in (
        ("gemma3", 1e4, False),
        ("gemma2", 1e6, True),
        ("olmo2", 1e6, False),
    ):
        found = read(architecture, **keys, rope__freq_base=1e6)
        assert options(found, layer_type="sliding_attention")["base"] == base
        assert ("scaling" in options(found, layer_type="sliding_attention")) is scaled
        assert options(found, layer_type="full_attention")["scaling"] == Linear(8.0)


@pytest.mark.parametrize(
    ("architecture", "keys", "unrotated"),
    [
        ("cohere2", {"attention__sliding_window": 128}, [3, 7]),
        ("smollm3", {}, [3, 7]),
        ("afmoe", {"attention__sliding_window": 128}, [3, 7]),
        ("smallthinker", {"attention__sliding_window": 128}, [0, 4]),
        ("llama4", {}, [3, 7]),
        ("llama4", {"attention__sliding_window": 0}, []),
        ("exaone4", {"attention__sliding_window": 128}, []),
        ("exaone4", {"attention__sliding_window": 128, "block_count": 64}, list(range(3, 64, 4))),
        ("lfm2", {"attention__head_count_kv": [0, 2, 0, 2] * 2}, [0, 2, 4, 6]),
        ("qwen3next", {"full_attention_interval": 4}, [0, 1, 2, 4, 5, 6]),
    ],
)
def test_layers_without_rotation(
    architecture: str, keys: dict[str, Any], unrotated: list[int]
) -> None:
    found = read(architecture, **{"block_count": 8, **keys})
    plain = [i for group in found.groups if group.rotation is None for i in group.layers]
    assert sorted(plain) == unrotated
    why = "no-attention" if architecture in ("lfm2", "qwen3next") else "nope-layers"
    for group in found.groups:
        chunked = architecture == "llama4" and group.window is not None
        rotated = ["chunked-attention"] if chunked else []
        assert [note.id for note in group.notes] == ([why] if group.rotation is None else rotated)


def test_query_scales() -> None:
    llama4 = read("llama4", block_count=8)
    assert [group.window for group in llama4.groups] == [8192, None]
    assert [group.name for group in llama4.groups] == ["chunked_attention", "full_attention"]
    assert llama4.group(layer=0).query_scale is None
    scale = llama4.group(layer=3).query_scale
    assert scale is not None
    assert (scale.rule, scale.beta, scale.length, scale.shift) == ("log", 0.1, 8192.0, 1)
    keys = {"attention__temperature_scale": 0.1}
    ministral = read("mistral3", **keys, rope__scaling__original_context_length=16384)
    scale = ministral.group().query_scale
    assert scale is not None
    assert (scale.rule, scale.length, scale.shift) == ("log", 16384.0, 0)
    assert scale.beta == pytest.approx(0.1)
    with pytest.raises(ConfigError, match=r"temperature_scale .* needs a length"):
        read("mistral3", **keys)


@pytest.mark.parametrize(
    ("architecture", "order"), [("qwen2vl", "chunked"), ("qwen3vl", "interleaved")]
)
def test_sections(architecture: str, order: str) -> None:
    sections = [8, 12, 12, 0] if order == "chunked" else [12, 10, 10, 0]
    found = read(architecture, rope__dimension_sections=sections)
    assert found.groups[0].rotation is not None
    assert found.groups[0].rotation.encoding == "mrope"
    assert options(found)["sections"] == tuple(sections[:3])
    assert options(found)["order"] == order
    assert options(read("glm4", rope__dimension_sections=sections[:3]))["layout"] == "half"
    assert options(read("glm4"))["layout"] == "interleaved"
