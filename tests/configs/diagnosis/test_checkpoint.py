"""Stored frequencies: found by name, read alone; pickles and hostile files are refused."""

import json
import re
import struct
from pathlib import Path

import pytest

from tests.configs.diagnosis.examples import write_config, write_safetensors
from tests.weights.test_mixed import CROSSED, HALF, OTHER, folder_of
from whorl.configs import diagnosis
from whorl.configs.diagnosis.checkpoint import PICKLES, read_checkpoint
from whorl.configs.diagnosis.engine import LLAMA

NAME = "model.layers.3.self_attn.rotary_emb.inv_freq"
LADDER = tuple(10_000.0 ** (-i / 64) for i in range(64))


def rules(path: Path) -> list[str]:
    return [f.rule for f in diagnosis.diagnose(path).findings]


def test_only_frequencies_are_read(tmp_path: Path) -> None:
    write_safetensors(
        tmp_path / "a.safetensors", {"q.weight": ("F32", (1.0, 2.0)), NAME: ("F32", LADDER)}
    )
    write_safetensors(tmp_path / "b.safetensors", {"rope.freqs": ("F16", (1.0, 0.5))})
    found = read_checkpoint(tmp_path)
    assert found.files_read == ("a.safetensors", "b.safetensors")
    assert [(s.name, s.dtype, s.file) for s in found.frequencies] == [
        (NAME, "F32", "a.safetensors"),
        ("rope.freqs", "F16", "b.safetensors"),
    ]
    assert found.frequencies[0].values == pytest.approx(LADDER, rel=1e-7)
    assert found.frequencies[1].values == (1.0, 0.5)


def test_a_folder_and_a_file_are_looked_at_alike(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA)
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {NAME: ("BF16", LADDER)})
    assert rules(tmp_path) == rules(file) == ["stored-half"]
    (finding,) = diagnosis.diagnose(tmp_path).findings
    assert finding.where == NAME
    assert (
        "model.safetensors stores it as BF16: angles are wrong by 5 radians at" in finding.message
    )


def test_weights_without_a_config(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {NAME: ("F16", LADDER)})
    found = diagnosis.diagnose(file)
    assert [f.rule for f in found.findings] == ["stored-half"]
    assert found.findings[0].message == "model.safetensors stores it as F16."
    assert found.path is None


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2"])
def test_eight_bits_are_reported_and_no_other_frequencies(tmp_path: Path, dtype: str) -> None:
    write_config(tmp_path, LLAMA)
    write_safetensors(tmp_path / "model.safetensors", {NAME: (dtype, LADDER)})
    (finding,) = diagnosis.diagnose(tmp_path).warnings
    assert finding.rule == "stored-half"
    assert f"stores it as {dtype}: angles are wrong by" in finding.message


def test_eight_bits_of_another_base_differ(tmp_path: Path) -> None:
    write_config(tmp_path, {**LLAMA, "rope_theta": 500000.0})
    write_safetensors(tmp_path / "model.safetensors", {NAME: ("F8_E5M2", LADDER)})
    found = {finding.rule for finding in diagnosis.diagnose(tmp_path).warnings}
    assert found == {"stored-half", "stored-differs"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (LADDER, []),
        ((float("inf"), *LADDER[1:]), ["stored-uninitialised"]),
        ((0.0,) * 64, ["stored-uninitialised"]),
        ((1e30, *LADDER[1:]), ["stored-uninitialised"]),
        (tuple(f / 4 for f in LADDER), ["stored-differs"]),
        (LADDER[:32], ["stored-differs"]),
    ],
)
def test_what_is_stored(tmp_path: Path, values: tuple[float, ...], expected: list[str]) -> None:
    write_config(tmp_path, LLAMA)
    write_safetensors(tmp_path / "model.safetensors", {NAME: ("F32", values)})
    assert rules(tmp_path) == expected


def test_either_list_of_longrope_may_be_stored(tmp_path: Path) -> None:
    config = {
        **LLAMA,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "rope_type": "longrope",
            "original_max_position_embeddings": 4096,
            "short_factor": [1.0] * 64,
            "long_factor": [8.0] * 64,
        },
    }
    write_config(tmp_path, config)
    for factor in (1, 8):
        stored = {NAME: ("F32", tuple(f / factor for f in LADDER))}
        write_safetensors(tmp_path / "model.safetensors", stored)
        assert rules(tmp_path) == ["longrope-switch"]


@pytest.mark.parametrize("ending", PICKLES)
def test_pickles_are_never_opened(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"pytorch_model{ending}"
    file.write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(ValueError, match=r"is a pickle file, which can run any code when it is op"):
        diagnosis.diagnose(file)
    write_config(tmp_path, LLAMA)
    assert rules(tmp_path) == ["weights-unread"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 5) + b"\xff\xfe{}}",
        struct.pack("<Q", 2) + b"{",
    ],
)
def test_hostile_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"^doctor: .*model\.safetensors"):
        diagnosis.diagnose(file)


@pytest.mark.parametrize("by_file", [False, True], ids=["folder", "file"])
def test_weights_that_cannot_be_read_leave_the_config_its_diagnosis(
    tmp_path: Path, by_file: bool
) -> None:
    write_config(tmp_path, {**LLAMA, "rope_scaling": {"factor": 4.0}})
    write_safetensors(tmp_path / "a.safetensors", {NAME: ("BF16", LADDER)})
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"\x99" * 1000)
    found = diagnosis.diagnose(file if by_file else tmp_path)
    expected = {"lone-factor", "weights-unreadable"} | (set() if by_file else {"stored-half"})
    assert {f.rule for f in found.findings} == expected
    (finding,) = [f for f in found.errors if f.rule == "weights-unreadable"]
    assert finding.where == "model.safetensors"
    assert re.match(r".*model\.safetensors' cannot be read: ", finding.message)
    assert found.correct().checkpoint.broken_files == found.checkpoint.broken_files


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (b'{"weight_map": {"a":', r"model\.safetensors\.index\.json'"),
        (b'{"weight_map": {"a": "../../etc/passwd"}}', "names the shard '../../etc/passwd'"),
        (b'{"weight_map": {"a": "b.safetensors"}}', r"b\.safetensors' cannot be read"),
        (b"[" * 100_000, "index"),
        (b" " * (25 << 20), "index"),
    ],
    ids=["cut off", "path", "missing shard", "deep", "large"],
)
def test_an_index_that_cannot_be_read_is_told(tmp_path: Path, index: bytes, words: str) -> None:
    folder = folder_of(tmp_path / "model", [HALF] * 2)
    assert rules(folder) == []
    (folder / "model.safetensors.index.json").write_bytes(index)
    found = diagnosis.diagnose(folder)
    (finding,) = found.findings
    assert (finding.rule, finding.severity) == ("weights-unreadable", "warning")
    assert finding.where == "model.safetensors.index.json"
    assert re.search(words, finding.message)
    assert found.fails(strict=True)


@pytest.mark.parametrize(
    ("index", "broken"),
    [
        (b'{"weight_map": {"a": "../../etc/passwd"}}', True),
        (b"[" * 100_000, True),
        (b'{"weight_map": {"a": "b.safetensors"}}', False),  # the weights may be elsewhere
    ],
    ids=["path", "deep", "missing shard"],
)
def test_an_index_without_weights_is_read(tmp_path: Path, index: bytes, broken: bool) -> None:
    write_config(tmp_path, LLAMA)
    (tmp_path / "model.safetensors.index.json").write_bytes(index)
    assert rules(tmp_path) == ["weights-unreadable"] * broken


def test_several_models_in_a_folder_are_no_fault(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA)
    for name in ("a", "b"):
        write_safetensors(tmp_path / f"{name}.safetensors", {NAME: ("F32", LADDER)})
    assert rules(tmp_path) == []


def test_a_tensor_that_is_none_of_frequencies_is_left_alone(tmp_path: Path) -> None:
    header = {NAME: {"dtype": "BOOL", "shape": [16], "data_offsets": [0, 16]}}
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"\x00" * 16)
    assert read_checkpoint(file).frequencies[0].values is None
    write_config(tmp_path, LLAMA)
    assert rules(tmp_path) == []


def test_integers_are_no_frequencies(tmp_path: Path) -> None:
    header = {NAME: {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}}
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"\x00" * 16)
    write_config(tmp_path, LLAMA)
    (finding,) = diagnosis.diagnose(tmp_path).errors
    assert finding.rule == "stored-uninitialised"
    assert finding.message == "model.safetensors stores it as I64; frequencies are not integers."


GEMMA = {
    **LLAMA,
    "model_type": "gemma3_text",
    "head_dim": 128,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
SLOW = tuple(1_000_000.0 ** (-i / 64) for i in range(64))


@pytest.mark.parametrize(
    ("full", "sliding"),
    [
        ("model.rotary_emb.inv_freq", "model.rotary_emb_local.inv_freq"),
        ("rotary_emb.full_attention_inv_freq", "rotary_emb.sliding_attention_inv_freq"),
    ],
)
def test_frequencies_of_layer_types_must_not_be_swapped(
    tmp_path: Path, full: str, sliding: str
) -> None:
    write_config(tmp_path, GEMMA)
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {full: ("F32", SLOW), sliding: ("F32", LADDER)})
    assert rules(tmp_path) == []
    write_safetensors(file, {full: ("F32", LADDER), sliding: ("F32", SLOW)})
    found = diagnosis.diagnose(tmp_path).warnings
    assert {(f.rule, f.where) for f in found} == {
        ("stored-differs", full),
        ("stored-differs", sliding),
    }


def test_tables_are_told_once(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA)
    tables = {f"layers.{n}.rotary_emb.cos_cached": ("BF16", (1.0,) * 8) for n in range(3)}
    write_safetensors(tmp_path / "model.safetensors", tables)
    (finding,) = diagnosis.diagnose(tmp_path).findings
    assert finding.rule == "stored-table"
    assert finding.message == "model.safetensors stores 3 such tables, as BF16."


@pytest.mark.parametrize(
    ("layouts", "words"),
    [
        ([HALF, OTHER] * 10, "half in layers 0, 2, 4, 6, 8, 10, 12, 14, 16, 18; interleaved in la"),
        (
            [HALF] * 17 + [OTHER] + [HALF] * 12,
            "half in layers 0-16, 18-29; interleaved in layer 17",
        ),
        ([CROSSED] * 2, "the weights have different layouts: q half, k interleaved."),
    ],
    ids=["layers", "one layer", "q and k"],
)
def test_layouts_that_differ_within_a_model(
    tmp_path: Path, layouts: list[tuple[str, str]], words: str
) -> None:
    found = diagnosis.diagnose(folder_of(tmp_path / "model", layouts))
    (finding,) = [finding for finding in found.findings if finding.rule == "layout-mixed"]
    assert finding.severity == "error"
    assert words in finding.message
    assert "layout-disagrees" not in {finding.rule for finding in found.findings}
