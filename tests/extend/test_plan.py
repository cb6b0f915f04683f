"""``plan_extension``: what it recommends, where it starts, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.configs.gguf_files import gguf_bytes, metadata
from tests.extend.test_angles import PLAIN
from tests.presets import VARIED_PRESETS
from whorl import scaling
from whorl.configs import ConfigError
from whorl.extend import plan_extension
from whorl.extend.methods import TITLES, list_methods

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize("name", VARIED_PRESETS)
def test_every_preset_has_a_plan(name: str) -> None:
    trained = 16_384 if name == "gemma-3-4b" else None  # its config names a factor alone
    plan = plan_extension(name, to="64x", trained=trained)
    document = json.loads(json.dumps(plan.to_dict()))
    assert len(document["verdict"]) == 2
    assert document["recommended"] in (None, *list_methods())
    recommended = plan.find_method(plan.recommended)
    assert recommended is None or recommended.run_by
    assert plan.verdict[0][:40] in str(plan)


def test_every_scaling_is_a_method_or_left_out_with_a_reason() -> None:
    plan = plan_extension(PLAIN, to="4x")
    tried = {each.name for each in plan.methods}
    assert tried == set(list_methods()) == set(TITLES)
    assert tried | set(plan.left_out) == {"none", "raised_base", *scaling.names()}
    assert "search" in plan.left_out["longrope"]


def test_a_plain_model() -> None:
    plan = plan_extension(PLAIN, to="4x")
    assert (plan.recommended, plan.target, plan.factor) == ("yarn", 16_384, 4.0)
    assert plan.trained.rule == "config"
    first, second = plan.verdict
    assert first == "Write yarn (factor 4): no pair is out of distribution at 16,384 tokens."
    assert second.startswith("All 5 frameworks run it. Short texts: angles off by up to ")
    assert second.endswith(" rad, scale 1.139.")


def test_the_published_recipe_decides_where_qwen3_starts() -> None:
    plan = plan_extension("qwen3-8b", to="128k")
    assert (plan.trained.tokens, plan.trained.rule, plan.factor) == (32_768, "published", 4.0)
    assert (
        "claims 40,960 tokens, but the published recipe of qwen3 extends from" in plan.trained.why
    )
    yarn = plan.find_method("yarn")
    assert yarn is not None
    ropes = (yarn.lines["transformers 5"] or {})["rope_parameters"]
    assert ropes["original_max_position_embeddings"] == 32_768


def test_a_config_with_a_scaling_says_which_length_it_takes() -> None:
    plan = plan_extension("llama-3.1-8b", to="256k")
    assert (plan.trained.tokens, plan.trained.rule) == (8192, "scaling")
    assert plan.trained.why.startswith("The config has a scaling already, llama3 by 8.")
    assert "Training after the scaling is not counted." in plan.trained.why
    assert not plan.claimed_already


def test_a_length_that_the_scaling_covers_needs_nothing() -> None:
    plan = plan_extension("llama-3.1-8b", to="128k")
    assert plan.claimed_already
    assert plan.recommended == plan.chosen == "none"
    first, second = plan.verdict
    assert first == (
        "Nothing to write: the published config has a scaling and claims 131,072 tokens."
    )
    assert second.startswith("By angles alone it covers 65,536 tokens; the rest relies on")
    notes = {each.framework: each for each in plan.recipes}
    assert notes["vLLM"].text == "vllm serve MODEL --max-model-len 131072"
    assert notes["transformers 5"].text is None
    assert plan.configs == {}


def test_a_method_can_be_chosen() -> None:
    plan = plan_extension(PLAIN, to="4x", method="linear")
    assert (plan.recommended, plan.chosen) == ("yarn", "linear")
    assert plan.verdict[0].startswith("Write linear (factor 4)")
    assert '"linear"' in (plan.recipes[1].text or "")


def test_a_registered_scaling_is_tried_too() -> None:
    from dataclasses import dataclass

    @scaling.register("halved")
    @dataclass(frozen=True, repr=False)
    class Halved(scaling.Scaling):
        factor: float
        original_context: int

        def frequencies(self, ladder: Any, context_length: Any) -> scaling.Frequencies:
            return scaling.Frequencies(ladder.inv_freq / (2 * self.factor))

    found = plan_extension(PLAIN, to="4x").find_method("halved")
    assert found is not None
    assert found.run_by == ()
    assert found.angles.effective_context == 32_768


ALIBI = {"model_type": "bloom", "hidden_size": 64, "n_head": 4, "n_layer": 2}
UNSAID = {k: v for k, v in PLAIN.items() if k != "max_position_embeddings"}
LINEAR = {**PLAIN, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (PLAIN, {"to": "2k"}, "to must be longer than the trained length, 4,096 tokens, up to wh"),
        (PLAIN, {"to": "1x"}, "to must be longer than the trained length, 4,096 tokens"),
        (PLAIN, {"to": 4096}, "got 4,096 tokens"),
        ("qwen3-8b", {"to": "36k"}, "to must be longer than what the config claims, 40,960 tokens"),
        ("llama-3.1-8b", {"to": "8k"}, "to must be longer than the trained length, 8,192 tokens"),
        (PLAIN, {"to": "lots"}, "to must be a number of tokens up to 2**40, such as 131072 or"),
        (PLAIN, {"to": "0x"}, "such as 4x; got '0x'"),
        (PLAIN, {"to": "99999999999x"}, "got '99999999999x'"),
        (PLAIN, {"to": "-4x"}, "got '-4x'"),
        (PLAIN, {"to": ""}, "got ''"),
        (PLAIN, {"to": None}, "got None"),
        (PLAIN, {"to": True}, "got True"),
        (PLAIN, {"to": 4.5}, "got 4.5"),
        (PLAIN, {"to": 2**50}, "up to 2**40"),
        (PLAIN, {"to": "4x", "method": "yran"}, "method 'yran' is unknown; did you mean 'yarn'?"),
        (PLAIN, {"to": "4x", "method": "longrope"}, "method 'longrope' cannot be planned from a"),
        (ALIBI, {"to": "4x"}, "bloom has no rotary embedding, so there is nothing to extend."),
        (UNSAID | {"model_type": "foo"}, {"to": "4x"}, "does not say the trained length, from whi"),
        (LINEAR, {"to": "8x"}, "has a scaling already, linear by 4, and claims 4,096 tokens, from"),
        ("nonesuch.json", {"to": "4x"}, "there is no file 'nonesuch.json'"),
        (
            {"dim": 512, "n_layers": 2, "n_heads": 8, "vocab_size": 100, "norm_eps": 1e-5},
            {"to": "4x"},
            "got one of meta. Convert the model to the format of transformers first. whorl inspect",
        ),
    ],
)
def test_what_it_refuses(config: object, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as found:
        plan_extension(config, **options)
    assert message in str(found.value)


def test_a_gguf_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(metadata("llama")))
    with pytest.raises(ConfigError, match=r"got one of gguf\. For flags of llama\.cpp, plan"):
        plan_extension(path, to="4x")


def test_a_trained_length_can_be_given_where_the_config_is_silent() -> None:
    plan = plan_extension(LINEAR, to="4x", trained=1024)
    assert (plan.target, plan.trained.rule) == (4096, "given")
    with pytest.raises(ConfigError, match="trained must be 8192, as the config says"):
        plan_extension("llama-3.1-8b", to="256k", trained=4096)


def test_only_layers_without_a_window_are_extended() -> None:
    plan = plan_extension("gemma-3-4b", to="64x", trained=16_384)
    found = plan.find_method("yarn")
    assert found is not None
    lines = found.lines["transformers 5"] or {}
    assert lines["rope_parameters"]["full_attention"]["rope_type"] == "yarn"
    assert lines["rope_parameters"]["sliding_attention"]["rope_type"] == "default"


def test_a_method_that_does_not_fit_says_why() -> None:
    tiny = {**PLAIN, "max_position_embeddings": 4, "rope_theta": 10.0}
    plan = plan_extension(tiny, to="4x")
    assert "the fastest pair has a wavelength longer" in plan.left_out["raised_base"]
    with pytest.raises(ConfigError, match="method 'raised_base' does not fit this config: the fas"):
        plan_extension(tiny, to="4x", method="raised_base")
