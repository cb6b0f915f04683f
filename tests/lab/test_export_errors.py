"""What export refuses, and that it leaves nothing half-written."""

import errno
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.scaling.samples import LONG, SHORT
from whorl.lab.export import export
from whorl.lab.model import Model
from whorl.scaling import (
    NTK,
    DynamicLinear,
    DynamicNTK,
    DynamicYaRN,
    LongRoPE,
    NTKByParts,
    Proportional,
    Scaling,
    YaRN,
)

from .exported import TOLERANCE, built, difference, rope, words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"tokenizer '.*mine.json' cannot be read: No such file or directory\."),
        ("{", r"tokenizer '.*mine.json' is not a tokenizers file; pass a tokenizer.json\."),
        ("[]", "is not a tokenizers file"),
        pytest.param("[" * 100_000, "is not a tokenizers file", id="deep"),
        ('{"model": {"type": "BPE"}}', "is not a tokenizers file"),
        (
            json.dumps(words("a", "b")),
            r"has 2 tokens, and the model has 256; pass the one that the model was trained with\.",
        ),
    ],
)
def test_bad_tokenizers(content: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        export(built(), tmp_path / "out", tokenizer=file, length=64)
    assert not (tmp_path / "out").exists()


def test_other_tokens_than_bytes_need_a_tokenizer(tmp_path: Path) -> None:
    message = r"tokenizer must be given, because the model has 300 tokens, not 256 bytes; pass the"
    with pytest.raises(ValueError, match=message):
        export(built(vocab=300), tmp_path / "out", length=64)


# What Llama cannot express.

LONG_ATTENTION = LongRoPE(SHORT, LONG, 32, attention_factor=1.1, long_attention_factor=1.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "encoder"}, "kind = 'encoder' .* a token does not attend to later ones"),
        ({"qk_norm": "after"}, "qk_norm = 'after' .*: Qwen3 normalizes queries and keys before"),
        ({"attention": "linear"}, "attention = 'linear' .* Llama's attention is softmax"),
        ({"encoding": "alibi"}, r"encoding ALiBi\(4\) .* Llama has no other position encoding"),
        ({"encoding": "learned"}, "Llama has no other position encoding than RoPE"),
        ({"encoding": "nope"}, "Llama has no other position encoding than RoPE"),
        ({"encoding": "xpos"}, "Llama has no other position encoding than RoPE"),
        ({"encoding": "learned+rope"}, r"the encoding Learned\(.* \+ RoPE\(16\)"),
        (
            {"encoding": rope(rotary_dim=8)},
            "rotary_dim=8 .* Llama rotates all 16 channels of a head",
        ),
        ({"encoding": rope(rotary_start=8)}, "rotary_dim=8 .* Llama rotates all 16 channels"),
        (
            {"encoding": rope(inv_freq=[1.0] * 8)},
            "RoPE with inv_freq= .* Llama computes its frequencies from a base",
        ),
        (
            {"encoding": rope(frequencies="trained")},
            "RoPE with frequencies='trained' .* Llama's frequencies are constants",
        ),
        (
            {"encoding": rope(precision="float32")},
            "RoPE with precision='float32' .* no field for it, so it would be lost; leave the",
        ),
    ],
)
def test_what_is_no_llama(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    check_refused(built(**options), message, tmp_path)


@pytest.mark.parametrize(
    "scaling",
    [
        DynamicLinear(32),
        DynamicYaRN(32),
        NTKByParts(4.0, 32),
        YaRN(4.0, 32, ramp="rotations"),
        Proportional(0.5),
        LONG_ATTENTION,
    ],
    ids=lambda scaling: scaling.name,
)
def test_scalings_that_transformers_lacks(scaling: Scaling, tmp_path: Path) -> None:
    message = rf"the scaling {type(scaling).__name__}\(.* has none that gives the same angles"
    check_refused(built(rope(scaling=scaling)), message, tmp_path)


def test_dynamic_on_a_single_pair(tmp_path: Path) -> None:
    model = built(rope(scaling=DynamicNTK(4.0, 64)), heads=32)
    check_refused(model, "DynamicNTK on a head of 2 .* divides by their number - 2", tmp_path)
    raised = built(rope(scaling=NTK(4.0)), heads=32)
    export(raised, tmp_path / "out", length=64)
    assert difference(raised, tmp_path / "out") <= TOLERANCE


def check_refused(model: Model, message: str, tmp_path: Path) -> None:
    whole = rf"{message}.*\. What can be: a decoder with softmax attention and RoPE"
    with pytest.raises(ValueError, match=whole):
        export(model, tmp_path / "refused", length=64)
    assert not (tmp_path / "refused").exists()


def test_dynamic_starts_at_the_trained_length(tmp_path: Path) -> None:
    model = built(rope(scaling=DynamicNTK(4.0, 32)))
    message = (
        r"length must be 32, the original_context of DynamicNTK, .*; got 64. Pass that length, or"
    )
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "out", length=64)


@pytest.mark.parametrize("length", [0, -1, 2.0, True, None])
def test_bad_lengths(length: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^length must be a whole number of at least 1"):
        export(built(), tmp_path / "out", length=length)


def test_only_lab_models(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"model must be a whorl\.lab Model; got Linear\."):
        export(torch.nn.Linear(2, 2), tmp_path / "out", length=64)  # type: ignore[arg-type]


# Whole or not at all.


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    folder = export(built(), tmp_path / "out", length=64)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (folder / "model.safetensors").exists()


def test_what_a_killed_export_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".out.part"
    left.mkdir()
    (left / "model.safetensors").write_text("half")
    export(built(), tmp_path / "out", length=64)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    folder = export(built(), tmp_path / "out", length=64)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    message = r"folder must be empty, .*; '.*out' is not. Choose another, or remove this one first"
    with pytest.raises(ValueError, match=message):
        export(built(tied=True), folder, length=32)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"folder must not be a file; got '.*out'\."):
        export(built(), tmp_path / "out", length=64)


def test_the_current_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"folder must not be the current one, .*; got '\.'\. Choose a new folder inside",
    ):
        export(built(), ".", length=64)


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors"])
def test_a_full_disk_leaves_nothing(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, data: bytes) -> None:
        path.write_bytes(data[: len(data) // 2] if path.name == broken else data)
        if path.name == broken:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys.modules["whorl.lab.files"], "write_file_atomically", write)
    message = r"'.*out' cannot be written: No space left on device; nothing was left there"
    with pytest.raises(OSError, match=message):
        export(built(), tmp_path / "out", length=64)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, data: bytes) -> None:
        path.write_bytes(data)
        if path.name == "model.safetensors":
            raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["whorl.lab.files"], "write_file_atomically", write)
    with pytest.raises(KeyboardInterrupt):
        export(built(), tmp_path / "out", length=64)
    assert list(tmp_path.iterdir()) == []


def test_safetensors_is_named_when_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"whorl\.lab needs safetensors.*whorl\[lab\]"):
        export(built(), tmp_path / "out", length=64)
