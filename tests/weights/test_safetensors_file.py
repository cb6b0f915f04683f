"""The reader of safetensors headers: sound files are read, hostile ones refused."""

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whorl.weights.safetensors_file import read_header, read_range

from .made import raw_file, save

SOUND = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it has 0 bytes, and the length of the header alone takes 8"),
    "short": (b"\x01\x02\x03", "it has 3 bytes"),
    "header past the end": (raw_file(SOUND, bytes(24), 10**6), "cut short, or no safetensors"),
    "header of 2^64 - 1": (raw_file(SOUND, b"", 2**64 - 1), "its header would have 18,446,744"),
    "not JSON": (raw_file(b"{'a'", bytes(8)), "its header is not JSON"),
    "not UTF-8": (raw_file(b'{"\xff": 1}'), "its header is not text: 'utf-8' codec"),
    "a list": (raw_file([1, 2]), "its header must be a JSON object; it is a list"),
    "deep": (raw_file(b"[" * 200_000), "its header is nested more than 4 deep; no header is"),
    "wide": (raw_file(b"[" + b"[],[]," * 200_000), "its header holds more than 500,000 values"),
    "long number": (raw_file(b'{"a": ' + b"9" * 10_000 + b"}"), "holds a number of 10,000 digits"),
    "twice": (raw_file(b'{"a": 1, "b": 2, "a": 3}'), "its header holds the key 'a' twice"),
    "key twice": (raw_file(b'{"a": {"dtype": "F32", "dtype": "F32"}}'), "the key 'dtype' twice"),
    "metadata": (raw_file({"__metadata__": {"a": 1}}), "__metadata__ must map strings to strings"),
    "no entry": (raw_file({"a": 5}), "tensor 'a' must have dtype, shape and data_offsets; got 5"),
    "no dtype": (raw_file({"a": {"shape": [], "data_offsets": [0, 4]}}), "must have dtype"),
    "dtype": (raw_file({"a": entry("F128")}, bytes(4)), "has the unknown dtype 'F128'"),
    "dtype list": (raw_file({"a": entry(["F32"])}, bytes(4)), "has the unknown dtype"),
    "negative size": (raw_file({"a": entry(shape=[-1])}, bytes(4)), "a shape of sizes; got"),
    "float size": (raw_file({"a": entry(shape=[1.0])}, bytes(4)), "a shape of sizes; got"),
    "true size": (raw_file({"a": entry(shape=[True])}, bytes(4)), "a shape of sizes; got"),
    "huge size": (raw_file({"a": entry(shape=[2**64])}, bytes(4)), "a shape of sizes; got"),
    "many axes": (raw_file({"a": entry(shape=[1] * 99)}, bytes(4)), "a shape of sizes; got"),
    "huge product": (raw_file({"a": entry(shape=[2**62] * 30)}, bytes(4)), "its offsets give it 4"),
    "shape and bytes": (raw_file({"a": entry(shape=[2])}, bytes(4)), "takes 8 bytes; its offsets"),
    "backward": (raw_file({"a": entry(offsets=[4, 0])}, bytes(4)), "data_offsets [begin, end]"),
    "three offsets": (raw_file({"a": entry(offsets=[0, 4, 8])}, bytes(4)), "[begin, end]"),
    "overlap": (
        raw_file({"a": entry(), "b": entry(shape=[2], offsets=[0, 8])}, bytes(8)),
        "tensor 'b' overlaps tensor 'a'",
    ),
    "gap": (raw_file({"a": entry(offsets=[4, 8])}, bytes(8)), "'a' leaves a gap after the header"),
    "cut": (raw_file(SOUND, bytes(23)), "was cut short, so copy or download it again"),
    "too long": (raw_file(SOUND, bytes(30)), "6 bytes at its end belong to no tensor"),
}


@pytest.mark.parametrize(("data", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="cannot be read: ") as caught:
        read_header(path)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))


def test_a_header_too_large_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with open(path, "wb") as file:  # sparse: nothing of it is on the disk
        file.write(struct.pack("<Q", 2**30))
        file.truncate(2**31)
    with pytest.raises(ValueError, match="its header has 1,073,741,824 bytes; at most 16,777,216"):
        read_header(path)


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be read: No such file"):
        read_header(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="is not a regular file; name a file"):
        read_header(tmp_path)
    with pytest.raises(ValueError, match="is no path"):
        read_header(Path("a\0b"))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")  # opening it to read would wait for a writer
        with pytest.raises(ValueError, match="is not a regular file"):
            read_header(tmp_path / "pipe")


def test_it_agrees_with_the_package(tmp_path: Path) -> None:
    safe = pytest.importorskip("safetensors.torch")
    tensors = {
        "a": torch.arange(6.0).view(2, 3),
        "b.c": torch.ones(4, dtype=torch.bfloat16),
        "none": torch.zeros(0, 5),
        "scalar": torch.tensor(3, dtype=torch.int64),
    }
    path = tmp_path / "x.safetensors"
    safe.save_file(tensors, path, metadata={"format": "pt"})
    header = read_header(path)
    assert {n: e.shape for n, e in header.entries.items()} == {
        n: tuple(t.shape) for n, t in tensors.items()
    }
    raw = path.read_bytes()
    for name, found in header.entries.items():
        with open(path, "rb") as file:
            data = b"".join(read_range(file, found.begin, found.end))
        assert data == raw[found.begin : found.end]
        assert data == bytes(tensors[name].contiguous().flatten().view(torch.uint8).tolist())


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = save(tmp_path / "x.safetensors", {"a": torch.ones(8)})
    with open(path, "rb") as file, pytest.raises(ValueError, match="became shorter while"):
        list(read_range(file, 0, 10**6))


@settings(max_examples=300)
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(tmp_path_factory: Any, data: st.DataObject) -> None:
    sound = raw_file({**SOUND, "b": entry("U8", [4], [24, 28])}, bytes(28))
    raw = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with suppress(ValueError):
        header = read_header(path)
        assert sum(one.nbytes for one in header.entries.values()) == header.size - header.data_begin
