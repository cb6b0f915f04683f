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

from .own_code import config_of, rotated, tables_of

#: The differences that tests here show, by their names in docs/configs.md.
SHOWN = {"nested-truncate", "batch-length", "batch-switch", "partial-ignored", "old-type-key"}
SHOWN |= {"olmo3-base", "phimoe-long-factors", "nested-overlooked"}
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
