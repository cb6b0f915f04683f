"""The lines for config.json, loaded in the installed transformers: its rotary module turns so."""

import copy
import importlib
import math
import warnings
from typing import Any

import pytest
import torch

from tests.configs.census import ROTARY, without_timm
from tests.peers import needs_transformers_5
from tests.presets import VARIED_PRESETS
from whorl.configs import presets
from whorl.configs.inspection import Inspection, ModelExtension, inspect

pytest.importorskip("transformers")

pytestmark = needs_transformers_5

BY = ["linear", "ntk", "ntk_by_parts", "yarn", "llama3", "dynamic_ntk"]
#: Rotary classes that the census of one axis does not have.
BACKBONES = {
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VLRotaryEmbedding"),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLTextRotaryEmbedding"),
}
#: Presets with a scaling that only names a factor.
TRAINED = {"gemma-3-4b": 16_384}
SIZES = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
}
WRAPPED: dict[str, dict[str, Any]] = {
    "qwen3_vl": {
        "model_type": "qwen3_vl_text",
        **SIZES,
        "head_dim": 128,
        "rope_theta": 5e6,
        "rope_scaling": {
            "mrope_interleaved": True,
            "mrope_section": [24, 20, 20],
            "rope_type": "default",
        },
    },
    "gemma3": {
        "model_type": "gemma3_text",
        **SIZES,
        "num_hidden_layers": 6,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    },
    "mistral3": {
        "model_type": "ministral3",
        **SIZES,
        "head_dim": 128,
        "rope_parameters": {
            "rope_type": "yarn",
            "type": "yarn",
            "rope_theta": 1e6,
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
}


def merged(config: dict[str, Any], patch: Any) -> dict[str, Any]:
    """As a reader of the page would do it: keys are set, those of a part inside the part."""
    found = copy.deepcopy(config)
    for name, value in patch.items():
        inside = name.endswith("_config") and isinstance(found.get(name), dict)
        found[name] = merged(found[name], value) if inside else copy.deepcopy(value)
    return found


def module_of(config: dict[str, Any]) -> tuple[Any, Any]:
    """The text config of transformers, and its rotary module."""
    hub = pytest.importorskip("transformers")
    keys = {name: value for name, value in config.items() if not name.startswith("_")}
    with without_timm(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = hub.CONFIG_MAPPING[keys.pop("model_type")](**copy.deepcopy(keys))
        text = built.get_text_config()
        if text.model_type in BACKBONES:
            name, maker = BACKBONES[text.model_type]
            code: Any = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        else:
            code, maker = ROTARY[text.model_type].modeling, ROTARY[text.model_type].maker
        return text, getattr(code, maker)(text)


def check(config: dict[str, Any], found: Inspection, patch: Any) -> None:
    text, module = module_of(merged(config, patch))
    axes = (3, 1, 1) if text.model_type in BACKBONES else (1, 1)
    for report in found.groups:
        extension = report.extension
        if report.encoding is None or extension is None:
            continue
        prefix = f"{report.group.name}_" if hasattr(module, f"{report.group.name}_inv_freq") else ""
        label = (report.group.name,) if prefix else ()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module(torch.zeros(1, 1, 8), torch.full(axes, extension.length - 1), *label)
        waves = [pair.new_wavelength or math.inf for pair in extension.after.pairs]
        shown = math.tau / torch.tensor(waves, dtype=torch.float64)
        theirs = getattr(module, f"{prefix}inv_freq").double()
        torch.testing.assert_close(theirs, shown, rtol=2e-6, atol=0)
        scale = getattr(module, f"{prefix}attention_scaling")
        assert scale == pytest.approx(extension.after.attention_scale)
        context = text.max_position_embeddings
        assert context >= extension.length or extension.scaling.name == "dynamic_ntk"


def extension_of(found: Inspection) -> ModelExtension:
    return next(report.extension for report in found.groups if report.extension is not None)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", VARIED_PRESETS)
def test_every_preset_and_extension_loads_as_shown(name: str, by: str) -> None:
    found = inspect(name, extend=by, factor=4, trained=TRAINED.get(name))
    if name == "phi-3.5-mini" and by != "ntk":
        assert (found.patch, found.old_patch) == (None, None)
        return
    config = presets.load(name)
    assert found.patch is not None
    for patch in (found.patch, found.old_patch):
        if patch is not None:
            check(config, found, patch)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("wrapper", WRAPPED)
def test_lines_for_a_part_stand_inside_it(wrapper: str, by: str) -> None:
    config = {"model_type": wrapper, "text_config": WRAPPED[wrapper]}
    trained = 512 if wrapper == "gemma3" else None
    found = inspect(config, extend=by, factor=8, trained=trained)
    assert found.patch is not None
    assert list(found.patch) == ["text_config"]
    for patch in (found.patch, found.old_patch):
        if patch is not None:
            check(config, found, patch)
    if wrapper == "mistral3":  # the scale on queries stays, and the length that it counts in
        inside = found.patch["text_config"]["rope_parameters"]
        assert inside["llama_4_scaling_beta"] == 0.1
        assert inside["original_max_position_embeddings"] == 1024


@pytest.mark.parametrize("by", ["linear", "ntk_by_parts", "yarn", "llama3", "dynamic_ntk"])
@pytest.mark.parametrize("model_type", ["phi3", "phimoe", "recurrent_gemma"])
def test_types_that_a_class_refuses_have_no_lines(model_type: str, by: str) -> None:
    config = {"model_type": model_type, **SIZES, "num_hidden_layers": 3}
    found = inspect(config, extend=by, factor=2, trained=4096)
    assert (found.patch, found.old_patch) == (None, None)
    why = extension_of(found).why
    assert why is not None
    assert why.startswith("transformers refuses rope_type ")
    assert f"in {model_type}, which must be 'default'" in why
    kind = {"ntk_by_parts": "yarn", "dynamic_ntk": "dynamic"}.get(by, by)
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    with pytest.raises(
        Exception, match=r"rope|factor|max_position_embeddings|yarn|linear|llama3|dynamic"
    ):
        module_of({**config, "rope_parameters": rope})


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "gptj", "n_embd": 256, "n_head": 4, "n_positions": 2048, "rotary_dim": 32},
        {"model_type": "codegen", "n_embd": 256, "n_head": 4, "rotary_dim": 32},
        {"model_type": "roformer", "hidden_size": 256, "num_attention_heads": 4},
        {"model_type": "esm", **SIZES, "position_embedding_type": "rotary"},
    ],
    ids=lambda config: str(config["model_type"]),
)
def test_families_that_do_not_read_the_lines_get_none(config: dict[str, Any], by: str) -> None:
    found = inspect(config, extend=by, factor=2)
    assert (found.patch, found.old_patch) == (None, None)
    who = config["model_type"]
    assert extension_of(found).why == (
        f"transformers does not read them in {who}, whose layers would rotate as before"
    )
    assert f"no lines for config.json: transformers does not read them in {who}" in str(found)


def test_a_family_that_transformers_does_not_have_gets_no_lines() -> None:
    found = inspect({"model_type": "my_llama", **SIZES, "rope_theta": 1e4}, extend="yarn", factor=2)
    assert (found.patch, found.old_patch) == (None, None)
    assert "has no model type 'my_llama', so it is not known" in (extension_of(found).why or "")


@pytest.mark.parametrize("schema", ["rope_scaling", "rope_parameters"])
def test_parameters_of_the_class_or_of_the_config_do_not_come_back(schema: str) -> None:
    config = presets.load("gpt-oss-20b")
    if schema == "rope_parameters":
        rope = {**config.pop("rope_scaling"), "rope_theta": config.pop("rope_theta")}
        config["rope_parameters"] = rope
    found = inspect(config, extend="ntk", factor=2)
    assert found.patch is not None
    assert found.old_patch is not None
    assert found.old_patch["rope_scaling"] == {"rope_type": "default"}
    check(config, found, found.patch)
    check(config, found, found.old_patch)


@pytest.mark.parametrize("by", ["yarn", "dynamic_ntk"])
@pytest.mark.parametrize("model_type", ["mixtral", "ministral", "minimax", "hunyuan_v1_dense"])
def test_classes_that_keep_no_width_get_one(model_type: str, by: str) -> None:
    config = {"model_type": model_type, **SIZES}
    found = inspect(config, extend=by, factor=2)
    assert found.patch is not None
    assert found.patch["head_dim"] == extension_of(found).after.pairs[-1].index * 2 + 2
    check(config, found, found.patch)
    linear = inspect(config, extend="linear", factor=2).patch
    assert linear is not None
    assert "head_dim" not in linear


def test_a_length_at_the_top_wins_over_the_one_inside() -> None:
    config = {"model_type": "llama", **SIZES, "original_max_position_embeddings": 512}
    found = inspect(config, extend="yarn", factor=2)
    for patch in (found.patch, found.old_patch):
        assert patch is not None
        assert patch["original_max_position_embeddings"] == 4096
        check(config, found, patch)


@pytest.mark.parametrize("model_type", ["cohere2_moe", "dbrx"])
def test_classes_that_read_one_schema_get_no_older_form(model_type: str) -> None:
    rope = {"rope_type": "default", "rope_theta": 1e4}
    config = {"model_type": model_type, **SIZES, "rope_parameters": rope}
    found = inspect(config, extend="yarn", factor=2)
    assert found.old_patch is None
    assert found.patch is not None
    check(config, found, found.patch)


def test_an_older_form_in_place_of_the_newer_one() -> None:
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    config = {"model_type": "gpt_neox", **SIZES, "rope_parameters": rope}
    found = inspect(config, extend="yarn", factor=2)
    assert found.old_patch is not None
    assert found.old_patch["rope_parameters"] is None
    check(config, found, found.patch)
    check(config, found, found.old_patch)
