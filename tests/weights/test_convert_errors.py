"""What is refused, and that nothing is left behind."""

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from whorl.weights import Stated, convert, output, parse_pattern, plan

from .made import llama, llama_config, random, raw_file, save, write_config

ATTENTION = "model.layers.0.self_attn"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    save(folder / "model.safetensors", llama(layers=1))
    write_config(folder, **llama_config(layers=1))
    return folder


def add(folder: Path, **tensors: Tensor) -> None:
    more = {f"{ATTENTION}.{name.replace('__', '.')}": one for name, one in tensors.items()}
    save(folder / "model.safetensors", llama(layers=1) | more)


def refused(source: Path, words: str, kind: type[Exception] = ValueError, **options: Any) -> None:
    """Nothing is written, and nothing is left."""
    out = source.parent / "out"
    before = {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()}
    with pytest.raises(kind) as caught:
        convert(source, out, **{"to": "interleaved", **options})
    assert words in str(caught.value)
    assert not out.exists()
    assert [path.name for path in source.parent.iterdir()] == [source.name]
    assert before == {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"q_proj__qweight": torch.zeros(2, 4, dtype=torch.int32)}, "share scales or words"),
        ({"q_proj__weight": torch.zeros(32, 16, dtype=torch.int8)}, "is stored as I8. Quantised"),
        ({"k_proj__weight": torch.zeros(16, 2, dtype=torch.uint8)}, "is stored as U8. Quantised"),
        ({"q_proj__odd": random(4)}, "what 'odd' is of it is not known"),
        ({"q_proj__weight": random(64, 16)}, "must have the channels of 4 heads of 8"),
        ({"k_proj__weight": random(15, 16)}, "must have the channels of heads of 8"),
        ({"q_proj__bias": torch.tensor(1.0)}, "must have the channels of 4 heads of 8"),
        ({"qkv_proj__weight": random(64, 16)}, "in which order is not known for this family"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_tensors(source: Path, tensors: dict[str, Tensor], words: str) -> None:
    add(source, **tensors)
    refused(source, words)


def test_float8_is_quantised(source: Path) -> None:
    add(source, q_proj__weight=torch.zeros(32, 16).to(torch.float8_e4m3fn))
    refused(source, "is stored as F8_E4M3. Quantised weights have rows that share scales")


def test_fused_without_sizes(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    save(folder / "x.safetensors", {"net.mix": random(64, 16)})
    patterns = [parse_pattern("concatenated=mix")]
    refused(
        folder,
        "pass stated=Stated(num_heads=..., num_kv_heads=...)",
        stated=Stated(head_dim=8),
        patterns=patterns,
    )
    stated = Stated(head_dim=8, num_heads=4, num_kv_heads=4)
    refused(
        folder, "must have 96 rows: q of 4 heads, k and v of 4", stated=stated, patterns=patterns
    )


def test_models_whose_rows_are_not_all(source: Path) -> None:
    more = {"model_type": "roformer", "rotary_value": True, "hidden_size": 32}
    write_config(source, **llama_config(layers=1) | more)
    refused(source, "cannot be converted by moving rows of q and k")


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"head_dim": 8, "rotary_dim": 3}, "got rotary_dim 3 from rotary_start 0"),
        ({"head_dim": 8, "rotary_dim": 8, "rotary_start": 2}, "within a head of 8 channels"),
        ({"head_dim": 16}, "must have the channels of 4 heads of 16"),
    ],
)
def test_stated_sizes(source: Path, stated: dict[str, int], words: str) -> None:
    refused(source, words, stated=Stated(**stated))


@pytest.mark.parametrize(
    "name", ["head_dim", "num_heads", "num_kv_heads", "rotary_dim", "rotary_start"]
)
def test_stated_sizes_are_numbers(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an int >= [01]; got -1"):
        Stated(**{name: -1})
    with pytest.raises(ValueError, match=f"{name} must be an int"):
        Stated(**{name: "8"})  # type: ignore[arg-type]


def test_corrupt_files(source: Path) -> None:
    path = source / "model.safetensors"
    raw = path.read_bytes()
    path.write_bytes(raw[:-5])
    refused(source, "it was cut short, so copy or download it again")
    path.write_bytes(raw_file(b"\xff", b""))
    refused(source, "its header is not text")
    path.write_bytes(raw)
    (source / "config.json").write_text("{")
    refused(source, "is not JSON")


def test_the_target_by_its_config(source: Path) -> None:
    refused(source, "config.json stands for the half layout already", to="half")
    convert(source, source.parent / "out", to="half", force=True)


def test_an_unknown_layout(source: Path) -> None:
    refused(source, "to must be 'half' or 'interleaved'; got 'neox'", to="neox")


def test_outputs_that_are_not_free(source: Path, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    cases = {
        "file": "is a file that exists already, and nothing is overwritten",
        "full": "is a folder that exists already",
        "empty": "is a folder that exists already",
        "link": "is a symbolic link that exists already",
        "in": "is a folder that exists already",
        "in/new": "lies in the source, which must stay as it is",
    }
    for name, words in cases.items():
        with pytest.raises(ValueError, match=words):
            convert(source, tmp_path / name, to="interleaved")
    assert (tmp_path / "full" / "x").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ValueError, match="is a folder that exists already"):
        convert(source, ".", to="interleaved")
    assert not list((tmp_path / "empty").iterdir())


def test_a_disk_that_is_too_small(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(source)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    refused(source, "1 kB left; make room, or name a folder on another disk", OSError)


def test_a_disk_that_becomes_full(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    refused(source, "cannot be written: No space left on device; nothing was left there", OSError)


def test_a_limit_of_the_system(source: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        refused(source, "cannot be written: File too large; nothing was left there", OSError)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_folder_that_cannot_be_made(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot be written: Not a directory"):
        convert(source, tmp_path / "file" / "out", to="interleaved")


def test_the_check_finds_a_wrong_byte(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = output.write_file

    def faulty(path: Path, pieces: Any) -> None:
        write(path, pieces)
        if path.suffix == ".safetensors":
            raw = bytearray(path.read_bytes())
            raw[-3] ^= 1
            path.write_bytes(raw)

    module = sys.modules["whorl.weights.convert"]  # its name in the package is the function
    monkeypatch.setattr(module, "write_file", faulty)
    refused(source, "the round trip of model.safetensors differs near byte", check=True)


def test_the_check_finds_a_wrong_order(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that undoes itself, so that the round trip does not notice."""
    monkeypatch.setattr(plan, "reorder_rows", lambda head, to: list(range(head.rows))[::-1])
    refused(source, "attention scores of 'model.layers.0.self_attn' changed by", check=True)
