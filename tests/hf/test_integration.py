"""What people do with models of transformers, done with whorl installed."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    pipeline,
)

import whorl

from .models import (
    add_labels,
    build_inputs,
    build_model,
    compare,
    compute_logits,
    list_gradients,
)

pytestmark = pytest.mark.slow

KINDS = ["bloom", "t5", "llama"]
every_kind = pytest.mark.parametrize("kind", KINDS)


# torch itself makes such an object when it traces BLOOM's GELU.
@pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning")
@every_kind
def test_compiled_models(kind: str) -> None:
    """One layer, because tracing takes long; "eager" runs the graphs as they were traced."""
    layers = {"bloom": "n_layer", "t5": "num_layers", "llama": "num_hidden_layers"}[kind]
    model, inputs = build_model(kind, **{layers: 1}), add_labels(build_inputs(kind, 24, "left"))
    model(**inputs).loss.backward()
    before = list_gradients(model)
    model.zero_grad()
    with whorl.hf.install(model):
        torch.compile(model, backend="eager")(**inputs).loss.backward()
    after = list_gradients(model)
    assert before.keys() == after.keys()
    for name, gradient in before.items():
        compare(gradient, after[name])


@pytest.mark.parametrize("options", [{}, {"keys": "unrotated"}], ids=str)
@torch.no_grad()
def test_exported_models(options: Any) -> None:
    model = build_model("llama", num_hidden_layers=1)
    inputs: dict[str, Any] = {**build_inputs("llama", 16, "left"), "use_cache": False}
    before = compute_logits(model, inputs)
    with whorl.hf.install(model, **options):
        program = torch.export.export(model, (), inputs, strict=False)
    compare(before, program.module()(**inputs).logits[inputs["attention_mask"].bool()])


@pytest.mark.parametrize("order", ["install first", "peft first"])
@every_kind
def test_lora(kind: str, order: str) -> None:
    """The same losses and adapters, and the adapters merge into a model that is restored."""
    targets = {"bloom": ["query_key_value"], "t5": ["q", "v"], "llama": ["q_proj", "v_proj"]}
    inputs = add_labels(build_inputs(kind, 24, "left"))
    losses, adapters = [], []
    for installed in (False, True):
        model = build_model(kind)
        if installed and order == "install first":
            whorl.hf.install(model)
        torch.manual_seed(0)
        tuned = get_peft_model(model, LoraConfig(r=2, target_modules=targets[kind]))
        if installed and order == "peft first":
            whorl.hf.install(tuned.get_base_model())
        step = torch.optim.SGD([p for p in tuned.parameters() if p.requires_grad], lr=0.1)
        for _ in range(3):
            loss = tuned(**inputs).loss
            step.zero_grad()
            loss.backward()
            step.step()
            losses.append(loss.detach())
        adapters.append({n: p for n, p in tuned.named_parameters() if p.requires_grad})
        merged = tuned.merge_and_unload().eval()
        if installed:
            with torch.no_grad():
                after = compute_logits(merged, inputs)
                whorl.hf.uninstall(merged)
                compare(compute_logits(merged, inputs), after)
    compare(torch.stack(losses[:3]), torch.stack(losses[3:]), 1e-5)
    assert losses[2] < losses[0]
    assert adapters[0].keys() == adapters[1].keys()
    for name, weight in adapters[0].items():
        compare(weight, adapters[1][name])


class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Rows of tokens as a dataset."""

    def __init__(self, batch: dict[str, Tensor]) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: rows[index] for name, rows in self.batch.items()}


@every_kind
def test_trainer(kind: str, tmp_path: Path) -> None:
    """The same losses, and checkpoints of the same names."""
    rows = Rows(add_labels(build_inputs(kind, 24, "right")))
    found = []
    for name in ("stock", "whorl"):
        model = build_model(kind, std=0.05)
        if name == "whorl":
            whorl.hf.install(model)
        options: dict[str, Any] = {"max_steps": 3, "save_steps": 3, "logging_steps": 1, "seed": 0}
        options |= {"per_device_train_batch_size": 2, "disable_tqdm": True, "report_to": "none"}
        options |= {"use_cpu": True, "dataloader_pin_memory": False, "learning_rate": 1e-3}
        arguments = TrainingArguments(str(tmp_path / name), **options)
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.train()
        losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
        files = sorted(path.name for path in (tmp_path / name / "checkpoint-3").iterdir())
        found.append((losses, files))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-4)
    assert len(found[0][0]) == 3
    assert found[1][1] == found[0][1]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of the words w0 to w119."""
    vocab = {f"w{n}": n for n in range(120)}
    core = Tokenizer(models.WordLevel(vocab, unk_token="w1"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="w0", unk_token="w1", padding_side="left"
    )


def test_a_pipeline() -> None:
    for kind in ("bloom", "llama"):
        model = build_model(kind)
        model.generation_config.eos_token_id = None
        model.generation_config.pad_token_id = 0
        write = pipeline("text-generation", model=model, tokenizer=build_tokenizer())
        texts = ["w3 w4 w5 w6", "w7"]
        settings = {"do_sample": False, "max_new_tokens": 6, "batch_size": 2}
        before = write(texts, **settings)
        with whorl.hf.install(model):
            assert write(texts, **settings) == before


def build_head(kind: str, loader: Any) -> PreTrainedModel:
    """A small model with another head, and random matrices."""
    model: PreTrainedModel = loader.from_config(build_model(kind, pad_token_id=0).config).eval()
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.2, generator=source)
    return model


@pytest.mark.parametrize("kind", ["bloom", "t5", "deberta-v2"])
@torch.no_grad()
def test_other_heads_and_tuples(kind: str) -> None:
    inputs = build_inputs(kind, 40, "right")
    inputs.pop("decoder_input_ids", None)
    inputs["input_ids"][:, 35] = 1  # T5 classifies by the end of the text, one in each row
    for loader in (AutoModelForSequenceClassification, AutoModelForQuestionAnswering):
        model = build_head(kind, loader)
        before = model(**inputs, return_dict=False)
        with whorl.hf.install(model):
            after = model(**inputs, return_dict=False)
        assert len(before) == len(after)
        compare(before[0][1], after[0][1])
        if loader is AutoModelForSequenceClassification:
            compare(before[0], after[0])


@every_kind
@torch.no_grad()
def test_embeddings_of_another_size(kind: str) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 20)
    whorl.hf.install(model)
    model.resize_token_embeddings(130, mean_resizing=False)
    assert model.config.vocab_size == 130
    after = compute_logits(model, inputs)
    assert after.shape[-1] == 130
    whorl.hf.uninstall(model)
    assert model.config.vocab_size == 130
    compare(compute_logits(model, inputs), after)


@torch.no_grad()
def test_outputs_of_the_encoder_are_given() -> None:
    model, inputs = build_model("t5"), build_inputs("t5", 30, "left")
    before = model(**inputs).logits
    with whorl.hf.install(model):
        tokens = inputs.pop("input_ids")
        found = model.get_encoder()(tokens, inputs["attention_mask"])
        for outputs in (found, (found.last_hidden_state,)):
            compare(before, model(encoder_outputs=outputs, **inputs).logits)


@pytest.mark.parametrize("kind", ["mpt", "gptj"])
@torch.no_grad()
def test_threads_that_want_weights_and_do_not(kind: str) -> None:
    """While one call that returns weights is on its way, another that does not passes it."""
    model, inputs = build_model(kind), build_inputs(kind, 10)
    whorl.hf.install(model)
    first = next(m for n, m in model.named_modules() if n.endswith(("Wqkv", "q_proj")))
    waiting, passed, found = threading.Event(), threading.Event(), []

    def wait(*_: object) -> None:
        if threading.current_thread() is slow and not waiting.is_set():
            waiting.set()
            assert passed.wait(60)

    def run() -> None:
        with torch.no_grad():
            found.append(model(**inputs, output_attentions=True).attentions)

    first.register_forward_pre_hook(wait)
    slow = threading.Thread(target=run)
    slow.start()
    assert waiting.wait(60)
    assert model(**inputs).attentions is None
    passed.set()
    slow.join()
    assert [tuple(weights.shape[-2:]) for weights in found[0]] == [(10, 10)] * 2
