"""``load_model``: folders, runs and what is refused, each with the reason."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from tests.peers import needs_transformers_5
from whorl import lab
from whorl.extend.evaluation import ExtensionTest, evaluate_methods, load_model

from .weights import TEXT, save_llama

pytestmark = needs_transformers_5


def test_a_run_of_the_lab(tmp_path: Path) -> None:
    config = lab.RunConfig(
        model=lab.ModelConfig(layers=1, width=16, heads=2),
        training=lab.TrainingConfig(length=32, batch=2, steps=2, warmup=1),
        evaluation=lab.EvaluationConfig(multiples=(1.0, 2.0), windows=2),
    )
    run = lab.train(config, tmp_path / "run")
    loaded = load_model(run.folder)
    assert (loaded.name, loaded.config["max_position_embeddings"]) == ("run", 32)
    tokens = torch.tensor([loaded.encode("whorl")])
    with torch.no_grad():
        own = run.load_model().eval()(tokens)
        torch.testing.assert_close(loaded.model(tokens).logits, own, rtol=1e-4, atol=1e-4)
    test = ExtensionTest(methods=("yarn",), windows=1, scored=8, texts=0)
    found = evaluate_methods(loaded, TEXT, to="2x", test=test)
    assert (found["model"], found["lengths"]) == ("run", [16, 32, 64])


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^model: there is no file 'none', and no preset"):
        load_model("none")
    file = tmp_path / "weights.bin"
    file.write_bytes(b"")
    with pytest.raises(ValueError, match=r"weights.bin' is another file\.$"):
        load_model(file)
    with pytest.raises(ValueError, match=r"must have a config.json, .*; it has none\.$"):
        load_model(tmp_path)


def test_pickles_are_not_read(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"'pytorch_model.bin', a pickle, which is not read\."):
        load_model(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match=r"must have weights in \*.safetensors files; found: none"):
        load_model(folder)


def test_damaged_weights(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"^the model in .*model' cannot be loaded: .*\.$"):
        load_model(folder)


def test_a_model_of_more_tokens_than_bytes_needs_a_tokenizer(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "model", vocab_size=1000)
    with pytest.raises(ValueError, match=r"it has no files\. A model of 1,000 tokens needs tokeni"):
        load_model(folder)


def test_the_digest_follows_the_weights(tmp_path: Path) -> None:
    one = load_model(save_llama(tmp_path / "a"))
    same = load_model(save_llama(tmp_path / "b"))
    other = load_model(save_llama(tmp_path / "c", hidden_size=64))
    assert one.digest == same.digest != other.digest
    assert json.loads((tmp_path / "a" / "config.json").read_text())["model_type"] == "llama"


def test_tensors_that_are_missing_or_not_finite(tmp_path: Path) -> None:
    """transformers would fill missing ones at random, without a word."""
    from safetensors.torch import load_file, save_file

    folder = save_llama(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    some = {name: weight for name, weight in weights.items() if ".1." not in name}
    save_file(some, folder / "model.safetensors", metadata={"format": "pt"})
    message = r"must have every tensor of the model; 9 are missing, such as 'model\.layers\.1\."
    with pytest.raises(ValueError, match=message):
        load_model(folder)
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"must be finite numbers; 'model\.norm\.weight' has oth"):
        load_model(folder)


def test_weights_larger_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_llama(tmp_path / "model")
    monkeypatch.setattr("whorl.extend.evaluation.loading.read_available", lambda: 1000)
    with pytest.raises(ValueError, match=r"^the weights in .*model' have 0 MB, and 0 MB of memory"):
        load_model(folder)
