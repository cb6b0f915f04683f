"""What read_config takes, and what files may do to it: every trouble is a ConfigError, soon."""

import json
import os
import sys
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.effort import bounded
from whorl.configs import ConfigError, read_config
from whorl.configs.source import MOST_BYTES, MOST_DEPTH, MOST_VALUES, load, parse

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
META = {"dim": 64, "n_layers": 2, "n_heads": 4, "multiple_of": 256, "norm_eps": 1e-5}
MISTRAL = {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "head_dim": 16}


@pytest.fixture(autouse=True)
def _without_much_work() -> Any:
    with bounded():
        yield


def refused(x: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(x)


# What is taken


def test_path_text_and_folder_give_the_same(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    for x in (file, str(file), tmp_path, str(tmp_path), LLAMA):
        assert load(x).data == LLAMA
    assert load(tmp_path).path == file
    assert load(LLAMA).path is None


@pytest.mark.parametrize("wrap", [OrderedDict, MappingProxyType, dict])
def test_any_mapping_is_copied(wrap: Any) -> None:
    given = wrap({**LLAMA, "rope_scaling": {"factor": 2.0}})
    data = load(given).data
    data["rope_scaling"]["factor"] = 3.0
    assert given["rope_scaling"]["factor"] == 2.0
    assert type(data) is dict


def test_objects_by_their_to_dict() -> None:
    config = SimpleNamespace(to_dict=lambda: LLAMA)
    assert load(config).data == LLAMA
    assert load(SimpleNamespace(config=config)).data == LLAMA  # a model


def test_keys_that_json_would_turn_into_text() -> None:
    assert load({**LLAMA, "id2label": {0: "a", None: "b"}}).data["id2label"] == {
        "0": "a",
        "None": "b",
    }


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (LLAMA, "transformers"),
        ({}, "transformers"),
        (META, "meta"),
        ({**META, "head_dim": 16, "hidden_dim": 4}, "meta"),
        (MISTRAL, "mistral"),
        ({**MISTRAL, "model_type": "transformer"}, "mistral"),
        ({"model_type": "distilbert", "dim": 64, "n_layers": 2, "hidden_dim": 9}, "transformers"),
        ({**LLAMA, "quantization": {"group_size": 64, "bits": 4}}, "mlx"),
        ({**LLAMA, "rope_traditional": False}, "mlx"),
        ({**LLAMA, "quantization_config": {"bits": 4, "group_size": 64}}, "transformers"),
        ({**MISTRAL, "quantization": {"qformat_weight": "fp8_e4m3"}}, "mistral"),
        ({"general.architecture": "llama"}, "gguf"),
    ],
)
def test_the_dialect_is_told_by_keys(data: dict[str, Any], kind: str, tmp_path: Path) -> None:
    assert load(data).kind == kind
    named_wrongly = tmp_path / "weights.gguf"
    named_wrongly.write_text(json.dumps(data))
    assert load(named_wrongly).kind == kind


# Folders


def write(path: Path, data: dict[str, Any] = LLAMA) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["config.json", "params.json"], "config.json"),
        (["params.json", "model.gguf"], "params.json"),
        (["model.gguf", "mmproj-f16.gguf"], "model.gguf"),
        (["m-00002-of-00002.gguf", "m-00001-of-00002.gguf"], "m-00001-of-00002.gguf"),
        (["original/params.json", "tokenizer.json"], "original/params.json"),
        (["checkpoint-90/config.json", "checkpoint-500/config.json"], "checkpoint-500/config.json"),
        (["snapshots/0abc/config.json"], "snapshots/0abc/config.json"),
    ],
)
def test_the_config_of_a_folder(names: list[str], chosen: str, tmp_path: Path) -> None:
    for name in names:
        write(tmp_path / name)
    assert load(tmp_path).path == tmp_path / chosen


def test_folders_without_a_choice(tmp_path: Path) -> None:
    refused(tmp_path, r"contains no config\.json or params\.json and no \.gguf; pass the path")
    for name in "abcde":
        write(tmp_path / f"{name}.gguf")
    refused(tmp_path, r"holds 5 \.gguf files: a\.gguf, b\.gguf, c\.gguf, d\.gguf, \.\.\.; pass one")


def test_folders_that_lead_back_into_themselves(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1").symlink_to(tmp_path)
    (tmp_path / "original").symlink_to(tmp_path)
    refused(tmp_path, "contains no config")
    (tmp_path / "config.json").symlink_to(tmp_path / "config.json")
    refused(tmp_path, "contains no config")
    refused(tmp_path / "config.json", "cannot read .*symbolic links")


# Files that are not what they seem


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"hello", "is not JSON: Expecting value: line 1"),
        (b'{"a": 1,}', "is not JSON"),
        (b"{'a': 1}", "is not JSON"),
        (b'{"a": 1', "is not JSON"),
        (b"[1, 2]", "must hold a JSON object; got list"),
        (b"null", "must hold a JSON object; got NoneType"),
        (b'"text"', "must hold a JSON object; got str"),
        ('{"a": 1}'.encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (b'{"a": "\xff"}', "is not text"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "holds the key 'c' twice in one object"),
        (b'{"a": ' + b"1" * 5000 + b"}", "holds a number of 5,000 digits"),
        (b"PK\x03\x04....", "is a zip archive, as torch.save writes; pass the config.json"),
        (b"\x80\x02}q\x00.", "is a pickle"),
        (b'\x20\0\0\0\0\0\0\0{"__metadata__":{}}', "is a safetensors file; pass the config.json"),
    ],
)
def test_files_that_are_no_config(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    refused(file, words)


def test_a_byte_order_mark_and_constants_are_let_through(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b'\xef\xbb\xbf{"rope_theta": NaN, "a": -Infinity, "b": 1e999}')
    data = load(file).data
    assert data["rope_theta"] != data["rope_theta"]
    assert data["b"] == -data["a"] == float("inf")


def nested(opening: str, depth: int) -> str:
    closing = {"[": "]", '{"a":': "}"}[opening]
    return '{"a":' + opening * depth + "1" + closing * depth + "}"


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_depth_is_bounded_before_parsing(opening: str) -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)  # the parser's own guard would then let the stack overflow
    try:
        for depth in (MOST_DEPTH, 10**5):
            with pytest.raises(ConfigError, match="x is nested more than 64 deep"):
                parse(nested(opening, depth), "x")
    finally:
        sys.setrecursionlimit(limit)
    assert parse(nested(opening, MOST_DEPTH - 1), "x")


def test_brackets_in_strings_do_not_count() -> None:
    text = json.dumps({"template": '{[\\"' * 2000, "a": [[1]]})
    assert parse(text, "x")["a"] == [[1]]


@pytest.mark.parametrize("piece", ["1,", '"",', "[],", "{},", '{"a":1},'])
def test_too_many_values(piece: str) -> None:
    with pytest.raises(ConfigError, match="x holds more than 200,000 values"):
        parse('{"a":[' + piece * MOST_VALUES + "1]}", "x")


def test_the_largest_text_that_is_read_is_read_quickly() -> None:
    label = "a" * 12 + '\\"'
    text = json.dumps({"a": [label] * (MOST_VALUES - 10)})[: MOST_BYTES - 4]
    text = text[: text.rindex(",")] + "]}"
    assert parse(text, "x")["a"][0] == label


def test_a_hundred_megabytes(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as out:
        out.write(b'{"a": "')
        out.truncate(100 * 2**20)
    refused(file, "has 104,857,600 bytes, and no config has more than 8,388,608")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_and_devices_do_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)
    refused(pipe, "is not a regular file")
    refused(tmp_path, "contains no config")
    for device in ("/dev/zero", "/dev/null"):
        refused(device, "is not a regular file")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads anything")
def test_without_permission(tmp_path: Path) -> None:
    file = write(tmp_path / "config.json")
    file.chmod(0)
    refused(file, "cannot read .*: Permission denied")


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (
            "meta-llama/Llama-3.1-8B",
            r"there is no file .*, and no preset .* There is no such model in the cache",
        ),
        ("", "the name of the model is empty"),
        ("a" * 10_000, "cannot read .*: File name too long"),
        ("a\0b", "is not a path: .*null"),
        ("\ud800", "is not a path: |No such file"),
        ('{"model_type": "llama"}', r"must be a path, not JSON text; pass json\.loads\(text\)"),
        (None, "x must be a path, a dict or a config object of transformers; got NoneType"),
        (b"{}", "got bytes"),
        (3, "got int"),
        ([LLAMA], "got list"),
        (SimpleNamespace, "SimpleNamespace is a class; pass an instance, such as SimpleNamespace"),
        (SimpleNamespace(to_dict=lambda: 3), r"SimpleNamespace\.to_dict\(\) must give a dict"),
        ({(1, 2): 3}, r"the keys of the config must be str; got \(1, 2\)"),
        ({"a": {b"b": 1}}, r"the keys of a must be str; got b'b'"),
        ({"a": [10**301]}, "a is an int of more than 300 digits"),
    ],
)
def test_what_is_not_taken(x: Any, words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    refused(x, words)


def test_dicts_that_hold_themselves() -> None:
    loop: dict[str, Any] = {**LLAMA}
    loop["inside"] = loop
    refused(loop, "the config is nested more than 64 deep")
    wide: Any = [0]
    for _ in range(40):
        wide = [wide, wide]
    refused({"a": wide}, "the config is too large")


def test_what_json_cannot_hold_becomes_numbers_or_words() -> None:
    factors = torch.tensor([1.0, 2.5])
    data = load({"a": factors, "b": torch.tensor(3), "dtype": torch.bfloat16, "c": {1}}).data
    assert data == {"a": [1.0, 2.5], "b": 3, "dtype": "torch.bfloat16", "c": "{1}"}


def test_a_path_of_bytes_and_a_long_one() -> None:
    class Raw(os.PathLike):
        def __fspath__(self) -> bytes:
            return b"config.json"

    refused(Raw(), "a path must be a str; got b'config.json'")
    with pytest.raises(ConfigError) as caught:
        load("a" * 10_000)
    assert len(str(caught.value)) < 200


def test_a_document_is_read_as_it_is() -> None:
    document = load({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4})
    assert load(document) is document
    assert read_config(document) == read_config(document.data)


@pytest.mark.parametrize(
    ("config", "where", "model_type"),
    [
        ({"model_type": "llama"}, "", "llama"),
        ({"model_type": "gemma3", "text_config": {"head_dim": 64}}, "text_config", "gemma3_text"),
        (
            {"model_type": "novel", "llm_config": {"model_type": "llama", "hidden_size": 64}},
            "llm_config",
            "llama",
        ),
    ],
)
def test_a_reading_says_where_it_was_read(config: Any, where: str, model_type: str) -> None:
    part = read_config(config).part
    assert part is not None
    assert (part.where, part.model_type) == (where, model_type)
    assert part.keys == (config[where] if where else config)
