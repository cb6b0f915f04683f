"""RoFormer's checkpoints, judged by transformers: the same outputs and gradients, both ways."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.peers import needs_transformers_5
from whorl.lab.roformer import RoFormer, RoFormerClassifier, RoFormerConfig, RoFormerMaskedLM
from whorl.lab.roformer_names import name_in_transformers
from whorl.lab.roformer_weights import load_roformer, save_roformer

from .exported import silent

pytestmark = needs_transformers_5

SMALL: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 36,
    "max_position_embeddings": 64,
}
EVERYTHING: dict[str, Any] = SMALL | {
    "rotary_value": True,
    "embedding_size": 14,
    "hidden_act": "silu",
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-5,
    "pad_token_id": None,
}
CONFIGS = {
    "plain": SMALL,
    "everything": EVERYTHING,
    "untied": SMALL | {"tie_word_embeddings": False, "hidden_act": "gelu_new"},
}
CLASSES = {
    "none": transformers.RoFormerModel,
    "mlm": transformers.RoFormerForMaskedLM,
    "classification": transformers.RoFormerForSequenceClassification,
}


def build_theirs(head: str, options: Mapping[str, Any], **more: Any) -> Any:
    """A model of transformers whose weights, biases and norms are all random."""
    torch.manual_seed(3)
    with silent():
        model = CLASSES[head](transformers.RoFormerConfig(**options, **more))
    fixed = "embed_positions"
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if fixed not in name:
                weight.add_(0.1 * torch.randn_like(weight))
    return model.eval()


def save_theirs(model: Any, folder: Path) -> Path:
    with silent():
        model.save_pretrained(folder)
    return folder


def make_inputs(types: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, a mask with padding on the right and on the left, and token types."""
    torch.manual_seed(5)
    tokens, kinds = torch.randint(40, (3, 17)), torch.randint(types, (3, 17))
    mask = torch.ones(3, 17, dtype=torch.long)
    mask[1, 9:] = mask[2, :4] = 0
    return tokens, mask, kinds


def read_output(found: Any) -> Tensor:
    output: Tensor = found.last_hidden_state if "last_hidden_state" in found else found.logits
    return output


def compute_difference(mine: nn.Module, theirs: Any, types: int = 2) -> float:
    """The largest difference of outputs, with and without padding and token types."""
    tokens, mask, kinds = make_inputs(types)
    with torch.no_grad():
        plain = mine(tokens) - read_output(theirs(tokens))
        padded = mine(tokens, mask=mask, token_types=kinds) - read_output(
            theirs(tokens, attention_mask=mask, token_type_ids=kinds)
        )
    return max(float(plain.abs().max()), float(padded.abs().max()))


@pytest.mark.parametrize("head", CLASSES)
@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_outputs_equal_those_of_transformers(
    head: str, options: dict[str, Any], tmp_path: Path
) -> None:
    more = {"num_labels": 5} if head == "classification" else {}
    theirs = build_theirs(head, options, **more)
    found = load_roformer(save_theirs(theirs, tmp_path / "theirs"))
    types = options.get("type_vocab_size", 2)
    assert not found.missing
    assert set(found.left_over) <= {"cls.predictions.bias"}  # not used if nothing is tied
    assert compute_difference(found.model, theirs, types) <= 1e-5
    save_roformer(found.model, tmp_path / "mine")
    with silent():
        again, report = CLASSES[head].from_pretrained(tmp_path / "mine", output_loading_info=True)
    assert not any(report.values())
    assert compute_difference(found.model, again, types) <= 1e-5


def test_gradients_equal_those_of_transformers(tmp_path: Path) -> None:
    theirs = build_theirs("mlm", EVERYTHING | {"pad_token_id": 3})
    found = load_roformer(save_theirs(theirs, tmp_path / "theirs"))
    tokens, mask, kinds = make_inputs(3)
    weights = torch.randn(3, 17, 40)
    (found.model(tokens, mask=mask, token_types=kinds) * weights).sum().backward()
    (theirs(tokens, attention_mask=mask, token_type_ids=kinds).logits * weights).sum().backward()
    expected = {name.removeprefix("roformer."): one for name, one in theirs.named_parameters()}
    for name, weight in found.model.named_parameters():
        other = name_in_transformers(found.model, name)
        assert other is not None
        torch.testing.assert_close(weight.grad, expected.pop(other).grad, rtol=1e-4, atol=1e-4)
    assert [name for name, one in expected.items() if one.grad is not None] == []


@pytest.mark.parametrize(("limit", "length"), [(512, 600), (1536, 1600)])
def test_inputs_longer_than_the_table_of_transformers(
    limit: int, length: int, tmp_path: Path
) -> None:
    theirs = build_theirs("none", SMALL | {"max_position_embeddings": limit})
    found = load_roformer(save_theirs(theirs, tmp_path / "theirs"))
    longer = build_theirs("none", SMALL | {"max_position_embeddings": length})
    weights = {name: one for name, one in theirs.state_dict().items() if "positions" not in name}
    longer.load_state_dict(weights, strict=False)
    tokens = torch.randint(40, (1, length))
    with torch.no_grad():
        difference = found.model(tokens) - longer(tokens).last_hidden_state
        with pytest.raises(IndexError):
            theirs(tokens)
    assert float(difference.abs().max()) <= 1e-5


def write_original(folder: Path, model: Any, options: dict[str, Any], **extra: Tensor) -> Path:
    """The checkpoint of a model by BERT's names of variables, with transposed kernels."""
    variables = dict(extra)
    for name, tensor in model.state_dict().items():
        if "embed_positions" in name or "decoder" in name:
            continue
        other = name.replace("roformer.", "bert.").replace("layer.", "layer_")
        other = other.replace("embeddings_project", "encoder.embedding_hidden_mapping_in")
        if "LayerNorm" in other:
            other = other.replace("weight", "gamma").replace("bias", "beta")
        elif other.endswith("_embeddings.weight"):
            other = other.removesuffix(".weight")
        elif other.endswith(".weight"):
            other, tensor = other.removesuffix("weight") + "kernel", tensor.T
        other = other.replace("cls.predictions.bias", "cls.predictions.output_bias")
        variables[other.replace(".", "/")] = tensor.clone().contiguous()
    folder.mkdir()
    save_file(variables, folder / "roformer.safetensors")
    (folder / "bert_config.json").write_text(json.dumps(options))
    return folder


def test_original_names(tmp_path: Path) -> None:
    options = EVERYTHING | {"pad_token_id": 0}
    theirs = build_theirs("mlm", options)
    pooler = {"bert/pooler/dense/kernel": torch.zeros(24, 24)}
    folder = write_original(tmp_path / "original", theirs, options, **pooler)
    found = load_roformer(folder / "roformer.safetensors")
    assert found.naming == "original"
    assert found.left_over == ("bert/pooler/dense/kernel",)
    assert not found.missing
    assert "bert/encoder/layer_1/attention/self/query/kernel" in found.loaded
    assert compute_difference(found.model, theirs, 3) <= 1e-5
    assert found.describe().startswith("43 tensors loaded (original names); 1 left over: 'bert/")


@pytest.mark.parametrize("head", CLASSES)
@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_original_names_are_written_too(head: str, options: dict[str, Any], tmp_path: Path) -> None:
    theirs = build_theirs(head, options)
    model = load_roformer(save_theirs(theirs, tmp_path / "theirs")).model
    folder = save_roformer(model, tmp_path / "original", naming="original")
    assert {path.name for path in folder.iterdir()} == {"bert_config.json", "model.safetensors"}
    found = load_roformer(folder)
    assert (found.naming, found.left_over, found.missing) == ("original", (), ())
    assert compute_difference(found.model, theirs, options.get("type_vocab_size", 2)) <= 1e-5


def test_written_names_are_those_of_the_first_release(tmp_path: Path) -> None:
    options = EVERYTHING | {"pad_token_id": 0}
    theirs = build_theirs("mlm", options)
    first = write_original(tmp_path / "first", theirs, options) / "roformer.safetensors"
    again = save_roformer(load_roformer(first).model, tmp_path / "again", naming="original")
    files = [safe_open(path, "pt") for path in (first, again / "model.safetensors")]
    mine, other = ({n: file.get_tensor(n) for n in file.keys()} for file in files)  # noqa: SIM118
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_a_new_head_and_another_encoding_are_reported(tmp_path: Path) -> None:
    theirs = build_theirs("mlm", SMALL)
    folder = save_theirs(theirs, tmp_path / "theirs")
    found = load_roformer(folder, head="classification", classes=3, encoding="t5", seed=4)
    assert isinstance(found.model, RoFormerClassifier)
    heads = {f"head.{part}.{kind}" for part in ("dense", "out") for kind in ("weight", "bias")}
    assert set(found.missing) == heads | {"encoder.encoding.weight"}
    assert {name.split(".")[0] for name in found.left_over} == {"cls", "roformer"}
    assert "roformer.encoder.embed_positions.weight" in found.left_over
    word = "embeddings.word_embeddings.weight"
    expected = theirs.state_dict()[f"roformer.{word}"]
    assert torch.equal(found.model.encoder.embedding.weight, expected)
    again = load_roformer(folder, head="classification", classes=3, encoding="t5", seed=4)
    pairs = zip(found.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert isinstance(load_roformer(folder, head="none").model, RoFormer)


def test_old_copies_of_tied_weights_are_checked(tmp_path: Path) -> None:
    folder = save_theirs(build_theirs("mlm", SMALL), tmp_path / "theirs")
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    embedding = tensors["roformer.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.weight"] = embedding.clone()
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    save_file(tensors, path)
    found = load_roformer(folder)
    assert (found.left_over, found.missing) == ((), ())
    tensors["cls.predictions.decoder.weight"] += 1
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"decoder.weight' must be the tied weight"):
        load_roformer(folder)
    tensors["cls.predictions.decoder.weight"] = embedding.clone()
    tensors["roformer.encoder.embed_positions.weight"] += 0.1
    save_file(tensors, path)
    with pytest.raises(ValueError, match="must be the sines and cosines of RoPE, because"):
        load_roformer(folder)


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intermediate_size": 35}, r"dense.weight' must have shape \[35, 24\] by config.json, as"),
        ({"vocab_size": 41}, r"word_embeddings.weight' must have shape \[41, 24\]"),
        ({"hidden_act": "gelo"}, "activation 'gelo' is unknown; did you mean 'gelu'"),
        ({"num_attention_heads": 5}, "config.json': RoFormer: width must be a multiple of heads"),
        ({"pad_token_id": 40}, "padding_token must be below vocab = 40; got 40"),
        ({"hidden_size": "x"}, "RoFormer: width must be"),
        ({"hidden_dropout_prob": 2}, "RoFormer: dropout must be a number from 0 to 0.95"),
        ({"model_type": "bert"}, "model_type must be 'roformer'; got 'bert'"),
        ({"is_decoder": True}, "is_decoder must be false: this model is an encoder"),
    ],
)
def test_configs_that_disagree(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = save_theirs(build_theirs("none", SMALL), tmp_path / "theirs")
    change_config(folder, **changes)
    with pytest.raises(ValueError, match=message):
        load_roformer(folder)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    folder = save_theirs(build_theirs("none", SMALL), tmp_path / "theirs")
    with pytest.raises(ValueError, match="head 'mlp' is unknown; did you mean 'mlm'"):
        load_roformer(folder, head="mlp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"classes goes with head='classification'; the head is"):
        load_roformer(folder, classes=3)
    with pytest.raises(ValueError, match="classes must be a whole number of at least 1; got 0"):
        load_roformer(folder, head="classification", classes=0)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="must be a JSON object; got"):
        load_roformer(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"must have config.json or bert_config.json"):
        load_roformer(folder)
    with pytest.raises(ValueError, match="must be a folder or a safetensors file; got"):
        load_roformer(folder / "pytorch_model.bin")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"pickle")
    with pytest.raises(ValueError, match="cannot be read"):
        load_roformer(folder)
    (folder / "more.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="must have one safetensors file; it has 2"):
        load_roformer(folder)


def test_files_of_other_models(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    save_file({"model.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"has no weights of a RoFormer; it has 'model.norm"):
        load_roformer(tmp_path)
    same = {name: torch.ones(3) for name in ("a.LayerNorm.gamma", "a.LayerNorm.weight")}
    save_file(same, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="are the same weight"):
        load_roformer(tmp_path)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"vocab": 9, "width": 8, "heads": 2, "layers": 1, "inner": 8}
    half = {"name": "rope", "layout": "half"}
    for encoding in ("alibi", half, {"name": "rope", "base": 500.0}, "rope+alibi"):
        model = RoFormer(RoFormerConfig(**sizes, encoding=encoding))
        words = re.escape(str(model.encoding)[:5])
        with pytest.raises(ValueError, match=f"encoding .*{words}.* cannot be written as a Ro"):
            save_roformer(model, tmp_path / "out")
    with pytest.raises(TypeError, match=r"must be a RoFormer of whorl.lab; got Linear"):
        save_roformer(nn.Linear(2, 2), tmp_path / "out")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"naming .tensorflow. is unknown\. Known: transformers, original"
    ):
        save_roformer(nn.Linear(2, 2), tmp_path / "out", naming="tensorflow")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
    model = RoFormerMaskedLM(RoFormerConfig(**sizes)).bfloat16()  # type: ignore[assignment]
    save_roformer(model, tmp_path / "out")
    with pytest.raises(ValueError, match="folder must be empty"):
        save_roformer(model, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    assert not load_roformer(tmp_path / "out").missing
