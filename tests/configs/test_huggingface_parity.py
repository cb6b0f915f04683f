"""Where transformers is wrong: followed under parity="transformers", put right by default.

Each test shows both, and that transformers itself does what parity says.
"""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from tests.peers import needs_transformers_5
from whorl.configs import ConfigError

from .own_code import config_of, rotated, tables_of

pytestmark = needs_transformers_5

#: The differences that tests here show, by their names in docs/configs.md.
SHOWN = {"nested-truncate", "batch-length", "batch-switch", "partial-ignored", "old-type-key"}
SHOWN |= {"olmo3-base", "phimoe-long-factors", "nested-overlooked", "base-overlooked"}
SHOWN |= {"flat-overlooked", "share-overlooked"}
BATCH = torch.stack([torch.arange(40), torch.arange(60, 100)])  # a short row and a long one


def theirs(data: dict[str, Any], label: str | None = None) -> Any:
    """The table of a model's own module, made from the config as it is written."""
    family = data["model_type"]
    options = {name: copy.deepcopy(v) for name, v in data.items() if name != "model_type"}
    config = config_of(family, **options)
    (table,) = (t for t in tables_of(family, config) if t.label == label)
    return config, table


def built(data: dict[str, Any], label: str | None = None, **more: Any) -> whorl.RoPE:
    return whorl.RoPE.from_config(data, layer_type=label, precision="float32", **more)


def same_frequencies(rope: whorl.RoPE, table: Any) -> bool:
    found = rope.frequencies().inv_freq
    return found.shape == table.inv_freq.shape and bool(
        torch.allclose(found, table.inv_freq.double(), rtol=1e-6, atol=0)
    )


def llama(**rope: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 64}
    return {"model_type": "llama", **sizes, "head_dim": 32, "rope_parameters": rope}


def by_type(**full: Any) -> dict[str, Any]:
    sliding = {"rope_type": "default", "rope_theta": 10_000.0}
    return {
        **llama(),
        "model_type": "gemma3_text",
        "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
    }


def test_truncate_inside_nested_parameters() -> None:
    data = by_type(rope_type="yarn", rope_theta=1e6, factor=8.0, truncate=False)
    _, table = theirs(data, "full_attention")
    assert same_frequencies(built(data, "full_attention", parity="transformers"), table)
    right = built(data, "full_attention")
    assert not same_frequencies(right, table)
    assert isinstance(right.config.scaling, whorl.YaRN)
    assert right.config.scaling.truncate is False


@pytest.mark.parametrize("beside", [{}, {"rope_theta": 7e5}])
def test_nested_parameters_where_layers_have_no_types(beside: dict[str, Any]) -> None:
    rope = {"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0}
    data = {**llama(full_attention=rope), **beside, "num_hidden_layers": 2}
    _, table = theirs(data)
    followed = built(data, parity="transformers", layer=0)
    assert same_frequencies(followed, table)
    assert followed.config.base == beside.get("rope_theta", 1e4)
    right = built(data, "full_attention", layer=1)
    assert (right.config.base, right.config.scaling) == (5e5, whorl.Linear(4.0))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_one_length_for_the_whole_batch(kind: str) -> None:
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 16, "long_factor": [4.0] * 16}
    data = llama(**rope)
    config, table = theirs(data)
    q = torch.randn(2, 2, 40, 32, generator=torch.Generator().manual_seed(0))
    expected, _ = rotated("llama", config, table, q, q, BATCH)
    followed = built(data, parity="transformers").rotate(q, BATCH)
    torch.testing.assert_close(followed, expected, rtol=0, atol=2e-5)
    right = built(data).rotate(q, BATCH)
    alone = built(data).rotate(q[:1], BATCH[:1])
    assert torch.equal(right[:1], alone)
    assert (right[0] - expected[0]).abs().max() > 0.1
    torch.testing.assert_close(right[1], expected[1], rtol=0, atol=2e-5)


def test_a_length_that_earlier_calls_left_behind_is_passed_by_the_caller() -> None:
    data = llama(rope_type="dynamic", rope_theta=1e4, factor=4.0)
    config, table = theirs(data)
    q = torch.randn(1, 2, 1, 32, generator=torch.Generator().manual_seed(0))
    fresh, _ = rotated("llama", config, theirs(data)[1], q, q, torch.tensor([[79]]))
    rotated("llama", config, table, q, q, torch.tensor([[199]]))
    stale, _ = rotated("llama", config, table, q, q, torch.tensor([[79]]))
    assert (fresh - stale).abs().max() > 0.1
    rope = built(data, parity="transformers")
    at = torch.tensor([79])
    torch.testing.assert_close(rope.rotate(q, at), fresh, rtol=0, atol=2e-5)
    kept = rope.rotate(q, at, context_length=200)
    torch.testing.assert_close(kept, stale, rtol=0, atol=2e-5)


def test_partial_rotary_factor_beside_the_default_type() -> None:
    data = llama(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)
    _, table = theirs(data)
    assert same_frequencies(built(data, parity="transformers"), table)
    assert built(data).config.rotary_dim == 16
    for parity in (None, "transformers"):
        found = whorl.read_config(data, parity=parity)
        assert [note.id for note in found.groups[0].notes] == ["partial-ignored"]


@pytest.mark.parametrize("family", ["gemma3_text", "olmo3"])
def test_old_type_key_of_families_with_parameters_per_layer_type(family: str) -> None:
    data = {**llama(), "model_type": family, "rope_scaling": {"type": "linear", "factor": 8.0}}
    del data["rope_parameters"]
    _, table = theirs(data, "full_attention")
    assert same_frequencies(built(data, "full_attention", parity="transformers"), table)
    assert built(data, "full_attention").config.scaling == whorl.Linear(8.0)
    named = {**data, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert same_frequencies(built(named, "full_attention"), theirs(named, "full_attention")[1])


def test_old_base_of_olmo3_reaches_all_layers() -> None:
    data = {**llama(), "model_type": "olmo3", "rope_theta": 2e4}
    del data["rope_parameters"]
    _, table = theirs(data, "sliding_attention")
    followed = built(data, "sliding_attention", parity="transformers")
    assert same_frequencies(followed, table)
    assert followed.config.base == 500_000.0
    assert built(data, "sliding_attention").config.base == 2e4


@pytest.mark.parametrize(
    ("data", "base"),
    [
        ({"model_type": "gpt_neox", "rope_theta": 1e6}, 1e6),
        ({"model_type": "dbrx", "attn_config": {"rope_theta": 500_000}}, 5e5),
    ],
)
def test_a_base_that_the_class_does_not_look_for(data: dict[str, Any], base: float) -> None:
    _, table = theirs(data)
    followed = built(data, parity="transformers")
    assert (followed.config.base, built(data).config.base) == (1e4, base)
    assert same_frequencies(followed, table)
    (told,) = differing(data)
    assert f"base 10,000, not base {base:,.0f}" in told


def test_a_base_beside_that_of_dbrx_wins() -> None:
    data = {"model_type": "dbrx", "rope_theta": 2e4, "attn_config": {"rope_theta": 5e5}}
    assert built(data).config.base == 2e4
    assert differing(data) == []


@pytest.mark.parametrize("family", ["gemma3_text", "olmo3"])
def test_one_dictionary_for_layers_of_two_types(family: str) -> None:
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 2e6}
    data = {**llama(**rope), "model_type": family}
    for label in ("full_attention", "sliding_attention"):
        _, table = theirs(data, label)
        assert same_frequencies(built(data, label, parity="transformers"), table)
    right = built(data, "full_attention").config
    assert (right.base, right.scaling) == (2e6, whorl.Linear(4.0))
    sliding = built(data, "sliding_attention").config
    assert (sliding.base, sliding.scaling) == ({"olmo3": 2e6}.get(family, 1e4), None)
    assert "full_attention layers" in differing(data)[0]


def test_a_share_beside_the_dictionaries_of_layer_types() -> None:
    rope = {"rope_type": "default", "rope_theta": 1e6}
    data: dict[str, Any] = {"model_type": "mimo_v2_flash", "partial_rotary_factor": 0.25}
    data["rope_parameters"] = {"full_attention": rope, "sliding_attention": dict(rope)}
    _, table = theirs(data, "full_attention")
    assert same_frequencies(built(data, "full_attention", parity="transformers"), table)
    assert built(data, "full_attention").config.rotary_dim == 48
    assert "64 rotated channels, not 48 rotated channels" in differing(data)[0]


def fails(data: dict[str, Any]) -> bool:
    options = {name: copy.deepcopy(v) for name, v in data.items() if name != "model_type"}
    try:
        tables_of(data["model_type"], config_of(data["model_type"], **options))
    except Exception:  # of any kind: KeyError, TypeError, those of its validation
        return True
    return False


def differing(data: dict[str, Any]) -> list[str]:
    found = whorl.read_config(data)
    return [note.text for note in found.notes if note.id == "transformers-differs"]


def test_long_lists_are_told_by_their_ends() -> None:
    factors = {"short_factor": [1.0] * 16, "long_factor": [1.0 + n for n in range(16)]}
    (text,) = differing(
        {
            "model_type": "phimoe",
            "head_dim": 32,
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 512,
            "rope_scaling": {
                "type": "longrope",
                **factors,
                "short_mscale": 1.1,
                "long_mscale": 1.2,
            },
        }
    )
    assert "long factors 16 numbers from 1 to 1, not 16 numbers from 1 to 16" in text
    assert len(text) < 250


_YARN = {"rope_type": "yarn", "original_max_position_embeddings": 512, "rope_theta": 1e6}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (
            {"model_type": "qwen3", "rope_parameters": {"full_attention": _YARN | {"factor": 4}}},
            "looks for one dictionary and finds 'full_attention' in rope_parameters",
        ),
        (
            {"model_type": "laguna", "rope_parameters": {"rope_type": "default", "rope_theta": 1}},
            "rope_parameters has no 'full_attention', and its module looks for each type",
        ),
        (
            {"model_type": "gemma4_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            "rope_parameters has no 'full_attention'",
        ),
        (
            {"model_type": "modernbert", "rope_parameters": {"rope_type": "linear", "factor": 2}},
            "rope_parameters of ModernBERT must not hold 'rope_type'",
        ),
        ({"model_type": "llama", "rope_parameters": _YARN}, r"rope_parameters\.factor is missing"),
        (
            {"model_type": "llama", "rope_parameters": {"rope_theta": None}},
            r"rope_parameters\.rope_theta is null",
        ),
        (
            {"model_type": "recurrent_gemma", "rope_scaling": {"type": "linear", "factor": 2.0}},
            "its module has no scaling, but the config asks for 'linear'",
        ),
        (
            {"model_type": "hunyuan_v1_dense", "rope_parameters": _YARN | {"factor": 4.0}},
            "yarn needs head_dim, which is null",
        ),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)
def test_what_transformers_refuses_parity_refuses_too(data: dict[str, Any], why: str) -> None:
    assert fails(data)
    with pytest.raises(ConfigError, match=r"transformers 5\.22\.2 refuses this config.*" + why):
        whorl.read_config(data, parity="transformers")
    (told,) = (n.text for n in whorl.read_config(data).notes if n.id == "transformers-refuses")
    assert re.search(why, told)


def test_a_table_of_another_width_than_the_rotated_part() -> None:
    data = {"model_type": "deepseek_v3", "head_dim": 128}
    assert theirs(data)[1].inv_freq.shape == (64,)
    with pytest.raises(ConfigError, match="its table has 128 channels, but 64 channels of a head"):
        whorl.read_config(data, parity="transformers")
    assert built(data).config.head_dim == 64
    assert built({**data, "head_dim": 64}, parity="transformers").config.head_dim == 64


def test_two_names_of_one_width() -> None:
    data = {"model_type": "glm4_moe_lite", "head_dim": 32}
    for parity in (None, "transformers"):
        assert same_frequencies(built(data, parity=parity), theirs(data)[1])


def test_dynamic_of_an_odd_width_is_not_followed() -> None:
    data = {"model_type": "glm4_moe", "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    with pytest.raises(ConfigError, match=r"odd number of rotated channels \(21\)"):
        whorl.read_config(data, parity="transformers")
    assert "is not followed" in differing(data)[0]


def test_long_factors_of_phimoe() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_mscale": 1.2, "long_mscale": 1.4}
    rope |= {"short_factor": [1.0] * 16, "long_factor": [4.0] * 16}
    rope |= {"original_max_position_embeddings": 32}
    data = {**llama(**rope), "model_type": "phimoe"}
    config, table = theirs(data)
    q, at = torch.randn(1, 2, 40, 32), torch.arange(40)[None]
    expected, _ = rotated("phimoe", config, table, q, q, at)
    followed = built(data, parity="transformers").rotate(q, at)
    torch.testing.assert_close(followed, expected, rtol=0, atol=2e-5)
    right = built(data).frequencies(40)
    assert float(right.attention_scale) == 1.4
    torch.testing.assert_close(
        right.inv_freq * 4.0, built(data).frequencies(8).inv_freq, rtol=1e-6, atol=0
    )


def test_parity_is_checked_and_kept() -> None:
    assert whorl.read_config(llama(), parity="transformers").parity == "transformers"
    with pytest.raises(ValueError, match="parity must be None or 'transformers'; got 'vllm'"):
        whorl.read_config(llama(), parity="vllm")  # type: ignore[arg-type]


def test_what_transformers_cannot_build_is_read() -> None:
    """Its functions for these types look for head_dim and do not mind finding None."""
    data = {"model_type": "mixtral", "rope_scaling": {"type": "yarn", "factor": 2.0}}
    with pytest.raises(TypeError):
        theirs(data)
    assert whorl.RoPE.from_config(data).config.head_dim == 128


def test_every_difference_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configs.md").read_text()
    assert set(re.findall(r"^\| `([a-z0-9]+(?:-[a-z0-9]+)+)` \|", page, re.MULTILINE)) == SHOWN
