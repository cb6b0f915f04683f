"""What install refuses, leaves unchanged and restores."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, BertConfig, BertModel, PreTrainedModel
from transformers.models.bloom.modeling_bloom import BloomAttention
from transformers.utils.quantization_config import QuantizationMethod

import whorl
from whorl.hf.changes import ClassChange
from whorl.hf.families.bloom import WhorlBloomAttention

from .models import build_inputs, build_model, compute_logits


def test_what_is_changed_and_restored() -> None:
    model = build_model("bloom")
    layer = model.transformer.h[0].self_attention
    names = list(model.state_dict())
    implementation = model.config._attn_implementation
    installed = whorl.hf.install(model)
    assert repr(installed) == "Installation(BloomForCausalLM, family='BLOOM', changes=4)"
    assert type(layer) is WhorlBloomAttention
    assert list(model.state_dict()) == names
    assert model.config._attn_implementation == "whorl"
    whorl.hf.uninstall(model)
    assert type(layer) is BloomAttention
    assert vars(layer).keys() == vars(build_model("bloom").transformer.h[0].self_attention).keys()
    assert model.config._attn_implementation == implementation
    assert not hasattr(model, "whorl_installation")


def test_a_context_manager_restores_after_an_error() -> None:
    model = build_model("t5")
    with pytest.raises(KeyError), whorl.hf.install(model):
        raise KeyError
    assert not hasattr(model, "whorl_installation")
    with whorl.hf.install(model):
        whorl.hf.uninstall(model)  # earlier than the end: nothing is left to do there


def list_attributes(model: PreTrainedModel) -> dict[str, object]:
    """Classes, attributes and the objects among them, of all modules."""
    plain = (bool, int, float, str, type(None))
    found: dict[str, object] = {}
    for path, module in model.named_modules():
        found[path] = (type(module), module.forward.__func__, id(module))
        for name, value in vars(module).items():
            found[f"{path}.{name}"] = value if isinstance(value, plain) else type(value)
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            found[f"{path}.{name}"] = None if tensor is None else (id(tensor), tensor.data_ptr())
    return {**found, "config": model.config.to_dict(), "config object": id(model.config)}


@pytest.mark.parametrize("options", [{}, {"keys": "unrotated"}, {"precision": "float64"}], ids=str)
@pytest.mark.parametrize("kind", ["llama", "gptj", "qwen2_vl", "deepseek_v3", "deberta-v2"])
@torch.no_grad()
def test_every_attribute_is_restored(kind: str, options: Any) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 12)
    before = list_attributes(model)
    if options and kind == "deberta-v2":
        with pytest.raises(ValueError, match="for DeBERTa, which does not rotate"):
            whorl.hf.install(model, **options)
    else:
        with whorl.hf.install(model, **options):
            model(**inputs)
    assert list_attributes(model) == before


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bloom", {}),
        ("llama", {}),
        ("llama", {"keys": "unrotated"}),
        ("llama", {"encoding": whorl.T5Bias(4)}),
        ("umt5", {}),
    ],
    ids=str,
)
def test_nothing_of_whorl_is_saved(kind: str, options: Any, tmp_path: Path) -> None:
    model = build_model(kind)
    model.save_pretrained(tmp_path / "before")
    with whorl.hf.install(model, **options):
        model.save_pretrained(tmp_path / "after")
    before, after = tmp_path / "before", tmp_path / "after"
    assert {file.name for file in before.iterdir()} == {file.name for file in after.iterdir()}
    for file in before.iterdir():
        assert file.read_bytes() == (after / file.name).read_bytes(), file.name


def test_the_class_of_xlnet_is_saved_under_its_name(tmp_path: Path) -> None:
    """It is the one family in which the class of a whole model changes."""
    model = build_model("xlnet").transformer
    with whorl.hf.install(model):
        model.save_pretrained(tmp_path)
        assert type(pickle.loads(pickle.dumps(model))) is type(model)
    assert '"XLNetModel"' in (tmp_path / "config.json").read_text()


def test_no_random_numbers_are_drawn() -> None:
    """A seed that was set before gives the same samples as without whorl."""
    for kind in ("t5", "deberta-v2", "xlnet", "mpnet", "llama"):
        model, before = build_model(kind), torch.get_rng_state()
        whorl.hf.install(model)
        assert torch.equal(before, torch.get_rng_state()), kind


def test_a_saved_model_loads_and_gives_the_same(tmp_path: Path) -> None:
    model, inputs = build_model("bloom"), build_inputs("bloom", 30)
    with whorl.hf.install(model), torch.no_grad():
        before = compute_logits(model, inputs)
        model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, local_files_only=True)
    with whorl.hf.install(again), torch.no_grad():
        assert torch.equal(before, compute_logits(again, inputs))


@pytest.mark.parametrize("make", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize(("kind", "keys"), [("t5", "rotated"), ("llama", "unrotated")])
@torch.no_grad()
def test_a_copy_is_a_model_of_its_own(kind: str, keys: Any, make: Any) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 30)
    whorl.hf.install(model, keys=keys)
    other = make(model)
    before = compute_logits(model, inputs)
    for weight in model.parameters():
        weight.zero_()
    assert torch.equal(before, compute_logits(other, inputs))
    whorl.hf.uninstall(other)
    assert other.config._attn_implementation != "whorl"
    assert float((before - compute_logits(other, inputs)).abs().max()) < 1e-4


@torch.no_grad()
def test_new_weights_are_used() -> None:
    """Also those that replace the tensors of a model, and those written past autograd."""
    model, inputs = build_model("t5"), build_inputs("t5", 30)
    first = {name: weight.clone() for name, weight in model.state_dict().items()}
    other = {name: torch.randn_like(weight) * 0.2 for name, weight in first.items()}
    whorl.hf.install(model)
    before = compute_logits(model, inputs)
    model.load_state_dict(other, assign=True)
    changed = compute_logits(model, inputs)
    assert not torch.equal(before, changed)
    for name, weight in model.named_parameters():
        weight.data.copy_(first[name])
    assert torch.equal(before, compute_logits(model, inputs))


@torch.no_grad()
def test_models_that_share_a_config() -> None:
    """Only one has whorl installed, and the other must not notice."""
    for kind in ("bloom", "llama", "gptj"):
        model, inputs = build_model(kind), build_inputs(kind, 30, "left")
        other = type(model)(model.config).eval()
        other.load_state_dict(model.state_dict())
        assert other.config is model.config
        before = compute_logits(other, inputs)
        whorl.hf.install(model)
        assert torch.equal(before, compute_logits(other, inputs))
        model.config.use_cache = False
        whorl.hf.uninstall(model)
        assert other.config is model.config
        assert model.config.use_cache is False
        assert torch.equal(before, compute_logits(other, inputs))


def test_modules_that_are_replaced_while_installed() -> None:
    """As LoRA wraps linear layers."""

    class Wrapped(nn.Module):
        def __init__(self, old: nn.Module) -> None:
            super().__init__()
            self.old = old

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = 1.5 * self.old(x)
            return y

    for kind in ("deberta-v2", "t5"):
        first, second = build_model(kind), build_model(kind)
        whorl.hf.install(second)
        for model in (first, second):
            for module in list(model.modules()):
                for name in ("query_proj", "key_proj"):
                    if hasattr(module, name):
                        setattr(module, name, Wrapped(getattr(module, name)))
                if hasattr(module, "relative_attention_bias"):
                    module.relative_attention_bias = nn.Embedding(32, 4)
        second.load_state_dict(first.state_dict())
        inputs = build_inputs(kind, 30)
        with torch.no_grad():
            one, other = compute_logits(first, inputs), compute_logits(second, inputs)
        assert float((one - other).abs().max()) < 1e-4 * float(one.abs().max())


@torch.no_grad()
def test_a_saved_model_object_works_in_another_process(tmp_path: Path) -> None:
    code = (
        "import torch; found = torch.load('models.pt', weights_only=False);"
        "torch.save([model(**inputs).logits for model, inputs in found], 'logits.pt')"
    )
    models = [
        (build_model(kind), build_inputs(kind, 20, "left")) for kind in ("bloom", "llama", "t5")
    ]
    for model, _ in models:
        whorl.hf.install(model)
    torch.save(models, tmp_path / "models.pt")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    for (model, inputs), logits in zip(models, torch.load(tmp_path / "logits.pt"), strict=True):
        assert float((logits - model(**inputs).logits).abs().max()) < 1e-4


def test_attention_that_was_replaced_is_not_changed() -> None:
    class Wrapped(BloomAttention):  # type: ignore[misc]
        pass

    model = build_model("bloom")
    for block in model.transformer.h:
        block.self_attention.__class__ = Wrapped
    with pytest.raises(ValueError, match=r"has no attention module of transformers' BLOOM, which"):
        whorl.hf.install(model)


class Unknown(nn.Module):
    """Not a model of transformers."""


def test_what_install_refuses() -> None:
    install = whorl.hf.install
    model = build_model("bloom")
    with pytest.raises(TypeError, match=r"model must be a model of transformers.*got Unknown"):
        install(Unknown())
    tuned = get_peft_model(build_model("llama"), LoraConfig(r=2, target_modules=["q_proj"]))
    for wrapped, said in (
        (tuned, r"got PeftModel\. Install in model\.get_base_model\(\), or before peft"),
        (
            torch.compile(model, backend="eager"),
            r"got OptimizedModule\. Install before torch\.compile, in the",
        ),
        (nn.DataParallel(model), r"got DataParallel\. Install in model\.module\."),
        ("bloom", r"got 'bloom'\.$"),
    ):
        with pytest.raises(TypeError, match=said):
            install(wrapped)
    with pytest.raises(TypeError, match=r"encoding must be an encoding.*got 'alibi'"):
        install(model, "alibi")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"encoding must act in attention; Sinusoidal"):
        install(model, whorl.Sinusoidal(48))
    composed = whorl.RoPE(8) + whorl.ALiBi(4)
    with pytest.raises(ValueError, match=r"must have num_heads=6, as BloomFor.*got 4 in ALiBi\("):
        install(model, composed)
    with pytest.raises(TypeError, match=r"scaling must be a scaling.*got 4\.0"):
        install(model, scaling=4.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"pass encoding or scaling, not both"):
        install(model, whorl.RoPE(8), scaling=whorl.Linear(2.0))
    with pytest.raises(ValueError, match=r"scaling must be None for BLOOM, which does not rotate"):
        install(model, scaling=whorl.Linear(2.0))
    with pytest.raises(ValueError, match=r"precision must be 'float32' for BLOOM, which does not"):
        install(model, precision="float64")
    with pytest.raises(ValueError, match=r"impl must be 'auto' for BLOOM.*got 'native'\. Leave it"):
        install(model, impl="native")
    with pytest.raises(ValueError, match=r"precision must be one of float32, float64; got 'half'"):
        install(model, precision="half")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"impl must be one of auto, native, reference; got 'c'"):
        install(model, impl="c")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be a model that whorl.hf.install changed"):
        whorl.hf.uninstall(model)
    install(model)
    with pytest.raises(ValueError, match=r"has whorl installed already\. Call"):
        install(model)
    for kind in ("bloom", "llama"):
        whole = build_model(kind)
        with (
            install(whole),
            pytest.raises(ValueError, match=r"is a part of \w+LM, which has whorl"),
        ):
            install(whole.base_model)
        with install(whole.base_model):
            pass
    whole = build_model("t5")
    install(whole.encoder)
    with pytest.raises(ValueError, match=r"installed already, in encoder\. Call"):
        install(whole)


def test_models_that_are_refused_stay_as_they_are() -> None:
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    bert = BertModel(BertConfig(num_hidden_layers=1, vocab_size=10, **sizes))
    with pytest.raises(ValueError, match=r"model type 'bert' \(BertModel\) is not supported\. Su"):
        whorl.hf.install(bert)
    assert bert.config._attn_implementation != "whorl"
    model = build_model("bloom")
    model.transformer.h[1].to("meta")
    with pytest.raises(ValueError, match=r"all parameters must be on one device; got cpu, meta"):
        whorl.hf.install(model)
    with torch.device("meta"):
        model = type(build_model("llama"))(build_model("llama").config)
    with pytest.raises(
        ValueError, match=r"LlamaRotaryEmbedding must be loaded for precision, scal"
    ):
        whorl.hf.install(model, precision="float64")
    whorl.hf.uninstall(whorl.hf.install(model).model)
    with torch.device("meta"):
        model = type(build_model("roformer"))(build_model("roformer").config)
    with pytest.raises(
        ValueError, match=r"RoFormerForMaskedLM must be loaded, because its table o"
    ):
        whorl.hf.install(model)
    model = build_model("bloom")
    model.transformer.h[1]._hf_hook = object()
    with pytest.raises(ValueError, match=r"transformer\.h\.1 is dispatched or offloaded by acc"):
        whorl.hf.install(model)
    model = build_model("roformer")
    model.roformer.encoder.embed_positions.weight.data += 0.1
    with pytest.raises(ValueError, match=r"table of positions of RoFormerForMaskedLM must be that"):
        whorl.hf.install(model)
    model = build_model("roformer", is_decoder=True, add_cross_attention=True)
    with pytest.raises(
        ValueError, match=r"attends to another model's tokens \(add_cross_attention"
    ):
        whorl.hf.install(model)
    model = build_model("bloom", slow_but_exact=True, pretraining_tp=2)
    with pytest.raises(ValueError, match=r"slow_but_exact must be False in the config, because"):
        whorl.hf.install(model)
    model = build_model("mpnet", relative_attention_num_buckets=16)
    with pytest.raises(ValueError, match=r"relative_attention_num_buckets must be 32 for MPNet, b"):
        whorl.hf.install(model)
    model = build_model("deberta", talking_head=True)
    with pytest.raises(ValueError, match=r"mixes the scores of all heads \(talking_head\), which"):
        whorl.hf.install(model)
    for options in ({"bi_data": True}, {"attn_type": "uni", "same_length": True}):
        model = build_model("xlnet", **options)
        with pytest.raises(ValueError, match=r"bi_data and same_length must be False in the conf"):
            whorl.hf.install(model)
    model = build_model("bloom")
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    with pytest.raises(ValueError, match=r"output_attentions must not be set in the config, beca"):
        whorl.hf.install(model)
    model = build_model("bloom")
    model.hf_quantizer = object()
    with pytest.raises(ValueError, match=r"BloomForCausalLM has quantised weights"):
        whorl.hf.install(model)
    method = SimpleNamespace(quant_method=QuantizationMethod.GGUF)
    model.hf_quantizer = SimpleNamespace(quantization_config=method)
    whorl.hf.install(model)  # transformers converts the weights of a GGUF file when it reads them


def test_a_failed_change_undoes_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("bloom")
    first, second = (block.self_attention for block in model.transformer.h)

    def fail(self: ClassChange) -> None:
        if self.module is second:
            raise RuntimeError("no")
        apply(self)

    apply = ClassChange.apply
    monkeypatch.setattr(ClassChange, "apply", fail)
    with pytest.raises(RuntimeError, match="no"):
        whorl.hf.install(model)
    assert type(first) is BloomAttention
    assert not hasattr(first, "whorl_encoding")
    assert model.config._attn_implementation != "whorl"


def test_longer_than_stock_can() -> None:
    """MPT of transformers fails past max_seq_len."""
    model = build_model("mpt", max_seq_len=32)
    inputs = build_inputs("mpt", 40)
    with pytest.raises(RuntimeError, match="size of tensor"):
        model(**inputs)
    with whorl.hf.install(model):
        assert model(**inputs).logits.isfinite().all()
