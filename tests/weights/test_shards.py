"""Folders and indexes: what is found in them, and indexes that lie."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.weights.shards import open_weight_files

from .made import llama, save, save_sharded


def test_one_file_of_a_folder(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", llama())
    assert open_weight_files(tmp_path).files[0].path == path
    assert open_weight_files(path).folder == tmp_path
    save(tmp_path / "consolidated.safetensors", llama())
    assert open_weight_files(tmp_path).files[0].path == path, "the usual name wins"


def test_shards(tmp_path: Path) -> None:
    index = save_sharded(tmp_path, llama(), 3)
    for source in (tmp_path, index):
        found = open_weight_files(source)
        assert found.index == index
        assert [header.path.name for header in found.files] == [
            f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)
        ]
        assert {entry.name for _, entry in found.tensors()} == set(llama())


@pytest.mark.parametrize(
    "name",
    [
        "../other/model.safetensors",
        "/etc/passwd.safetensors",
        "..",
        "sub/model.safetensors",
        "sub\\model.safetensors",
        "C:model.safetensors",
        ".hidden.safetensors",
        "model.safetensors\0",
        "model.bin",
        "",
        "x" * 300 + ".safetensors",
    ],
)
def test_path_tricks(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "other").mkdir()
    save(tmp_path / "other" / "model.safetensors", {"a": torch.ones(2)})
    index = tmp_path / "in" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ValueError, match=r"a shard must be the plain name of a .safetensors file"):
        open_weight_files(tmp_path / "in")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("[" * 100_000, r"index.json' is nested more than 4 deep; no index is\."),
        ("\ud800", "index.json' is not text: 'utf-8' codec"),
        ("{", r"index.json' is not JSON: Expecting property name .*\."),
        ("[]", "must hold a weight_map"),
        ("{}", "must hold a weight_map"),
        ('{"weight_map": "x"}', "must hold a weight_map"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "holds the key 'a' twice"),
        ('{"weight_map": {}}', "must hold a weight_map"),
        ('{"weight_map": {"a": 3}}', "must map names of tensors to names of files"),
        ('{"weight_map": {"a": "gone.safetensors"}}', "cannot be read: No such file"),
    ],
    ids=lambda text: text[:40],
)
def test_indexes_that_are_none(tmp_path: Path, document: str, words: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(document.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=words):
        open_weight_files(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"new": "model-00001-of-00002.safetensors"}, "has not the tensor 'new'"),
        ({"model.embed_tokens.weight": None}, "has, against it, the tensor 'model.embed_tokens"),
    ],
)
def test_indexes_that_do_not_fit(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    index = save_sharded(tmp_path, llama(), 2)
    where = {**json.loads(index.read_text())["weight_map"], **change}
    where = {name: file for name, file in where.items() if file is not None}
    index.write_text(json.dumps({"weight_map": where}))
    with pytest.raises(ValueError, match=words):
        open_weight_files(tmp_path)


def test_folders_without_an_answer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no .safetensors file"):
        open_weight_files(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(ValueError, match=r"pytorch_model.bin, a pickle, which runs code"):
        open_weight_files(tmp_path)
    with pytest.raises(ValueError, match="looks like a pickle, which runs code"):
        open_weight_files(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"is a GGUF file. Its layout follows from its architectu"):
        open_weight_files(tmp_path / "x.gguf")
    for name in "abcde":
        save(tmp_path / f"{name}.safetensors", {"a": torch.ones(1)})
    with pytest.raises(ValueError, match=r"several safetensors files and no index: a.safetensors"):
        open_weight_files(tmp_path)


def test_an_index_too_large(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    with open(path, "wb") as file:
        file.truncate(2**27)
    with pytest.raises(ValueError, match="has 134,217,728 bytes, and no index has more than"):
        open_weight_files(path)
