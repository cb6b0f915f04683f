"""Models that are loaded while whorl is enabled have it installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    LlamaForCausalLM,
    PreTrainedModel,
)

import whorl
from whorl.hf import loading

from .models import build_inputs, build_model, compute_logits


@pytest.fixture(autouse=True)
def _disabled_at_the_end() -> Iterator[None]:
    yield
    if loading._loading is not None:
        whorl.hf.disable()


@torch.no_grad()
def test_loaded_models_are_installed(tmp_path: Path) -> None:
    stock, inputs = build_model("bloom"), build_inputs("bloom", 30, "left")
    stock.save_pretrained(tmp_path)
    before = PreTrainedModel.__dict__["from_pretrained"]
    with whorl.hf.enable():
        model = AutoModelForCausalLM.from_pretrained(tmp_path)
        other, _ = type(stock).from_pretrained(tmp_path, output_loading_info=True)
        assert not hasattr(build_model("bloom"), "whorl_installation")
    assert PreTrainedModel.__dict__["from_pretrained"] is before
    expected = compute_logits(stock, inputs)
    for one in (model, other):
        assert one.whorl_installation.family == "BLOOM"
        assert float((compute_logits(one, inputs) - expected).abs().max()) < 1e-4
        whorl.hf.uninstall(one)
        assert torch.equal(compute_logits(one, inputs), expected)
    assert not hasattr(AutoModelForCausalLM.from_pretrained(tmp_path), "whorl_installation")


@torch.no_grad()
def test_options_are_those_of_install(tmp_path: Path) -> None:
    stock, inputs = build_model("llama"), build_inputs("llama", 30)
    stock.save_pretrained(tmp_path)
    whorl.hf.enable(whorl.ALiBi(4))
    model = LlamaForCausalLM.from_pretrained(tmp_path)
    whorl.hf.disable()
    whorl.hf.install(stock, whorl.ALiBi(4))
    assert torch.equal(compute_logits(model, inputs), compute_logits(stock, inputs))
    stock.save_pretrained(tmp_path)
    with whorl.hf.enable(scaling=whorl.Linear(2.0), precision="float64", impl="reference"):
        model = LlamaForCausalLM.from_pretrained(tmp_path)
    (rotation,) = model.model.rotary_emb.rotations.values()
    assert rotation.config.scaling == whorl.Linear(2.0)
    assert (rotation.config.precision, rotation.config.impl) == ("float64", "reference")


def test_a_model_that_is_refused_is_loaded_without_whorl(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(num_hidden_layers=1, vocab_size=10, **sizes)).save_pretrained(tmp_path)
    with (
        whorl.hf.enable(),
        pytest.warns(UserWarning, match=r"type 'bert'.* The model is loaded without whorl\."),
    ):
        model = BertModel.from_pretrained(tmp_path)
    assert not hasattr(model, "whorl_installation")


def test_what_enable_and_disable_refuse() -> None:
    with pytest.raises(ValueError, match=r"whorl must be enabled; call whorl\.hf\.enable\(\)"):
        whorl.hf.disable()
    with pytest.raises(TypeError, match=r"encoding must be an encoding.*got 'alibi'"):
        whorl.hf.enable("alibi")  # type: ignore[arg-type]
    with whorl.hf.enable():
        with pytest.raises(ValueError, match=r"enabled already\. Call whorl\.hf\.disable\(\) bef"):
            whorl.hf.enable()
        whorl.hf.disable()  # earlier than the end: nothing is left to do there
    with pytest.raises(KeyError), whorl.hf.enable():
        raise KeyError
    assert loading._loading is None


def test_transformers_4_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "4.57.6")
    message = r"whorl.hf needs transformers 5, and 4\.57\.6 is installed: pip install 'whorl\[hf\]'"
    with pytest.raises(ModuleNotFoundError, match=message):
        whorl.hf.__getattr__("install")
