"""Input that cannot be fine-tuned: clear messages, and nothing half-written."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import IO, Any

import pytest
import safetensors
import torch
import transformers

from tests.extend.weights import SHAPE, save_llama
from tests.peers import needs_transformers_5
from whorl import lab
from whorl.configs import ConfigError
from whorl.finetune import FineTuning, FineTuningProgress, finetune_model, models
from whorl.finetune.folder_model import open_folder
from whorl.finetune.lora import add_lora
from whorl.finetune.models import plan_target
from whorl.finetune.text import encode_text
from whorl.finetune.training_folder import TrainingFolder
from whorl.lab.checkpoint import CheckpointInfo

pytestmark = needs_transformers_5

TINY: dict[str, Any] = {"steps": 2, "batch": 1}


def refuse(model: Path, text: Path | None, out: Path, message: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=message):
        finetune_model(model, [text] if text else [], FineTuning(**{**TINY, **options}), out)
    assert not out.exists()


def test_models(llama: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    start = r"^model must be a folder of transformers or a run of whorl train; "
    refuse(
        tmp_path / "none",
        text,
        out,
        r"^model: there is no file '.*none', and no preset of that name",
    )
    refuse(text, text, out, start + r"'.*text\.txt' is a file\.$")
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    refuse(tmp_path / "a.gguf", text, out, r"^model must be .* is a GGUF file, whose weights")
    folder = tmp_path / "copy"
    shutil.copytree(llama, folder)
    (folder / "model.safetensors").write_bytes(b"nothing")
    refuse(folder, text, out, r"cannot be loaded: ")
    (folder / "model.safetensors").unlink()
    refuse(folder, text, out, r"must have weights in \*\.safetensors files; found: none")
    large = save_llama(tmp_path / "large", vocab_size=300)
    refuse(large, text, out, r"A model of 300 tokens needs tokenizer\.json")


def test_a_model_without_rotation(text: Path, tmp_path: Path, run: Path) -> None:
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=256, n_positions=32)
    config.bos_token_id = config.eos_token_id = None
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    refuse(tmp_path / "gpt2", text, tmp_path / "out", r"so there is nothing to extend\.$")
    plain = lab.Run(run).load_config()
    model = lab.ModelConfig(layers=1, width=16, heads=2, encoding="alibi")
    other = lab.RunConfig(
        model=model, data=plain.data, training=plain.training, evaluation=plain.evaluation
    )
    lab.train(other, tmp_path / "alibi")
    message = r"^the model must have rotary positions; the run '.*alibi' has the encoding 'alibi'"
    refuse(tmp_path / "alibi", text, tmp_path / "out", message)


def test_a_config_with_a_scaling(text: Path, tmp_path: Path) -> None:
    scaling = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    folder = save_llama(tmp_path / "scaled", rope_parameters=scaling)
    message = r"has a scaling already, linear by 2, and claims 64 tokens, .*; pass trained="
    with pytest.raises(ConfigError, match=message):
        finetune_model(folder, [text], FineTuning(**TINY), tmp_path / "out")
    found = finetune_model(folder, [text], FineTuning(**TINY, trained=32), tmp_path / "out")
    assert (found["trained"], found["target"]) == (32, 128)


def test_texts(llama: Path, run: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refuse(llama, None, out, r"^texts must name at least one file of text to train on; got none\.$")
    refuse(llama, tmp_path / "no", out, r"^texts: '.*no' cannot be read: No such file")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    refuse(llama, tmp_path / "latin", out, r"must be UTF-8; byte 3 is not")
    (tmp_path / "short").write_text("a few words, not more than these")
    message = r"^the text has 29 tokens for training, fewer than one sequence of 65, the training"
    refuse(llama, tmp_path / "short", out, message)
    refuse(run, tmp_path / "short", out, r"fewer than one sequence of 65")
    refuse(llama, text, out, r"^length must be at most the target, 64 tokens; got 65\.", length=65)


def test_a_run_of_a_task(tmp_path: Path) -> None:
    config = lab.RunConfig(
        model=lab.ModelConfig(layers=1, width=16, heads=2),
        data=lab.DataConfig(task="copy"),
        training=lab.TrainingConfig(length=16, batch=2, steps=1, warmup=0),
        evaluation=lab.EvaluationConfig(multiples=(1.0,), windows=2),
    )
    lab.train(config, tmp_path / "task")
    message = r"^texts must name files to train on, because '.*task' was trained on the task 'copy'"
    refuse(tmp_path / "task", None, tmp_path / "out", message)


def test_folders_in_the_way(run: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "precious"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(ValueError, match=r"^out must be a new folder, or one that a fine-tun"):
            finetune_model(run, [text], FineTuning(**TINY), out, force=force)
    assert (out / "thesis.txt").read_text() == "mine"
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^the folder '.*training' cannot be created: "):
        finetune_model(run, [text], FineTuning(**TINY), tmp_path / "file" / "out")


def test_a_training_with_other_settings_or_damage(run: Path, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def stop(moment: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune_model(run, [text], FineTuning(**TINY), out, progress=stop)
    refuse(run, text, out, r"has a fine-tuning with other settings: seed is 0 there, 5", seed=5)
    folder = TrainingFolder(out)
    CheckpointInfo(1, 0.0).save(folder.checkpoint_path, torch.nn.Linear(1, 1), _Empty())
    refuse(run, text, out, r"out\.training' is damaged: metrics\.jsonl .* pass force=True")
    assert finetune_model(run, [text], FineTuning(**TINY), out, force=True)["steps"] == 2


def test_force_goes_on_and_replaces_what_is_damaged(run: Path, text: Path, tmp_path: Path) -> None:
    out, settings = tmp_path / "out", FineTuning(**TINY)

    def stop_after_one(moment: FineTuningProgress) -> None:
        if moment.done == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(lab.Interrupted):
        finetune_model(run, [text], settings, out, force=True, progress=stop_after_one)
    seen: list[int] = []
    finetune_model(run, [text], settings, out, force=True, progress=lambda m: seen.append(m.done))
    assert seen == [2]  # the same command goes on
    report = out / "finetune.json"
    report.write_text(report.read_text().replace('"steps": 2', '"steps": 3'))
    message = r"^out '.*out' is damaged: finetune\.json has been changed .*, or pass force=True to"
    with pytest.raises(ValueError, match=message):
        finetune_model(run, [text], settings, out)
    assert finetune_model(run, [text], settings, out, force=True)["steps"] == 2


class _Empty:
    def get_state(self, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        return {}

    def load_state(self, weight: torch.Tensor, state: object) -> None: ...


def test_training_that_fails(
    run: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    message = r"^training diverged at step 1: the loss is nan, .* lower learning_rate, which is"

    def compute_nan(self: object, tokens: Any, positions: object = None) -> torch.Tensor:
        return torch.tensor(float("nan"), requires_grad=True) * 1

    def exhaust(self: object, tokens: Any, positions: object = None) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

    with monkeypatch.context() as patch:
        patch.setattr(models.TunedModel, "compute_loss", compute_nan)
        refuse(run, text, out, message)
    with monkeypatch.context() as patch:
        patch.setattr("whorl.finetune.training._FineTuning._validate", lambda self: {})
        patch.setattr(models.TunedModel, "compute_loss", exhaust)
        refuse(run, text, out, r"^there is too little memory for a step of 1 sequences of 64 tok")

    def fill_disk(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointInfo, "save", fill_disk)
        with pytest.raises(OSError, match=r"checkpoint of step 2 could not be .* \(No space left"):
            finetune_model(run, [text], FineTuning(**TINY), out)
    with monkeypatch.context() as patch:
        patch.setattr("whorl.finetune.run_model.RunModel.write", fill_disk)
        with pytest.raises(OSError, match=r"No space left on device; nothing was left there\."):
            finetune_model(run, [text], FineTuning(**TINY), out)
    assert {path.name for path in tmp_path.iterdir()} == {"text.txt", "out.training"}
    assert finetune_model(run, [text], FineTuning(**TINY), out)["steps"] == 2


@pytest.mark.parametrize(
    ("name", "what"),
    [("prepare", "the settings"), ("open_metrics", r"metrics\.jsonl")],
)
def test_a_full_disk_before_the_first_step(
    run: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    def fill_disk(*args: object) -> None:
        raise OSError(28, "No space left on device")

    message = rf"{what} could not be written to '.*training' \(No space left on device\)\. Free"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingFolder, name, fill_disk)
        with pytest.raises(OSError, match=message):
            finetune_model(run, [text], FineTuning(**TINY), tmp_path / "out")
    assert finetune_model(run, [text], FineTuning(**TINY), tmp_path / "out")["steps"] == 2


def test_a_full_disk_while_it_trains(
    run: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/full takes nothing, and a file that is closed there fails once more."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    out = tmp_path / "out"

    def open_full(self: object, step: int) -> IO[str]:
        return open("/dev/full", "w")  # the training closes it

    with monkeypatch.context() as patch:
        patch.setattr(TrainingFolder, "open_metrics", open_full)
        with pytest.raises(OSError, match=r"the line of step 1 in metrics\.jsonl could not be wri"):
            finetune_model(run, [text], FineTuning(**TINY), out)
    assert finetune_model(run, [text], FineTuning(**TINY), out)["steps"] == 2


def test_a_full_disk_when_transformers_writes(
    llama: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_disk(*args: object, **options: object) -> None:
        raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(transformers.LlamaForCausalLM, "save_pretrained", fill_disk)
        with pytest.raises(OSError, match=r"out' cannot be written: I/O error: No space left on"):
            finetune_model(llama, [text], FineTuning(**TINY), out)
    assert not out.exists()
    assert finetune_model(llama, [text], FineTuning(**TINY), out)["steps"] == 2


def test_a_dtype_of_no_floats(llama: Path, text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(llama, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "int8"}))
    message = r"^dtype in config\.json must be a type of floating-point numbers, .* got 'int8'\.$"
    refuse(folder, text, tmp_path / "out", message)


def test_shifted_attention(llama: Path, text: Path, tmp_path: Path) -> None:
    shape = {**SHAPE, "max_position_embeddings": 16, "sliding_window": 8}
    transformers.MistralForCausalLM(transformers.MistralConfig(**shape)).save_pretrained(
        tmp_path / "mistral"
    )
    message = r"^attention 'shifted-sparse' needs layers without a sliding window, soft caps and"
    options = {"attention": "shifted-sparse", "method": "linear"}
    refuse(tmp_path / "mistral", text, tmp_path / "out", message, **options)
    tuned = open_folder(llama, [text], FineTuning(**TINY))
    tuned.module.set_attn_implementation = _refuse  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"a model whose attention can be replaced; LlamaForCausa"):
        tuned.use_attention(8)


def _refuse(name: str) -> None:
    raise ValueError(name)


def test_lora_without_attention(llama: Path, text: Path) -> None:
    tuned = open_folder(llama, [text], FineTuning(**TINY))
    tuned.module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"^lora needs linear layers in the attention .* has none"):
        add_lora(tuned, 2, 0)


def test_other_parts() -> None:
    with pytest.raises(ValueError, match=r"gives the token 300, and the model has 256; the token"):
        encode_text(["a"], lambda text: [300], (), 256)
    with pytest.raises(ConfigError, match=r"^factor x the trained length must be longer than"):
        plan_target("llama-2-7b", FineTuning(factor=1.0000001))
