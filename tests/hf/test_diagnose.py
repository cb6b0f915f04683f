"""Loaded models that do not do with positions what their config says."""

import re
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


@pytest.mark.parametrize("kind", [*ROTARY, "gptj", "roformer"])
def test_nothing_is_wrong_with_models_of_transformers(kind: str) -> None:
    found = whorl.hf.diagnose(build_model(kind))
    assert found.findings == ()
    assert found.checked
    reason = "it rotates by rows and columns, with one table for both"
    assert found.skipped == ({"model.visual.rotary_pos_emb": reason} if kind in VISION else {})
    assert found.to_dict()["attention"] == list(found.attention)
    assert "0 problems; compared " in str(found)
    assert found.attention or kind == "roformer"  # whose modules keep no config


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
    assert "0 problems; compared 0 tables and 2 attention modules.\nnot compared: model.r" in str(
        found
    )
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
    assert "Loaded by transformers: LlamaModel: 0 problems; compared 1 table and 2" in done.output
    broken = transformers.AutoModel.from_pretrained(tmp_path)
    broken.rotary_emb.inv_freq.zero_()
    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", lambda *_, **__: broken)
    done = testing.CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 3
    assert '"live"' in done.output
    assert "never filled" in done.output


def test_a_buffer_that_is_still_on_the_meta_device() -> None:
    model = build_model("llama")
    find_rotary(model).inv_freq = find_rotary(model).inv_freq.to("meta")
    (finding,) = whorl.hf.diagnose(model).errors
    assert finding.message.startswith("it is on the meta device and has no numbers: the model was")


@pytest.mark.parametrize("kind", ["gptj", "roformer"])
def test_tables_that_are_wrong(kind: str) -> None:
    for value in (float("nan"), 0.0):
        model = build_model(kind)
        for module in model.modules():
            table = getattr(module, "embed_positions", None)
            if table is not None:
                getattr(table, "weight", table).data[7] = value
        finding = whorl.hf.diagnose(model).errors[0]
        assert finding.where.endswith(".embed_positions")
        assert "differ from those of the config in 1 of 512 positions, first in 7" in str(finding)
    model.config.rotary_dim = 4
    if kind == "gptj":
        finding = whorl.hf.diagnose(model).errors[0]
        assert finding.message == "the table has 8 channels, and the config gives 4."


@pytest.mark.parametrize(
    ("kind", "name", "value", "said"),
    [
        ("llama", "scaling", 1.0, "it is 1.0, and the config gives 0.28"),
        ("qwen2", "sliding_window", None, "it is None, and the config gives 90."),
        ("gemma2", "attn_logit_softcapping", None, "it is None, and the config gives 2.0."),
        ("smollm3", "use_rope", 0, "it is 0, and the config gives 1."),
        ("deepseek_v3", "scaling", 0.5, "it is 0.5, and the config gives 0.26"),
    ],
)
def test_attention_that_is_not_as_the_config_says(
    kind: str, name: str, value: object, said: str
) -> None:
    model = build_model(kind)
    path, layer = [(p, m) for p, m in model.named_modules() if hasattr(m, name)][-1]
    setattr(layer, name, value)
    (finding,) = whorl.hf.diagnose(model).errors
    assert finding.where == f"{path}.{name}"
    assert finding.message.startswith(said)


def test_attention_that_cannot_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("llama", num_hidden_layers=1)
    kind = type(model.model.layers[0].self_attn)

    def start(self: Any, config: Any, other: int) -> None:
        raise AssertionError

    monkeypatch.setattr(kind, "__init__", start)
    (reason,) = whorl.hf.diagnose(model).skipped.values()
    assert reason == "LlamaAttention needs other, which it does not keep"
    model.model.layers[0].self_attn.other = 1
    (reason,) = whorl.hf.diagnose(model).skipped.values()
    assert reason.startswith("LlamaAttention cannot be made again: ")


@pytest.mark.parametrize(
    ("kind", "options", "where"),
    [
        ("mpt", {"attn_config": {"alibi_bias_max": 16}}, "config.attn_config.alibi_bias_max"),
        ("mpt", {"attn_config": {"alibi": False}}, "config.attn_config.alibi"),
        ("mpnet", {"relative_attention_num_buckets": 16}, "config.relative_attention_num_buckets"),
        ("gptj", {"rope_theta": 5e5}, "config.rope_theta"),
        ("llama", {"sliding_window": 64}, "config.sliding_window"),
        (
            "qwen2",
            {"layer_types": ["full_attention"] * 2, "max_window_layers": 2},
            "config.sliding_window",
        ),
    ],
)
def test_keys_that_change_nothing(kind: str, options: dict[str, Any], where: str) -> None:
    (finding,) = whorl.hf.diagnose(build_model(kind, **options)).findings
    assert (finding.severity, finding.where) == ("warning", where)
    assert " changes nothing: " in finding.message


def test_an_installed_model_is_diagnosed_too() -> None:
    for options in ({}, {"keys": "unrotated"}, {"precision": "float64"}):
        for kind in ("llama", "bloom", "deepseek_v3", "gptj"):
            model = build_model(kind)
            if kind == "bloom" and options:
                continue
            with whorl.hf.install(model, **options):  # type: ignore[arg-type]
                found = whorl.hf.diagnose(model)
            assert found.findings == ()
            for reason in found.skipped.values():
                assert reason.startswith("whorl.hf.install replaced it")


def train_pairs(model: PreTrainedModel, layouts: list[str]) -> None:
    """Give q and k weights whose pairs agree in a layout, as training makes them; one per layer."""
    source = torch.Generator().manual_seed(0)
    for layer, layout in zip(model.model.layers, layouts, strict=True):
        attention = layer.self_attn
        heads, width = 2, attention.q_proj.in_features
        common = torch.randn(width // 2, width, generator=source)
        for place, project in enumerate((attention.q_proj, attention.k_proj)):
            pairs = torch.randn(width // 2, 2, width, generator=source) * 0.3
            pairs[:, place] += common
            pairs = pairs.unflatten(0, (heads, -1))  # [H, P, 2, E]
            rows = pairs if layout == "interleaved" else pairs.transpose(1, 2)
            project.weight.data.copy_(rows.reshape(width, width))


@pytest.mark.parametrize("kind", ["llama", "cohere"])
def test_weights_in_another_layout_are_named(kind: str) -> None:
    """Llama pairs channels half a head apart, Cohere neighbours."""
    sizes = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2}
    right, wrong = ("half", "interleaved") if kind == "llama" else ("interleaved", "half")
    model = build_model(kind, **sizes)
    train_pairs(model, [right, right])
    assert whorl.hf.diagnose(model).findings == ()
    with whorl.hf.install(model):
        pass
    train_pairs(model, [wrong, wrong])
    (finding,) = whorl.hf.diagnose(model).errors
    assert finding.where == "q and k"
    said = (
        rf"trained in the {wrong} layout \(confidence 97%\), and the model rotates in the {right} l"
    )
    assert re.search(said, finding.message)
    with pytest.warns(UserWarning, match=said + ".*whorl convert FOLDER OUT"):
        whorl.hf.install(model)
    whorl.hf.uninstall(model)
    with whorl.hf.install(model, whorl.RoPE(128, layout=wrong)):  # type: ignore[arg-type]
        pass  # which rotates as the weights want it
    train_pairs(model, [right, wrong])
    with pytest.warns(UserWarning, match=r"q and k have different layouts \(.*; .*\), and the mod"):
        whorl.hf.install(model)
