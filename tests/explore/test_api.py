"""The JSON functions: the numbers of the charts, the config to copy, and every refusal."""

import dataclasses
import json
import math
from typing import Any

import pytest
import torch

import whorl
from tests.presets import VARIED_PRESETS
from whorl import analysis
from whorl.configs import ConfigError, diagnosis, inspection, presets, read_config
from whorl.explore import _checks, api, choices, curves
from whorl.explore.state import ExplorerState

LLAMA = {"source": {"preset": "llama-3.1-8b"}}
DIALECTS = ("transformers 4", "transformers 5")
SMALL = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}


def pasted(**keys: Any) -> dict[str, Any]:
    return {"source": {"text": json.dumps({**SMALL, **keys})}}


def view(**more: Any) -> dict[str, Any]:
    return api.answer_view(ExplorerState(), {**LLAMA, **more})


def test_start_names_what_there_is() -> None:
    found = api.answer_start(ExplorerState(preset="qwen3-8b"))
    assert found["presets"] == presets.names()
    assert found["preset"] == "qwen3-8b"
    assert set(whorl.scaling.names()) - set(found["methods"]) == {"proportional"}
    assert set(found["with_bias"]) | set(found["without_bias"]) == set(found["encodings"])
    assert {"alibi", "t5", "kerple"} <= set(found["with_bias"])


@pytest.mark.parametrize("name", VARIED_PRESETS)
def test_every_preset_has_curves_that_are_those_of_its_encoding(name: str) -> None:
    found = api.answer_view(
        ExplorerState(), {"source": {"preset": name}, "length": 20_000, "distance": 3}
    )
    model = read_config(presets.load(name))
    rope: Any = model.groups[found["group"]].rotation
    inv_freq = rope.build().frequencies(20_000).inv_freq
    (curve,) = found["curves"]
    assert curve["inv_freq"] == inv_freq.tolist()
    assert curve["wavelengths"][0] == pytest.approx(math.tau / float(inv_freq[0]))
    assert curve["likeness"] == pytest.approx(float((3 * inv_freq).cos().mean()))
    turned = torch.remainder(3 * inv_freq + math.pi, math.tau) - math.pi
    assert curve["angles"] == pytest.approx(turned.rad2deg().tolist(), abs=1e-3)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_scores_and_envelope_are_those_of_the_analysis() -> None:
    q, k = torch.randn(2, 3, 64, dtype=torch.float64)
    asked = pasted() | {"length": 200, "choices": [{"method": "yarn", "factor": 4}]}
    found = api.answer_view(ExplorerState(), {**asked, "q": q.tolist(), "k": k.tolist()})
    rope = whorl.RoPE(64, scaling=whorl.scaling.YaRN(factor=4.0, original_context=4096))
    expected = analysis.decay(rope, 200, q=q, k=k)
    assert tuple(found["distances"]) == expected.distances
    assert found["envelopes"][1] == pytest.approx(expected.envelope, abs=1e-4)
    assert found["focus"] == 1
    for one, other in zip(found["scores"], expected.scores, strict=True):
        assert one["mean"] == pytest.approx(other.mean, abs=1e-5)
        assert one["size"] == pytest.approx(other.mean_size, abs=1e-5)
    alike = (
        torch.tensor(found["distances"]).double()[:, None] * rope.frequencies(201).inv_freq
    ).cos()
    assert found["likeness"][1] == pytest.approx(alike.mean(-1).tolist(), abs=1e-5)


@pytest.mark.parametrize("scale", [1e200, 1e154, 1.3e154])
def test_scores_too_large_for_a_number_are_left_out_with_a_word(scale: float) -> None:
    scaling = {
        "rope_type": "yarn",
        "factor": 4,
        "original_max_position_embeddings": 4096,
        "attention_factor": scale,
    }
    found = api.answer_view(
        ExplorerState(), pasted(max_position_embeddings=16_384, rope_scaling=scaling)
    )
    json.dumps(found, allow_nan=False)
    assert found["scores"] == []
    assert "the attention scale makes the scores too large" in found["why_no_scores"]
    assert found["likeness"][0][0] == 1.0
    assert found["curves"][0]["attention_scale"] == scale
    assert view()["why_no_scores"] is None


def test_statuses_reach_and_new_angles_are_those_of_inspect() -> None:
    found = view(length=131_072, choices=[{"method": "yarn", "factor": 8}])
    looked = inspection.inspect("llama-3.1-8b", length=131_072, extend="yarn", factor=8)
    (group,) = looked.groups
    assert group.at_length is not None
    assert group.extension is not None
    ours, yarn = found["curves"]
    assert sum(ours["new"]) == group.at_length.new == 29
    assert yarn["counts"] == group.extension.after.counts
    assert yarn["reach"] == group.extension.after.effective_context == 65_536
    assert yarn["attention_scale"] == pytest.approx(0.1 * math.log(8) + 1)
    assert (found["trained"], found["claimed"]) == (8192, 131_072)


def test_a_base_changes_the_frequencies() -> None:
    found = view(choices=[{"base": 1e6}, {"method": "none", "base": 100.0}])
    expected = whorl.RoPE(128, base=100.0).frequencies().inv_freq
    assert found["curves"][2]["inv_freq"] == expected.tolist()
    assert [one["label"] for one in found["curves"]] == [
        "as in the config",
        "as in the config, base 1M",
        "no scaling, base 100",
    ]


def test_layers_with_a_window_have_its_distances() -> None:
    found = api.answer_view(ExplorerState(), {"source": {"preset": "gpt-oss-20b"}, "group": 0})
    assert found["window"] == 128
    assert found["distances"][-1] == 128
    assert found["heat"][0]["distances"][-1] == 128


def test_heat_maps_are_of_the_config_and_what_is_chosen() -> None:
    chosen = [{"method": name, "factor": 4} for name in ("yarn", "linear")]
    found = view(choices=chosen, length=100_000)["heat"]
    assert [one is None for one in found] == [False, False, True]
    assert found[0]["values"] != found[1]["values"]
    assert found[1]["distances"][-1] == 100_000
    assert len(view()["heat"]) == 1


def test_an_extension_that_does_not_fit_leaves_the_other_curves() -> None:
    asked = {"source": {"preset": "gemma-3-4b"}, "choices": [{"method": "yarn", "factor": 2}]}
    found = api.answer_view(ExplorerState(), asked)
    assert "does not say the trained length" in found["curves"][1]["error"]
    assert len(found["curves"][0]["wavelengths"]) == 128
    told = api.answer_view(ExplorerState(), {**asked, "trained": 4096})
    assert "error" not in told["curves"][1]


METHODS = [
    name for name in choices.list_methods() if name not in ("dynamic_linear", "dynamic_yarn")
]


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "gpt-neox-20b", "modernbert-base", "qwen3-8b-yarn"]
)
@pytest.mark.parametrize("method", ["config", "none", *METHODS])
def test_the_config_to_copy_reads_back_as_the_curve(name: str, method: str) -> None:
    choice = {"method": method, "factor": 4.0, "base": 123_456.0}
    asked = {"source": {"preset": name}, "length": 50_000}
    report = api.answer_report(ExplorerState(), {**asked, "choice": choice})
    assert report["why"] is None
    assert not set(presets.NOTES) & set(json.loads(report["config"]))
    found = api.answer_view(ExplorerState(), {**asked, "choices": [choice]})
    model = read_config(json.loads(report["config"]))
    rotation = model.groups[report["group"]].rotation
    assert rotation is not None
    built: Any = rotation.build()
    inv_freq = built.frequencies(50_000).inv_freq.tolist()
    assert found["curves"][1]["inv_freq"] == pytest.approx(inv_freq, rel=1e-6)
    errors = [one for one in report["findings"] if one["severity"] == "error"]
    assert not errors


@pytest.mark.parametrize("method", ["dynamic_linear", "dynamic_yarn"])
def test_what_transformers_cannot_say_has_no_config(method: str) -> None:
    report = api.answer_report(
        ExplorerState(), {**LLAMA, "choice": {"method": method, "factor": 2.0}}
    )
    assert report["config"] is None
    assert "transformers has no type" in report["why"]


def test_the_config_of_another_dialect_is_shown_but_not_written() -> None:
    params = {"dim": 256, "n_layers": 2, "n_heads": 4, "multiple_of": 256, "rope_theta": 5e5}
    report = api.answer_report(ExplorerState(), {"source": {"text": json.dumps(params)}})
    assert report["base"] == 5e5
    assert report["config"] is None
    assert report["why"] == "this is a config of meta; whorl writes only those of transformers."


def test_the_report_is_that_of_inspect_and_doctor() -> None:
    report = api.answer_report(ExplorerState(), {**LLAMA, "length": 200_000})
    looked = inspection.inspect("llama-3.1-8b", length=200_000)
    assert report["verdict"] == looked.verdict
    examined = diagnosis.diagnose(presets.load("llama-3.1-8b"), length=200_000).to_dict()
    assert report["findings"] == examined["findings"]
    preset = presets.load("llama-3.1-8b")
    keys = {key: value for key, value in preset.items() if key not in presets.NOTES}
    assert json.loads(report["config"]) == keys
    assert (report["base"], report["head_dim"], report["trained"]) == (500_000.0, 128, 8192)


def test_a_config_that_cannot_be_read_has_findings() -> None:
    asked = pasted(rope_scaling={"rope_type": "nonesuch", "factor": 2.0})
    report = api.answer_report(ExplorerState(), asked)
    assert report["problem"]
    assert report["verdict"] is None
    assert report["counts"]["error"] >= 1
    with pytest.raises(ValueError, match="nonesuch"):
        api.answer_view(ExplorerState(), asked)


def test_a_model_without_rotation() -> None:
    asked = {"source": {"text": json.dumps({"model_type": "bert", "hidden_size": 64})}}
    report = api.answer_report(ExplorerState(), asked)
    assert report["problem"].endswith("has no rotary embedding, so there is nothing to draw.")
    assert report["verdict"]
    with pytest.raises(ValueError, match="bert has no rotary embedding"):
        api.answer_view(ExplorerState(), asked)


def test_a_head_too_wide_to_draw_is_not_built() -> None:
    asked = pasted(hidden_size=8192, num_attention_heads=1)
    report = api.answer_report(ExplorerState(), asked)
    assert "up to 4,096 channels; this has 8,192" in report["problem"]
    with pytest.raises(ValueError, match=r"up to 4,096 channels"):
        api.answer_view(ExplorerState(), asked)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ([], "the request must be a JSON object"),
        ({}, "source must be one of preset, text, given and other"),
        (
            {"source": {"path": "/etc/passwd"}},
            "source must be one of preset, text, given and other",
        ),
        ({"source": {"given": True}}, "no config was given on the command line"),
        ({"source": {"preset": "lama-3.1-8b"}}, "did you mean 'llama-3.1-8b'"),
        ({"source": {"preset": "../presets/llama-2-7b"}}, "there is no preset"),
        ({"source": {"text": "   "}}, "there is no config yet"),
        ({"source": {"text": "{}"}}, "the config is empty"),
        ({"source": {"text": "{oops"}}, "the text is not JSON"),
        ({"source": {"text": "[1]"}}, "must hold a JSON object"),
        ({**LLAMA, "lenght": 3}, "the request has no 'lenght'"),
        ({**LLAMA, "length": 2**24 + 1}, "length must be a whole number from 1 to 16,777,216"),
        ({**LLAMA, "length": "many"}, "length must be a whole number .* got 'many'"),
        ({**LLAMA, "length": 10**400}, "got a number of 1,329 bits"),
        ({**LLAMA, "distance": -1}, "distance must be a whole number from 0"),
        ({**LLAMA, "group": 3}, "group must be one of 0"),
        ({**LLAMA, "trained": 5}, "trained must be 8192"),
        ({**LLAMA, "choices": {}}, None),
        ({**LLAMA, "choices": "yarn"}, "choices must be a list of fewer than 8"),
        ({**LLAMA, "choices": [{}] * 8}, "choices must be a list of fewer than 8"),
        ({**LLAMA, "choices": [{"method": "yarm"}]}, "method must be one of config, none"),
        ({**LLAMA, "choices": [{"base": math.nan}]}, "base must be a number from 1 to 1e"),
        ({**LLAMA, "choices": [{"base": True}]}, "base must be a number"),
        ({**LLAMA, "choices": [{"method": "yarn", "factor": 0}]}, "factor must be a number from"),
        ({**LLAMA, "q": [1.0] * 128}, "q and k must be given together"),
        ({**LLAMA, "q": [1.0], "k": [1.0]}, "must have 128 numbers each, the width of a head"),
        ({**LLAMA, "q": [0] * 128, "k": [0] * 128}, "q and k must not be 0"),
        ({**LLAMA, "q": ["x"], "k": [1]}, "q must be a list of numbers"),
        ({**LLAMA, "q": [[1], [1, 2]], "k": [1]}, "q must be a list of numbers"),
        ({**LLAMA, "q": [[1.0]] * 65, "k": [1]}, "or up to 64 lists of equal length"),
    ],
)
def test_what_a_view_refuses(request_: Any, message: str | None) -> None:
    if message is None:
        api.answer_view(ExplorerState(), request_)
        return
    with pytest.raises(ValueError, match=message):
        api.answer_view(ExplorerState(), request_)


def test_an_extension_without_a_factor_says_so() -> None:
    found = view(choices=[{"method": "yarn"}])
    assert found["curves"][1]["error"] == "An extension needs a factor; enter one."


def test_frequencies_of_their_own_have_no_base() -> None:
    subject = ExplorerState().find_config(LLAMA["source"])
    group = subject.groups[0]
    assert group.rotation is not None
    own = dict(group.rotation.options) | {"inv_freq": [1.0] * 64, "scaling": None}
    rotation = dataclasses.replace(group.rotation, options=own)
    assert subject.model is not None
    model = dataclasses.replace(
        subject.model, groups=(dataclasses.replace(group, rotation=rotation),)
    )
    changed = dataclasses.replace(subject, model=model)
    found = curves.build_view(changed, choices=(choices.Choice(base=5.0),))
    assert "are given as a list" in found["curves"][1]["error"]


def test_positions_in_an_image_have_no_distances() -> None:
    config = {"model_type": "dinov3_vit", "hidden_size": 64, "num_attention_heads": 4}
    asked = {"source": {"text": json.dumps(config)}}
    found = api.answer_view(ExplorerState(), asked)
    assert found["distances"] == []
    assert "no single distance" in found["why"]
    assert found["curves"][0]["wavelengths"]


LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0 + n / 100 for n in range(32)],
    "long_factor": [1.0 + n for n in range(32)],
    "original_max_position_embeddings": 512,
}


def test_longrope_takes_the_lists_of_the_config() -> None:
    choice = {"method": "longrope", "factor": 2.0}
    asked = pasted(rope_scaling=LONG) | {"length": 4096}
    found = api.answer_view(ExplorerState(), {**asked, "choices": [choice]})
    ours, other = found["curves"]
    assert other["inv_freq"] == ours["inv_freq"]
    assert other["attention_scale"] == pytest.approx(math.sqrt(1 + math.log(2) / math.log(512)))
    assert ours["attention_scale"] == pytest.approx(math.sqrt(1 + math.log(8) / math.log(512)))
    assert "changes the attention scale only" in other["note"]
    assert ours["note"] is None


def test_longrope_without_lists_slows_all_pairs_alike() -> None:
    choice = {"method": "longrope", "factor": 4.0}
    (short, same), (plain, long) = (
        api.answer_view(ExplorerState(), pasted() | {"length": n, "choices": [choice]})["curves"]
        for n in (4096, 4097)
    )
    assert same["inv_freq"] == short["inv_freq"]
    assert long["inv_freq"] == pytest.approx([f / 4 for f in plain["inv_freq"]])
    assert "so past 4,096 tokens the frequency of every pair is divided by 4" in long["note"]
    report = api.answer_report(ExplorerState(), pasted() | {"choice": choice})
    assert json.loads(report["config"])["rope_scaling"]["long_factor"] == [4.0] * 32
    written = json.loads(report["configs"]["transformers 5"])
    assert written["rope_parameters"]["long_factor"] == [4.0] * 32
    assert "LongRoPE by 4" in report["verdict"]
    assert report["context"] == 4096


def test_longrope_needs_the_trained_length() -> None:
    choice = {"method": "longrope", "factor": 4.0}
    asked = {"source": {"preset": "gemma-3-4b"}, "choices": [choice]}
    assert api.answer_view(ExplorerState(), asked)["curves"][1]["error"].endswith(
        "enter it under Trained on."
    )
    found = api.answer_view(ExplorerState(), {**asked, "trained": 1})
    assert "a trained length of at least 2 tokens" in found["curves"][1]["error"]


def test_what_is_not_offered_has_a_reason() -> None:
    assert set(whorl.scaling.names()) == {*choices.list_methods(), *choices.NOT_OFFERED}
    assert api.answer_start(ExplorerState())["not_offered"] == list(choices.NOT_OFFERED.values())


@pytest.mark.parametrize("path", [["llm_config"], ["language_config"], ["thinker_config", "llm"]])
@pytest.mark.parametrize("choice", [{"base": 5e4}, {"method": "linear", "factor": 2.0}])
def test_the_config_to_copy_has_it_where_it_was_read(
    path: list[str], choice: dict[str, Any]
) -> None:
    path = [name if name.endswith("config") else "text_config" for name in path]
    inner: dict[str, Any] = dict(SMALL)
    for name in reversed(path):
        inner = {name: inner} if name == path[-1] else {name: {**inner, "model_type": "thing"}}
    config = {"model_type": "of_its_own", **inner}
    report = api.answer_report(
        ExplorerState(), {"source": {"text": json.dumps(config)}, "choice": choice}
    )
    assert report["config"] == report["configs"]["transformers 4"], report["why"]
    old, new = (json.loads(report["configs"][each]) for each in DIALECTS)
    for name in ["", *path]:
        old, new = (old[name], new[name]) if name else (old, new)
        assert "rope_parameters" not in old
        assert "rope_theta" not in new
        assert ("rope_theta" in old) == ("rope_parameters" in new) == (name == path[-1])
    assert old["rope_theta"] == choice.get("base", 10_000.0)
    assert new["rope_parameters"]["rope_theta"] == choice.get("base", 10_000.0)


def test_an_extension_that_does_not_fit_is_not_dropped_in_silence() -> None:
    asked = {**LLAMA, "choice": {"method": "yarn", "factor": 0.5}}
    report = api.answer_report(ExplorerState(), asked)
    without = "This is without YaRN x 0.5, which does not fit this config."
    assert report["notes"][0] == without
    assert report["why"].startswith("Factor must be")
    assert report["config"] is None
    fits = api.answer_report(ExplorerState(), {**LLAMA, "choice": {"method": "yarn", "factor": 2}})
    assert not any("This is without" in note for note in fits["notes"])
    told = api.answer_report(ExplorerState(), {**LLAMA, "trained": 5})
    assert told["notes"][0].startswith("This is without training on 5 tokens")


def test_the_page_gets_its_limits_from_here() -> None:
    limits = api.answer_start(ExplorerState())["limits"]
    assert limits["length"] == {"least": 1, "most": 2**24, "whole": True}
    assert limits["factor"]["whole"] is False
    for key, one in limits.items():
        beyond = {key: one["most"] * 2}
        asked = {"choices": [{"method": "yarn", "factor": 2, **beyond}]}
        with pytest.raises(_checks.RequestError, match=f"{key} must be"):
            api.answer_view(
                ExplorerState(), LLAMA | (asked if key in ("base", "factor") else beyond)
            )


def test_errors_of_whorl_are_not_taken_for_the_request_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("a mistake")

    monkeypatch.setattr(curves, "describe_scaling", broken)
    with pytest.raises(ValueError, match="a mistake") as caught:
        view(choices=[{"method": "yarn", "factor": 2}])
    assert not isinstance(caught.value, (_checks.RequestError, ConfigError))


def test_the_page_knows_which_factors_are_refused() -> None:
    least = api.answer_start(ExplorerState())["least_factors"]
    for method in choices.list_methods():
        (_, found) = view(choices=[{"method": method, "factor": 0.5}])["curves"]
        assert ("error" in found) == (least.get(method, 0.0) > 0.5), method
    (_, found) = view(choices=[{"method": "yarn", "factor": 0.5}])["curves"]
    assert found["error"].startswith("Factor must be")


def test_scalings_that_follow_the_length_are_marked() -> None:
    asked = [{"method": name, "factor": 4} for name in ("yarn", "dynamic_ntk", "longrope")]
    found = view(choices=asked)["curves"]
    assert [one["follows"] for one in found] == [False, False, True, True]


def test_messages_for_the_page_name_no_functions() -> None:
    said = _checks.format_error
    assert said(ValueError("explore: inspect: the text is not JSON.")) == "The text is not JSON."
    assert said(ValueError("read_config: rope_type 'x' is not known.")).startswith("rope_type")
    assert said(ValueError("inspect: q and k go together.")) == "q and k go together."
    assert said(ValueError("bert has none.")) == "bert has none."


def test_a_model_without_rotation_says_it_once() -> None:
    asked = {"source": {"text": json.dumps({"model_type": "bert", "hidden_size": 64})}}
    report = api.answer_report(ExplorerState(), asked)
    assert report["verdict"] == "bert has no rotary embedding."
    assert report["notes"] == []
