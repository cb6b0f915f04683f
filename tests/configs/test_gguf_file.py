"""The header of a GGUF file: as ``gguf`` writes and reads it, and when it lies."""

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.effort import bounded, bytes_read
from whorl.configs import ConfigError, read_config
from whorl.configs.source import load

from .gguf_files import gguf_bytes, metadata, text

HALF_PAIRS = 32  # of a head with 64 channels


def written(path: Path, pairs: dict[str, Any], tensors: dict[str, Any] | None = None) -> Path:
    """A file as the package ``gguf`` writes it."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, pairs["general.architecture"])
    for key, value in pairs.items():
        if key != "general.architecture":
            kind = gguf.GGUFValueType.get_type(value)
            writer.add_key_value(key, value, gguf.GGUFValueType.UINT32 if kind == 5 else kind)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


PAIRS: dict[str, Any] = {
    **metadata("llama", rope__freq_base=500000.0, rope__dimension_count=64),
    "tokenizer.ggml.tokens": [f"token {n}" for n in range(5000)],
    "tokenizer.ggml.scores": [0.5] * 5000,
    "tokenizer.chat_template": "{% for m in messages %}" * 1000,
    "llama.some_flag": True,
    "llama.expert_counts": [1, 2, 3],
}


def test_the_same_as_the_package_reads(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    factors = numpy.linspace(1, 8, HALF_PAIRS).astype(numpy.float32)
    weights = numpy.zeros((64, 64), dtype=numpy.float16)
    tensors = {"blk.0.attn_q.weight": weights, "rope_freqs.weight": factors}
    path = written(tmp_path / "model.bin", PAIRS, tensors)
    document = load(path)
    theirs = gguf.GGUFReader(path)
    for key, value in document.data.items():
        assert theirs.fields[key].contents() == value, key
    assert not any(key.startswith("tokenizer") for key in document.data)
    rope_freqs = next(t for t in theirs.tensors if t.name == "rope_freqs.weight")
    assert document.tensors == {"rope_freqs.weight": tuple(rope_freqs.data.tolist())}


def test_own_writer_agrees_with_the_package(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    factors = [1.0, 2.5, 8.0]
    path = written(
        tmp_path / "a.gguf", PAIRS, {"rope_freqs.weight": numpy.float32(numpy.array(factors))}
    )
    own = tmp_path / "b.gguf"
    own.write_bytes(gguf_bytes(PAIRS, {"rope_freqs.weight": factors}))
    assert load(path).data == load(own).data
    assert load(path).tensors == load(own).tensors


@pytest.mark.parametrize("kind", ["float16", "float64", "bfloat16"])
def test_tensor_types(kind: str, tmp_path: Path) -> None:
    number, form = {"float16": (1, "e"), "float64": (28, "d"), "bfloat16": (30, "H")}[kind]
    values = [1.0, 1.5, 8.0]
    raw = [struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values]
    data = struct.pack(f"<3{form}", *(raw if kind == "bfloat16" else values))
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    head += text("rope_freqs.weight") + struct.pack("<IQIQ", 1, 3, number, 0)
    path = tmp_path / "x.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    assert load(path).tensors == {"rope_freqs.weight": tuple(values)}


def test_the_other_byte_order(tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack(">IQQ", 3, 0, 1)
    head += struct.pack(">Q", 20) + b"general.architecture" + struct.pack(">IQ", 8, 5) + b"llama"
    path = tmp_path / "x.gguf"
    path.write_bytes(head)
    assert load(path).data == {"GGUF.version": 3, "general.architecture": "llama"}


def test_gigabytes_and_a_large_vocabulary_take_little_work(tmp_path: Path) -> None:
    pairs = {
        "general.architecture": "llama",
        "tokenizer.ggml.tokens": [f"token{n}" for n in range(262_144)],
        "tokenizer.ggml.merges": [f"a{n} b{n}" for n in range(500_000)],
        **metadata("llama"),
    }
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes(pairs, {"rope_freqs.weight": [1.0] * HALF_PAIRS}))
    with path.open("r+b") as file:
        file.truncate(20 * 2**30)  # a hole: it takes no space
    before = bytes_read()
    with bounded():
        assert read_config(path).model_type == "llama"
    assert bytes_read() - before < 2**26  # of 20 GiB


# Headers that lie


def head(version: int = 3, tensors: int = 0, pairs: int = 0, body: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + body


def pair(key: str, *numbers: Any, form: str) -> bytes:
    return head(pairs=1, body=text(key) + struct.pack("<" + form, *numbers))


def tensor(
    *, dims: str = "IQ", shape: tuple[int, ...] = (1, 32), kind: int = 0, at: int = 0
) -> bytes:
    info = (
        text("rope_freqs.weight") + struct.pack("<" + dims, *shape) + struct.pack("<IQ", kind, at)
    )
    whole = head(tensors=1, body=info)
    return whole + bytes(-len(whole) % 32) + bytes(128)


HUGE = 2**63
LIES = {
    "only the magic": (b"GGUF", "ends inside 'the version'"),
    "no counts": (b"GGUF\3\0\0\0\1", "ends inside 'the number of tensors'"),
    "version 1": (head(1), "has version 1; 2 and 3 are read"),
    "version 99": (head(99), "has version 99"),
    "huge tensors": (head(tensors=HUGE), "claims 9,223,372,036,854,775,808 tensors; no file"),
    "huge pairs": (head(pairs=HUGE), "claims 9,223,372,036,854,775,808 pairs; no file"),
    "pairs missing": (head(pairs=3), "ends inside 'a key'"),
    "huge key": (head(pairs=1, body=struct.pack("<Q", HUGE)), "gives a key a length of"),
    "key not text": (head(pairs=1, body=struct.pack("<Q", 1) + b"\xff"), "a key that is not text"),
    "unknown type": (pair("a", 77, form="I"), "gives 'a' the type 77, which does not exist"),
    "huge text": (pair("a", 8, HUGE, form="IQ"), "ends inside 'a', which claims 9,223,"),
    "huge array": (pair("a", 9, 4, HUGE, form="IIQ"), "ends inside 'a', which claims 36,893,"),
    "huge strings": (pair("a", 9, 8, HUGE, form="IIQ"), "ends inside 'a', which claims 73,786,"),
    "arrays in arrays": (pair("a", 9, 9, 1, form="IIQ"), "makes 'a' an array of type 9"),
    "array of nothing": (pair("a", 9, 99, 1, form="IIQ"), "makes 'a' an array of type 99"),
    "string in array": (
        pair("a", 9, 8, 2, HUGE, 0, form="IIQQQ"),
        "ends inside 'a', which claims more bytes",
    ),
    "too many axes": (tensor(dims="I", shape=(9,)), "gives 'rope_freqs.weight' 9 axes; 4 is"),
    "huge tensor": (tensor(shape=(1, HUGE)), "as type 0 with 9223372036854775808 entries"),
    "matrix": (tensor(dims="IQQ", shape=(2, 8, 4)), "as type 0 with 0 entries"),
    "quantised": (tensor(kind=2), "stores rope_freqs.weight as type 2 with 32 entries"),
    "far away": (tensor(at=2**62), "ends before the tensor rope_freqs.weight"),
    "one past the end": (tensor(at=1), "ends before the tensor rope_freqs.weight"),
    "the same tensor twice": (
        head(
            tensors=2,
            body=2 * (text("rope_freqs.weight") + struct.pack("<IQIQ", 1, 32, 0, 0)),
        ),
        "holds the tensor rope_freqs.weight twice",
    ),
    "the same key twice": (
        head(pairs=2, body=2 * (text("a") + struct.pack("<II", 4, 1))),
        "holds the key 'a' twice",
    ),
    "alignment 0": (
        gguf_bytes({"general.alignment": 0}, {"rope_freqs.weight": [1.0]}),
        "has general.alignment 0, not a power of two",
    ),
    "alignment 3": (
        gguf_bytes({"general.alignment": 3}, {"rope_freqs.weight": [1.0]}),
        "has general.alignment 3, not a power of two",
    ),
    "alignment as text": (
        gguf_bytes({"general.alignment": "32"}, {"rope_freqs.weight": [1.0]}),
        "has general.alignment '32', not a power of two",
    ),
    "no architecture": (gguf_bytes({"a": 1}), "general.architecture must name an architecture"),
    "a later part": (
        gguf_bytes({"split.no": 1}),
        "is a later part of a split model; pass the first",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_lies(name: str, tmp_path: Path) -> None:
    content, words = LIES[name]
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with bounded(), pytest.raises(ConfigError, match=words):
        read_config(path)


@pytest.mark.parametrize("inner", [8, 4])
def test_claims_that_a_large_file_could_hold(inner: int, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(pair("a", 9, inner, 10**9, form="IIQ"))
    with path.open("r+b") as file:
        file.truncate(16 * 2**30)
    before = bytes_read()
    with bounded():
        if inner == 8:
            with pytest.raises(ConfigError, match="holds more than 1,200,000 strings"):
                load(path)
        else:
            assert load(path).data == {"GGUF.version": 3}
    assert bytes_read() - before < 2**26  # of 16 GiB


def test_every_truncation_is_refused_or_read(tmp_path: Path) -> None:
    whole = gguf_bytes(metadata("llama"), {"rope_freqs.weight": [1.0] * HALF_PAIRS})
    path = tmp_path / "x.gguf"
    for length in range(4, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ConfigError):
            read_config(path)
    path.write_bytes(whole)
    assert read_config(path).num_layers == 4
