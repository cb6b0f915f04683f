"""params.json of Mistral: published files, and what the same model's config.json says."""

import math
from typing import Any

import pytest

from whorl.configs import ConfigError, ModelPositions, read_config
from whorl.scaling import YaRN

V01 = {
    "dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32,
    "n_kv_heads": 8, "norm_eps": 1e-05, "sliding_window": 4096, "vocab_size": 32000,
}  # fmt: skip
NEMO = {
    "dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32,
    "n_kv_heads": 8, "rope_theta": 1000000.0, "norm_eps": 1e-05, "vocab_size": 131072,
    "max_position_embeddings": 128000,
}  # fmt: skip
MINISTRAL3 = {
    **NEMO, "rope_theta": 1e6, "max_position_embeddings": 262144,
    "yarn": {
        "original_max_position_embeddings": 16384, "factor": 16, "apply_scale": False, "beta": 32,
        "alpha": 1,
    },
    "llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1},
}  # fmt: skip
LARGE3 = {
    "dim": 7168, "head_dim": 192, "hidden_dim": 16384, "kv_lora_rank": 512, "n_heads": 128,
    "n_kv_heads": 128, "n_layers": 61, "norm_eps": 1e-06, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_theta": 10000.0,
    "max_position_embeddings": 294912,
    "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192},
    "moe": {"num_experts": 128, "num_experts_per_tok": 4},
    "yarn": {
        "alpha": 1, "apply_scale": False, "beta": 32, "factor": 36,
        "original_max_position_embeddings": 8192,
    },
    "vision_encoder": {"hidden_size": 1664},
}  # fmt: skip


def options(found: ModelPositions) -> dict[str, Any]:
    rotation = found.group().rotation
    assert rotation is not None
    return dict(rotation.options)


def test_base_where_it_is_missing() -> None:
    found = read_config(V01)
    assert (found.kind, found.num_layers) == ("mistral", 32)
    assert options(found) == {"head_dim": 128, "base": 10_000.0, "layout": "interleaved"}
    assert found.group().window == 4096
    assert [note.id for note in found.notes] == ["base-assumed"]
    assert "is missing: Mistral's code uses 10000 with a sliding window" in found.notes[0].text
    assert options(read_config({**V01, "sliding_window": None}))["base"] == 1e6
    assert read_config({**V01, "rope_theta": 1e6}).notes == ()


def test_head_dim_is_not_the_quotient() -> None:
    found = read_config(NEMO)
    assert options(found) == {"head_dim": 128, "base": 1e6, "layout": "interleaved"}
    assert found.context == found.trained_context == 128000
    assert options(read_config({**NEMO, "head_dim": None}))["head_dim"] == 160


@pytest.mark.parametrize(
    ("apply", "scale"), [(False, 1.0), (True, 1 + 0.1 * math.log(16)), (None, None)]
)
def test_yarn(apply: bool | None, scale: float | None) -> None:
    yarn = {**MINISTRAL3["yarn"], "apply_scale": apply}  # type: ignore[dict-item]
    found = read_config({**MINISTRAL3, "yarn": yarn})
    wanted = YaRN(16.0, 16384, attention_factor=1.0 if apply is False else None)
    assert options(found)["scaling"] == wanted
    rope = found.build()
    got = rope.frequencies().attention_scale  # type: ignore[operator]
    assert got == pytest.approx(1 + 0.1 * math.log(16) if scale is None else scale)
    assert (found.context, found.trained_context) == (262144, 16384)


def test_query_scale() -> None:
    scale = read_config(MINISTRAL3).group().query_scale
    assert scale is not None
    assert (scale.rule, scale.beta, scale.length, scale.shift) == ("log", 0.1, 16384.0, 0)


def test_latent_attention() -> None:
    found = read_config(LARGE3)
    assert options(found)["head_dim"] == 64
    assert found.group().softmax_scale == 1.0
    assert [note.id for note in found.group().notes] == ["mla"]
    assert [note.id for note in found.notes] == ["vision-encoder"]


def test_windows_in_turn() -> None:
    found = read_config({**NEMO, "n_layers": 5, "sliding_window": [None, 4096, 4096]})
    groups = {group.name: group for group in found.groups}
    assert groups["full_attention"].layers == (0, 3)
    assert groups["sliding_attention"].layers == (1, 2, 4)
    assert groups["sliding_attention"].window == 4096
    assert found.build().config.base == 1e6  # type: ignore[attr-defined]  # one rotation for all


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"yarn": {"factor": 4}}, "yarn.original_max_position_embeddings is missing; YaRN"),
        ({"yarn": {"original_max_position_embeddings": 4}}, "yarn.factor is missing; YaRN"),
        ({"yarn": 3}, "yarn must be an object; got 3"),
        (
            {"yarn": {"factor": 0.5, "original_max_position_embeddings": 4}},
            "yarn: YaRN: factor must be a finite number >= 1",
        ),
        ({"llama_4_scaling": {"beta": 1}}, "original_max_position_embeddings is missing; quer"),
        ({"llama_4_scaling": {"original_max_position_embeddings": 1}}, "beta is missing; quer"),
        ({"sliding_window": []}, "sliding_window must be an int, null, or a list of them"),
        ({"sliding_window": ["x"]}, "sliding_window must be a whole number"),
        ({"rope_theta": -1}, "rope_theta must be a finite number above 0; got -1"),
    ],
)
def test_wrong_values_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_config({**NEMO, **change})
