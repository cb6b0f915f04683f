"""Every kind of rope parameters, in the old and the new schema, against the model's own module."""

import copy
from typing import Any

import pytest
import torch

import whorl
from tests.peers import needs_transformers_5

from .own_code import config_of, rotated, tables_of

pytestmark = needs_transformers_5

SIZES = {"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 64}
#: Families that differ in what scalings see: layout, share, dictionaries per layer type, MLA.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"head_dim": 32},
    "mistral": {"head_dim": 32},
    "qwen3": {"head_dim": 32},
    "cohere": {"head_dim": 32},
    "glm": {"head_dim": 64},
    "phi": {"hidden_size": 256},
    "gpt_neox": {"hidden_size": 512},
    "gemma3_text": {"head_dim": 32},
    "modernbert": {},
    "olmo3": {},
    "deepseek_v3": {"qk_rope_head_dim": 32},
    "nanochat": {"head_dim": 32},
}
BY_TYPE = ("gemma3_text", "modernbert", "olmo3")
WIDTH = 32
KINDS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "yarn, betas": {"factor": 4.0, "beta_fast": 16, "beta_slow": 2},
    "yarn, attention_factor": {"factor": 4.0, "attention_factor": 0.75},
    "yarn, mscale": {"factor": 4.0, "mscale": 1.5, "mscale_all_dim": 0.5},
    "longrope": {
        "short_factor": [1.0 + i / 16 for i in range(WIDTH // 2)],
        "long_factor": [2.0 + i for i in range(WIDTH // 2)],
        "original_max_position_embeddings": 32,
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}
SHORT = torch.arange(20)[None]
LONG = torch.arange(0, 100, 3)[None]


def written(family: str, kind: str, schema: str) -> dict[str, Any]:
    """A config as its file would have it."""
    rope = {**KINDS[kind]}
    name = kind.split(",")[0]
    options = {**SIZES, **FAMILIES[family], "model_type": family}
    if schema == "old":
        key = "rope_type" if family in BY_TYPE else "type"  # see test_parity: "type" is lost there
        base = "rotary_emb_base" if family == "gpt_neox" else "rope_theta"
        return {**options, base: 20_000.0, "rope_scaling": {key: name, **rope}}
    return {**options, "rope_parameters": {"rope_type": name, "rope_theta": 20_000.0, **rope}}


def nested(data: dict[str, Any]) -> dict[str, Any]:
    """The new schema of families with a dictionary for each type of layer."""
    rope = data["rope_parameters"]
    return {**data, "rope_parameters": {"full_attention": rope, "sliding_attention": {**rope}}}


def compare(family: str, data: dict[str, Any], positions: torch.Tensor, **more: Any) -> float:
    """The largest difference of rotated vectors between a model's code and the reading."""
    own = {n: copy.deepcopy(v) for n, v in data.items() if n != "model_type"}
    worst = 0.0
    config = config_of(family, **own)
    for form in (data, config.to_dict()):
        for table in tables_of(family, config):
            found = whorl.read_config(form, **more)
            rope = found.build(table.label, precision="float32")
            assert isinstance(rope, whorl.RoPE)
            batch, tokens = positions.shape
            generator = torch.Generator().manual_seed(1)
            q = torch.randn(batch, 2, tokens, rope.config.head_dim, generator=generator)
            expected = rotated(family, config, table, q.clone(), q.clone(), positions)
            worst = max(worst, float((rope.rotate(q, positions) - expected[0]).abs().max()))
    return worst


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_scalings_of_old_and_new_configs_equal_the_models_own(family: str, kind: str) -> None:
    for schema in ("old", "new"):
        data = written(family, kind, schema)
        if family in BY_TYPE and schema == "new":
            data = nested(data)
        parity = "transformers" if family == "olmo3" else None  # see test_parity: the other base
        for positions in (SHORT, LONG):
            worst = compare(family, data, positions, parity=parity)
            assert worst <= 2e-5, (schema, positions.max())


@pytest.mark.parametrize("family", ["gptj", "codegen", "roformer", "clvp_encoder", "esm"])
def test_hard_coded_families_ignore_rope_parameters(family: str) -> None:
    plain = config_of(family).to_dict()
    scaled = {**plain, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert whorl.read_config(scaled).groups == whorl.read_config(plain).groups


@pytest.mark.parametrize(("base", "expected"), [(500.0, 500.0), (None, 10_000.0)])
def test_some_hard_coded_families_have_a_base(base: float | None, expected: float) -> None:
    data = {"model_type": "esm", "position_embedding_type": "rotary", "rope_theta": base}
    assert whorl.RoPE.from_config(data).config.base == expected
    fixed = whorl.RoPE.from_config({"model_type": "gptj", "rope_theta": base})
    assert fixed.config.base == 10_000.0


@pytest.mark.parametrize(
    ("family", "change"),
    [
        (
            "hunyuan_v1_dense",
            {"head_dim": 32, "rope_scaling": {"type": "dynamic", "alpha": 9.0, "factor": 1.0}},
        ),
        ("phi3", {"rope_scaling": {"type": "su", **KINDS["longrope"]}}),
        ("phi3", {"rope_scaling": {"type": "yarn", **KINDS["longrope"]}}),
        ("deepseek_v3", {"qk_rope_head_dim": 32, "rope_interleave": False}),
        ("minimax_m2", {"head_dim": 64, "rotary_dim": 32, "rope_theta": 20_000.0}),
        ("mistral4", {"qk_rope_head_dim": 32, "qk_nope_head_dim": 96}),
        ("gpt_oss", {"head_dim": 32, "rope_theta": 20_000.0}),
    ],
)
def test_families_with_words_of_their_own(family: str, change: dict[str, Any]) -> None:
    data = {"model_type": family, **SIZES, **change}
    if family == "phi3":
        data["original_max_position_embeddings"] = 32
    for positions in (SHORT, LONG):
        assert compare(family, data, positions) <= 2e-5


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "deepseek_v3"])
@pytest.mark.parametrize("more", [{}, {"truncate": False}, {"beta_fast": 0.5}])
def test_yarn_with_swapped_betas_is_followed_under_parity(
    family: str, more: dict[str, Any]
) -> None:
    """transformers turns the ramp round and says nothing; the reading says so in a note."""
    rope = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
    rope |= {"beta_fast": 1, "beta_slow": 32, **more}
    data = {"model_type": family, **SIZES, **FAMILIES[family], "rope_scaling": rope}
    for positions in (SHORT, LONG):
        assert compare(family, data, positions, parity="transformers") <= 2e-5
    found = whorl.read_config(data, parity="transformers")
    full = found.groups[-1] if family in BY_TYPE else found.groups[0]
    assert "backward-ramp" in [note.id for note in full.notes]
    assert full.rotation is not None
    ratio = full.rotation.frequencies(None).inv_freq
    plain = whorl.read_config({**data, "rope_scaling": None}).groups
    unscaled = (plain[-1] if family in BY_TYPE else plain[0]).rotation
    assert unscaled is not None
    slowed = (unscaled.frequencies(None).inv_freq / ratio).tolist()
    assert slowed[0] > slowed[-1]  # fast pairs are slowed and slow ones kept
    with pytest.raises(ValueError, match="beta_fast must be at least beta_slow"):
        whorl.read_config(data)
