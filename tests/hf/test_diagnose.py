"""Loaded models whose frequencies are not those of their config."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import whorl

from .models import ROTARY, VISION, build_model

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


def find_rotary(model: PreTrainedModel) -> Any:
    return model.model.rotary_emb


@pytest.mark.parametrize("kind", ROTARY)
def test_nothing_is_wrong_with_models_of_transformers(kind: str) -> None:
    found = whorl.hf.diagnose(build_model(kind))
    assert found.findings == ()
    assert found.checked
    reason = "it rotates by rows and columns, with one table for both"
    assert found.skipped == ({"model.visual.rotary_pos_emb": reason} if kind in VISION else {})
    assert f"0 problems in {len(found.checked)} tables of frequencies." in str(found)


@pytest.mark.parametrize(
    "parameters",
    [
        LLAMA3,
        {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
        {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4},
    ],
    ids=lambda parameters: parameters["rope_type"],
)
def test_nothing_is_wrong_with_scaled_models(parameters: dict[str, Any]) -> None:
    model = build_model("llama", rope_parameters=parameters, max_position_embeddings=64)
    assert whorl.hf.diagnose(model).findings == ()
    model(torch.ones(1, 100, dtype=torch.long))  # "dynamic" has other frequencies now
    assert whorl.hf.diagnose(model).findings == ()


def test_a_buffer_that_was_never_filled() -> None:
    for value in (0.0, float("nan"), -1.0):
        model = build_model("llama")
        find_rotary(model).inv_freq[2] = value
        (finding,) = whorl.hf.diagnose(model).errors
        assert finding.where == "model.rotary_emb.inv_freq"
        assert "allocated on the meta device and never filled" in finding.message


def test_a_loader_that_ignores_the_scaling() -> None:
    model = build_model("llama", rope_parameters=LLAMA3)
    plain = build_model("llama", rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    find_rotary(model).inv_freq.copy_(find_rotary(plain).inv_freq)
    (finding,) = whorl.hf.diagnose(model).errors
    assert finding.message == "the frequencies are those without the scaling of the config."


def test_a_loader_that_applies_linear_scaling_instead() -> None:
    model = build_model("llama", rope_parameters=LLAMA3)
    plain = build_model("llama", rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    find_rotary(model).inv_freq.copy_(find_rotary(plain).inv_freq / 8)
    (finding,) = whorl.hf.diagnose(model).errors
    assert finding.message.startswith("the frequencies are those of linear scaling by 8, and the")
    assert "Llama3(" in finding.message


def test_a_config_that_was_changed_after_loading() -> None:
    model = build_model("llama")
    model.config.rope_parameters["rope_theta"] = 1e6
    (finding,) = whorl.hf.diagnose(model).errors
    assert "the frequencies differ from the config: that of pair 5 is" in finding.message
    assert finding.remedy == "Load the model again, with the config as it is to be used."


def test_another_number_of_frequencies_and_another_scale() -> None:
    model = build_model("llama")
    rotary = find_rotary(model)
    rotary.attention_scaling = 1.5
    rotary.inv_freq = rotary.inv_freq[:3]
    first, second = whorl.hf.diagnose(model).errors
    assert first.message == "there are 3 frequencies, and the config gives 6."
    assert second.where == "model.rotary_emb.attention_scaling"
    assert second.message == "cos and sin are multiplied by 1.5, and the config gives 1."


def test_rounded_frequencies_are_a_warning() -> None:
    model = build_model("llama").to(torch.bfloat16)
    found = whorl.hf.diagnose(model)
    assert found.errors == ()
    (finding,) = found.findings
    assert "rounded to bfloat16, so that angles are off by one radian at position" in str(finding)


def test_what_is_not_compared() -> None:
    model = build_model("llama")
    find_rotary(model).config = None
    found = whorl.hf.diagnose(model)
    assert found.skipped == {"model.rotary_emb": "it has no config of its own"}
    assert "LlamaForCausalLM: no frequencies to compare.\nnot compared: model.rotary" in str(found)
    assert whorl.hf.diagnose(build_model("bloom")).checked == ()
    with pytest.raises(TypeError, match=r"model must be a model of transformers.*got Linear"):
        whorl.hf.diagnose(torch.nn.Linear(2, 2))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("typer.testing")
    import transformers

    from whorl.cli.app import app

    build_model("llama").save_pretrained(tmp_path)
    command = ["doctor", str(tmp_path), "--live"]
    done = testing.CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "Loaded by transformers: LlamaModel: 0 problems in 1 tables" in done.output
    broken = transformers.AutoModel.from_pretrained(tmp_path)
    broken.rotary_emb.inv_freq.zero_()
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda *_, **__: broken)
    done = testing.CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 3
    assert '"live"' in done.output
    assert "never filled" in done.output
