"""How others read the config that asks for an extension, beside the config as published."""

from typing import Any

import pytest

from whorl.configs import presets, read_config
from whorl.configs.inspection import inspect
from whorl.configs.inspection.frameworks import ConfiguredLayers, compare_frameworks

QWEN = presets.load("qwen3-8b")


def outcomes(found: Any) -> dict[str, str]:
    (report,) = found.groups
    assert {each.config for each in report.frameworks} == {"as extended"}
    return {each.framework: each.outcome for each in report.frameworks}


def test_the_rewritten_config_is_judged() -> None:
    found = inspect(QWEN, extend="ntk_by_parts", factor=4)
    assert outcomes(found) == {
        "transformers": "agrees",
        "mlx-lm": "differs",
        "vLLM": "agrees",
        "llama.cpp": "differs",
    }
    (report,) = found.groups
    scales = {each.framework: each.attention_scale for each in report.frameworks}
    assert scales["mlx-lm"] == scales["llama.cpp"] == pytest.approx(1.1386, abs=1e-4)
    assert scales["transformers"] == scales["vLLM"] == 1.0
    assert "As extended, mlx-lm and llama.cpp read it differently." in found.verdict
    published = report.frameworks_as_published
    assert {each.outcome for each in published} == {"agrees"}
    assert {each.config for each in published} == {"as published"}


@pytest.mark.parametrize("by", ["dynamic_yarn", "dynamic_linear"])
def test_what_no_config_asks_for_agrees_with_nobody(by: str) -> None:
    found = inspect(QWEN, extend=by, factor=4)
    assert set(outcomes(found).values()) == {"inexpressible"}
    why = f"transformers has no type for {by!r}"
    words = f"No config.json can ask a framework for the extension: {why}."
    assert words in found.verdict
    assert "the same way" not in found.verdict


@pytest.mark.parametrize("dialect", ["transformers 4", "transformers 5"])
@pytest.mark.parametrize("by", ["yarn", "ntk_by_parts", "linear", "llama3", "dynamic_ntk"])
def test_the_judged_config_is_the_one_that_is_shown(by: str, dialect: str) -> None:
    """Its readings are those of an inspection of the patched file."""
    config = {**presets.load("mistral-7b-v0.3"), "transformers_version": "4.51.0"}
    if dialect == "transformers 5":
        rope = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
        config |= {"transformers_version": "5.1.0", "rope_parameters": rope}
    found = inspect(config, extend=by, factor=4)
    assert found.dialect == dialect
    patch = found.old_patch if dialect == "transformers 4" else found.patch
    assert patch is not None
    patched = {**config, **patch}
    model = read_config(patched)
    (report,) = found.groups
    assert report.extension is not None
    expected = compare_frameworks(
        ConfiguredLayers(model, model.groups[0], patched), [report.extension.length]
    )
    assert [(each.framework, each.outcome, each.inv_freq) for each in report.frameworks] == [
        (each.framework, each.outcome, each.inv_freq) for each in expected
    ]
    lost = {each.framework for each in report.frameworks if each.outcome != "agrees"}
    if dialect == "transformers 5":  # which mlx-lm does not read
        assert "mlx-lm" in lost


def test_layers_that_are_not_extended_are_judged_in_the_rewritten_config_too() -> None:
    found = inspect("gemma-3-4b", extend="yarn", factor=8, trained=32_768)
    for report in found.groups:
        assert {each.config for each in report.frameworks} == {"as extended"}
    document = found.to_dict()
    assert document["dialect"] == "transformers 4"
    assert document["warnings"] == []
    assert len(document["groups"][0]["frameworks_as_published"]) == 4
    assert document["groups"][0]["frameworks"][0]["config"] == "as extended"


def test_lines_in_another_dialect_are_a_warning() -> None:
    config = {
        "model_type": "dbrx",
        "transformers_version": "4.40.0",
        "d_model": 256,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 4096,
        "attn_config": {"rope_theta": 500_000.0},
    }
    found = inspect(config, extend="yarn", factor=2)
    assert found.old_patch is None
    assert found.warnings == (
        "this config is written for transformers 4, whose keys cannot express this. transformers 4"
        " does not read rope_parameters and loses rope_theta 500000 and the yarn scaling: load"
        " the model with transformers 5.",
    )
    assert f"warning: {found.warnings[0]}" in str(found)
    assert inspect(QWEN, extend="yarn", factor=2).warnings == ()
