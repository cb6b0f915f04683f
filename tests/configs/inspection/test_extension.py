"""Extensions: what they do, and that the lines for config.json mean what was shown."""

import math
from typing import Any

import pytest
import torch

from whorl import scaling as scalings
from whorl.configs import ConfigError, presets, read_config
from whorl.configs.inspection import ModelExtension, inspect

BY_FACTOR = [name for name in scalings.names() if name not in ("longrope", "proportional")]
WITHOUT_WORDS = ("dynamic_linear", "dynamic_yarn")


def extension_of(name: str, by: str, **options: Any) -> ModelExtension:
    (found,) = [r.extension for r in inspect(name, extend=by, **options).groups if r.extension]
    return found


@pytest.mark.parametrize("by", BY_FACTOR)
def test_every_scaling_by_name(by: str) -> None:
    found = extension_of("mistral-7b-v0.3", by, factor=4)
    assert found.scaling.name == by
    assert found.length == 4 * 32_768
    assert found.before.effective_context == 32_768
    slowest = found.after.pairs[-1].factor
    # dynamic NTK stretches by s^2 - (s - 1), so that s itself is reached earlier
    assert slowest == pytest.approx(13.0 if by == "dynamic_ntk" else 4.0)
    assert (found.parameters is None) == (by in WITHOUT_WORDS)
    assert (found.why is not None) == (by in WITHOUT_WORDS)


def test_yarn_on_qwen3() -> None:
    found = extension_of("qwen3-8b", "yarn", factor=4, trained=None)
    assert found.after.effective_context == found.length == 4 * 32_768
    assert found.start == 32_768
    assert found.parameters is not None
    published = presets.load("qwen3-8b-yarn")["rope_scaling"]
    assert {**published, "rope_theta": 1e6} == dict(found.parameters)  # the model card's recipe
    told = extension_of("qwen3-8b", "yarn", factor=4, trained=40_960)
    assert told.after.effective_context == 4 * 40_960
    follows = extension_of("qwen3-8b", "yarn", length=131_072)
    assert follows.scaling.to_dict()["factor"] == 4
    assert found.after.attention_scale == pytest.approx(0.1 * math.log(4) + 1)
    assert found.after.counts["kept"] + found.after.counts["interpolated"] > 40


@pytest.mark.parametrize("by", [name for name in BY_FACTOR if name not in WITHOUT_WORDS])
@pytest.mark.parametrize("name", ["mistral-7b-v0.3", "glm-4-9b", "llama-3.1-8b", "deepseek-v3"])
def test_the_patched_config_reads_as_shown(name: str, by: str) -> None:
    found = inspect(name, extend=by, factor=4)
    (report,) = found.groups
    assert report.extension is not None
    assert found.patch is not None
    assert found.old_patch is not None
    config = presets.load(name)
    old = {k: v for k, v in config.items() if k not in ("rope_scaling", "rope_theta")}
    for patched in ({**old, **found.patch}, {**config, **found.old_patch}):
        model = read_config(patched)
        (group,) = model.groups
        rope: Any = model.build()
        frequencies = rope.frequencies(report.extension.length)
        shown = [
            math.tau / p.new_wavelength for p in report.extension.after.pairs if p.new_wavelength
        ]
        expected = torch.tensor(shown, dtype=torch.float64)
        torch.testing.assert_close(frequencies.inv_freq, expected, rtol=1e-9, atol=0)
        scale = report.extension.after.attention_scale
        assert frequencies.attention_scale == pytest.approx(scale)
        assert group.softmax_scale == pytest.approx(report.extension.softmax_scale)


def test_yarn_over_yarn_keeps_its_other_options() -> None:
    found = inspect("gpt-oss-20b", extend="yarn", factor=64)
    first, second = found.groups
    assert first.extension is not None
    assert second.extension is not None  # one dictionary serves both kinds of layers
    assert first.extension.scaling.to_dict()["truncate"] is False
    assert found.patch is not None
    assert found.patch["rope_parameters"]["truncate"] is False
    assert found.patch["max_position_embeddings"] == 64 * 4096
    explicit = presets.load("qwen3-8b-yarn")
    explicit["rope_scaling"]["attention_factor"] = 1.3
    (report,) = inspect(explicit, extend="yarn", factor=2).groups
    assert report.extension is not None
    assert report.extension.after.attention_scale == pytest.approx(0.1 * math.log(2) + 1)


def test_only_the_layers_that_see_everything_are_extended() -> None:
    found = inspect("gemma-3-4b", extend="yarn", factor=8, trained=32_768)
    extended = {r.group.name: r.extension is not None for r in found.groups}
    assert extended == {"full_attention": True, "sliding_attention": False}
    assert found.patch is not None
    nested = found.patch["rope_parameters"]
    assert nested["sliding_attention"]["rope_theta"] == 10_000
    assert nested["full_attention"]["rope_type"] == "yarn"
    assert found.old_patch is not None  # two bases, and a scaling of full layers only
    assert found.old_patch["rope_local_base_freq"] == 10_000
    assert found.old_patch["rope_scaling"]["rope_type"] == "yarn"
    chosen = inspect("gemma-3-4b", extend="linear", factor=2, layer_type="sliding_attention")
    assert chosen.groups[0].extension is not None


def test_the_factor_follows_from_the_length() -> None:
    assert extension_of("mistral-7b-v0.3", "linear", length=131_072).length == 131_072
    assert extension_of("mistral-7b-v0.3", "linear", length=100).length == 32_768


def test_the_older_form_has_the_names_of_the_family() -> None:
    found = inspect("gpt-neox-20b", extend="linear", factor=2)
    assert found.patch is not None
    assert found.patch["rope_parameters"]["partial_rotary_factor"] == 0.25
    assert found.old_patch == {
        "max_position_embeddings": 4096,
        "rotary_emb_base": 10_000.0,
        "rotary_pct": 0.25,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    }


def test_dynamic_keeps_the_length_that_it_is_counted_from() -> None:
    found = inspect("mistral-7b-v0.3", extend="dynamic_ntk", factor=4)
    assert found.patch is not None
    assert found.patch["max_position_embeddings"] == 32_768


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "qwen3-8b",
            {"extend": "yran", "factor": 2},
            "unknown extension 'yran'; did you mean 'yarn'",
        ),
        ("qwen3-8b", {"extend": "longrope", "factor": 2}, "LongRoPE needs a factor for every pair"),
        ("qwen3-8b", {"extend": "proportional", "factor": 2}, "it does not rotate slow pairs"),
        ("qwen3-8b", {"extend": "yarn"}, "extend needs factor"),
        ("qwen3-8b", {"extend": "yarn", "factor": 0}, "factor must be a number above 0"),
        ("qwen3-8b", {"extend": "yarn", "factor": -1.0}, "factor must be a number above 0"),
        ("qwen3-8b", {"extend": "yarn", "factor": math.nan}, "factor must be a number above 0"),
        ("qwen3-8b", {"extend": "yarn", "factor": True}, "factor must be a number above 0"),
        (
            "qwen3-8b",
            {"extend": "yarn", "factor": 0.5},
            "YaRN: factor must be a finite number >= 1",
        ),
        (
            "gemma-3-4b",
            {"extend": "yarn", "factor": 2},
            "does not say the trained length",
        ),
    ],
)
def test_what_cannot_be_extended(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inspect(name, **options)


def test_nothing_to_extend() -> None:
    config = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4}
    with pytest.raises(ConfigError, match="bert has no rotation that could be extended"):
        inspect(config, extend="yarn", factor=2)


def test_no_scaling_over_a_proportional_one() -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "max_position_embeddings": 2048,
        "rope_parameters": {
            "rope_type": "proportional",
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
        },
    }
    with pytest.raises(ConfigError, match=r"does not rotate its slow pairs .* cannot be combined"):
        inspect(config, extend="yarn", factor=2)


def test_a_scaling_of_ones_own_with_more_options() -> None:
    from dataclasses import dataclass

    @scalings.register("test_inspection_own")
    @dataclass(frozen=True)
    class Own(scalings.Scaling):
        knob: float

    try:
        with pytest.raises(ConfigError, match=r"cannot be built from a factor alone: .*no option"):
            inspect("qwen3-8b", extend="test_inspection_own", factor=2)
    finally:
        scalings.base._REGISTRY.pop("test_inspection_own")


def test_the_patch_of_a_part_stands_under_its_key() -> None:
    inner = presets.load("qwen3-8b")
    config = {"model_type": "some_vlm", "text_config": inner}
    found = inspect(config, extend="yarn", factor=4.0)
    alone = inspect(inner, extend="yarn", factor=4.0)
    assert found.patch == {"text_config": alone.patch}
    assert found.old_patch == {"text_config": alone.old_patch}
