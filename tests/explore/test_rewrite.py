"""The config to copy: in the dialect of the config as published, and in the other."""

import json
import math
import warnings
from typing import Any

import pytest
import torch

from whorl.configs import diagnosis, presets, read_config
from whorl.configs.huggingface.write import read_major_version
from whorl.configs.inspection import inspect
from whorl.explore import api
from whorl.explore.state import ExplorerState

VERSION_4 = {**presets.load("qwen3-8b"), "transformers_version": "4.51.0"}
YARN = {"method": "yarn", "factor": 4.0}


def report(config: dict[str, Any], **more: Any) -> dict[str, Any]:
    return api.answer_report(ExplorerState(), {"source": {"text": json.dumps(config)}, **more})


def in_version_5(config: dict[str, Any]) -> dict[str, Any]:
    """A flat config of version 4, as version 5 writes it."""
    kept = {k: v for k, v in config.items() if k not in ("rope_theta", "rope_scaling")}
    rope = {"rope_type": "default", **(config.get("rope_scaling") or {})}
    rope["rope_theta"] = config["rope_theta"]
    return {**kept, "transformers_version": "5.1.0", "rope_parameters": rope}


def version_4_reading(config: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Base and scaling where transformers 4.57 looks for them: beside each other, at the top."""
    scaling = config.get("rope_scaling") or {}
    return config.get("rope_theta", 10_000.0), scaling


@pytest.mark.parametrize("choice", [YARN, {"method": "none"}, {"base": 5e6}, {**YARN, "base": 5e6}])
def test_a_config_of_version_4_stays_one(choice: dict[str, Any]) -> None:
    found = report(VERSION_4, choice=choice)
    copied = json.loads(found["config"])
    assert found["dialect"] == "transformers 4"
    assert "rope_parameters" not in copied
    base, scaling = version_4_reading(copied)
    assert base == choice.get("base", 1_000_000.0)
    assert scaling.get("rope_type") == ("yarn" if choice.get("method") == "yarn" else None)
    assert found["warnings"] == []


@pytest.mark.parametrize("version", ["4", 4, 4.51, "v4.51.0", " 4.51.0", "3.5"])
def test_a_version_in_another_form_is_read(version: Any) -> None:
    """A config without rotary keys says by its version alone that transformers 5 is not there."""
    bare = {k: v for k, v in VERSION_4.items() if k not in ("rope_theta", "rope_scaling")}
    found = report({**bare, "transformers_version": version}, choice=YARN)
    copied = json.loads(found["config"])
    assert found["dialect"] == "transformers 4"
    assert "rope_parameters" not in copied
    assert version_4_reading(copied)[1]["rope_type"] == "yarn"


@pytest.mark.parametrize(
    ("versions", "major"),
    [
        (["5.0.0"], 5),
        (["5"], 5),
        (["10.1"], 10),
        ([None, "4.51.0"], 4),
        (["main", 5], 5),
        (["12345.0"], 0),
        ([{"a": 4}], 0),
        ([None], 0),
    ],
)
def test_the_first_number_of_a_version(versions: list[Any], major: int) -> None:
    assert read_major_version(*({"transformers_version": one} for one in versions)) == major
    assert read_major_version({}) == 0


@pytest.mark.parametrize("choice", [{}, YARN, {"base": 5e6}])
@pytest.mark.parametrize("version", [4, 5])
def test_both_dialects_are_offered_and_mean_the_same(version: int, choice: dict[str, Any]) -> None:
    config = VERSION_4 if version == 4 else in_version_5(VERSION_4)
    found = report(config, choice=choice)
    assert next(iter(found["configs"])) == found["dialect"] == f"transformers {version}"
    assert found["config"] == found["configs"][found["dialect"]]
    old, new = (json.loads(found["configs"][f"transformers {n}"]) for n in (4, 5))
    assert "rope_parameters" not in old
    assert not {"rope_theta", "rope_scaling"} & set(new)
    base, scaling = version_4_reading(old)
    rope = {"rope_type": "default", **scaling, "rope_theta": base}
    assert rope == new["rope_parameters"]


@pytest.mark.parametrize("choice", [{"base": 5e6}, {**YARN, "base": 5e6}])
@pytest.mark.parametrize(
    "name", ["qwen3-8b", "llama-3.1-8b", "deepseek-v3", "gemma-3-4b", "gpt-neox-20b", "gpt-oss-20b"]
)
def test_transformers_loads_both_with_the_frequencies_of_the_chart(
    name: str, choice: dict[str, Any]
) -> None:
    hub = pytest.importorskip("transformers")
    trained = 32_768 if name == "gemma-3-4b" else None
    asked = {"trained": trained, "length": 100_000}
    found = report(presets.load(name), choice=choice, **asked)
    view = api.answer_view(
        ExplorerState(),
        {"source": {"preset": name}, "group": found["group"], "choices": [choice], **asked},
    )
    assert set(found["configs"]) == {"transformers 4", "transformers 5"}
    expected = torch.tensor(view["curves"][1]["inv_freq"], dtype=torch.float64)
    for text in found["configs"].values():
        keys = {k: v for k, v in json.loads(text).items() if not k.startswith("_")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = hub.CONFIG_MAPPING[keys.pop("model_type")](**keys)
        rope = config.rope_parameters
        rope = rope.get("full_attention", rope)
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        if rope["rope_type"] == "default":
            width = 2 * len(expected)
            theirs = rope["rope_theta"] ** -(torch.arange(0, width, 2).double() / width)
            scale = 1.0
        else:
            layer = ("full_attention",) if "full_attention" in config.rope_parameters else ()
            init = ROPE_INIT_FUNCTIONS[rope["rope_type"]]
            theirs, scale = init(config, "cpu", 100_000, *layer)
        torch.testing.assert_close(theirs.double(), expected, rtol=2e-6, atol=0)
        assert scale == pytest.approx(view["curves"][1]["attention_scale"])


def test_a_loss_is_a_warning() -> None:
    config = {
        "model_type": "dbrx",
        "transformers_version": "4.40.0",
        "d_model": 256,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 4096,
        "attn_config": {"rope_theta": 500_000.0},
    }
    found = report(config, choice=YARN)
    assert list(found["configs"]) == ["transformers 5"]
    (warning,) = found["warnings"]
    assert "loses rope_theta 500000 and the yarn scaling" in warning
    assert "load the model with transformers 5" in warning
    assert report(config)["warnings"] == []


def test_the_extended_config_is_judged_and_every_row_says_which_config_it_read() -> None:
    found = report(VERSION_4, choice={"method": "ntk_by_parts", "factor": 4.0})
    rows = {(row["framework"].split()[0], row["config"]): row for row in found["frameworks"]}
    assert rows["mlx-lm", "as published"]["outcome"] == "agrees"
    assert rows["mlx-lm", "as extended"]["outcome"] == "differs"
    assert rows["llama.cpp", "as extended"]["differs"] == ["attention scale"]
    assert (found["seen"], found["findings_of"]) == ("as published", "as extended")
    none = report(VERSION_4, choice={"method": "dynamic_yarn", "factor": 4.0})
    extended = [row for row in none["frameworks"] if row["config"] == "as extended"]
    assert [row["outcome"] for row in extended] == ["inexpressible"] * 4
    assert none["findings_of"] == "as published"


@pytest.mark.parametrize("choice", [{"base": 5e6}, {"method": "none"}])
def test_what_is_changed_without_an_extension_is_inspected_as_changed(
    choice: dict[str, Any],
) -> None:
    found = report(
        {**presets.load("qwen3-8b-yarn"), "transformers_version": "4.51.0"}, choice=choice
    )
    assert found["seen"] == "as changed"
    assert {row["config"] for row in found["frameworks"]} == {"as changed"}
    facts = dict(found["groups"][0]["facts"])
    if "base" in choice:
        assert facts["base"] == "5,000,000"
    else:
        assert facts["scaling"] == "no scaling"
        assert math.isclose(float(facts["attention scale"]), 1.0)


@pytest.mark.parametrize("choice", [{}, YARN, {"base": 5e6}])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("version", [4, 5])
def test_a_config_in_the_other_dialect_does_not_name_the_version_of_the_first(
    version: int, nested: bool, choice: dict[str, Any]
) -> None:
    """doctor --fix would turn a config of version 5 back that says 4.51."""
    config = VERSION_4 if version == 4 else in_version_5(VERSION_4)
    if nested:
        inside = {**config, "model_type": "qwen3_vl_text"}
        outside = {"model_type": "qwen3_vl", "transformers_version": inside["transformers_version"]}
        config = {**outside, "text_config": inside}
    found = report(config, choice=choice)
    own, other = (json.loads(text) for text in found["configs"].values())
    said = {4: "5.0.0", 5: None}[version]
    for written, expected in ((own, config["transformers_version"]), (other, said)):
        inside = written["text_config"] if nested else written
        assert {written.get("transformers_version"), inside.get("transformers_version")} == {
            expected
        }
        examined = diagnosis.diagnose(written)
        faults = [one.rule for one in examined.findings if one.severity != "note"]
        assert "theta-inside-only" not in faults
        fixed = examined.fixed()
        assert fixed.get("rope_parameters") == written.get("rope_parameters")
        assert fixed.get("text_config") == written.get("text_config")


NOMIC = {
    "model_type": "nomic_bert",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 8192,
    "rotary_emb_base": 10000,
    "rotary_emb_fraction": 1.0,
}


@pytest.mark.parametrize("choice", [YARN, {"base": 5e6}, {**YARN, "base": 5e6}, {"method": "none"}])
def test_only_configs_are_offered_that_transformers_reads_as_shown(choice: dict[str, Any]) -> None:
    """The class of transformers does not read rotary_emb_base and takes 1,000."""
    found = report(NOMIC, choice=choice)
    chart = api.answer_view(
        ExplorerState(), {"source": {"text": json.dumps(NOMIC)}, "choices": [choice]}
    )
    assert list(found["configs"]) == ["transformers 5"]
    copied = json.loads(found["config"])
    (group,) = read_config(copied, parity="transformers").groups
    assert group.rotation is not None
    inv_freq = group.rotation.frequencies(chart["length"]).inv_freq
    assert chart["curves"][1]["inv_freq"] == pytest.approx(inv_freq.flatten().tolist())
    assert "transformers-differs" not in [one["rule"] for one in found["findings"]]
    (warning,) = found["warnings"]
    assert f"loses rope_theta {choice.get('base', 1e4):.0f}" in warning
    tokens = 4 * 8192 if "method" in choice and choice["method"] == "yarn" else 8192
    assert copied["n_positions"] == copied.get("max_position_embeddings", 8192) == tokens


def test_the_command_offers_the_config_of_the_explorer() -> None:
    found, looked = report(NOMIC, choice=YARN), inspect(NOMIC, extend="yarn", factor=4.0)
    assert looked.patch is not None
    assert looked.old_patch is None
    merged = {k: v for k, v in NOMIC.items() if k != "rotary_emb_base"} | dict(looked.patch)
    assert json.loads(found["config"]) == merged
    assert list(looked.warnings) == found["warnings"]
    assert looked.verdict == found["verdict"]
    said = "As published: transformers 5.22.2 reads this config differently: base 1,000"
    assert found["notes"][0].startswith(said)
    assert said in str(looked)
    assert "As published: " not in str(inspect(NOMIC))
