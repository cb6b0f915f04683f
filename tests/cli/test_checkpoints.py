"""``whorl detect`` and ``whorl convert``: what they print, and their exit codes."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.weights.made import llama, llama_config, load, save, write_config
from tests.weights.test_evidence import taught
from tests.weights.test_mixed import CROSSED, HALF, OTHER, folder_of

Whorl = Callable[..., Any]


@pytest.fixture
def untrained(tmp_path: Path) -> Path:
    folder = tmp_path / "untrained"
    folder.mkdir()
    save(folder / "model.safetensors", llama())
    write_config(folder, **llama_config())
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Weights that show the half layout without any training."""
    folder = tmp_path / "model"
    folder.mkdir()
    tensors = {}
    for n in range(3):
        heads = [taught(10 * n + h, 0.8) for h in range(2)]
        q, k = (torch.cat(parts) for parts in zip(*((q[0], k) for q, k in heads), strict=True))
        tensors[f"model.layers.{n}.self_attn.q_proj.weight"] = q
        tensors[f"model.layers.{n}.self_attn.k_proj.weight"] = k
    save(folder / "model.safetensors", tensors)
    write_config(folder, **llama_config(heads=2, key_heads=2, head_dim=32, layers=3))
    return folder


def test_detect(whorl: Whorl, model: Path) -> None:
    done = whorl("detect", str(model))
    assert (done.code, done.err) == (0, "")
    assert "model.layers.2.self_attn" in done.out
    last = next(line for line in done.out.splitlines() if line.startswith("all layers"))
    assert last.split()[4] == "half"
    assert "The config stands for the half layout too." in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_detect_json(whorl: Whorl, model: Path) -> None:
    document = json.loads(whorl("detect", str(model), "--json").out)
    assert document["layout"] == document["config"] == "half"
    assert document["confidence"] >= 0.95
    assert [layer["layer"] for layer in document["layers"]] == [0, 1, 2]


def test_detect_against_the_config(whorl: Whorl, model: Path) -> None:
    config = llama_config(heads=2, key_heads=2, head_dim=32, layers=3, rope_traditional=True)
    write_config(model, **config)
    done = whorl("detect", str(model))
    assert done.code == 0
    words = "The config stands for the interleaved layout: it does not fit these weights."
    assert words in " ".join(done.out.split())


def test_detect_cannot_tell(whorl: Whorl, untrained: Path) -> None:
    done = whorl("detect", str(untrained))
    assert done.code == 3
    assert "can't tell" in done.out
    assert "The weights show neither layout" in done.out


def test_detect_mixed(whorl: Whorl, tmp_path: Path) -> None:
    """Exit code 3, the layers by name, and convert refuses with the same words."""
    source = folder_of(tmp_path / "mixed", [OTHER, HALF] * 3)
    done = whorl("detect", str(source))
    assert (done.code, done.err) == (3, "")
    words = " ".join(done.out.split())
    assert "Mixed: half in layers 1, 3, 5; interleaved in layers 0, 2, 4. No program can" in words
    last = next(line for line in done.out.splitlines() if line.startswith("all layers"))
    assert last.split()[4] == "mixed"
    assert max(map(len, done.out.splitlines())) <= 80
    document = json.loads(whorl("detect", str(source), "--json").out)
    assert (document["layout"], document["mixed"]) == (None, True)
    out = tmp_path / "out"
    done = whorl("convert", str(source), str(out), "--to", "half", "--check")
    assert (done.code, done.out) == (2, "")
    assert "interleaved in layers 0, 2, 4" in " ".join(done.err.split())
    assert not out.exists()


def test_detect_crossed(whorl: Whorl, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "crossed", [CROSSED] * 2)
    done = whorl("detect", str(source))
    assert (done.code, done.err) == (3, "")
    words = " ".join(done.out.split())
    assert "q and k have different layouts: q half, k interleaved (+" in words
    assert "one of them was converted without the other." in words
    assert "q not as k" in done.out
    document = json.loads(whorl("detect", str(source), "--json").out)
    assert document["crossed"] == "q half, k interleaved"
    out = str(tmp_path / "out")
    options = ["--to", "half", "--check", "--force", "--pattern", "leave=q_proj"]
    done = whorl("convert", str(source), out, *options)
    assert done.code == 0
    assert "evidence its weights show half (9" in " ".join(done.out.split())


@pytest.mark.parametrize("to", ["half", "interleaved"])
@pytest.mark.parametrize(
    ("layouts", "force"),
    [
        ([OTHER, HALF] * 3, False),
        ([CROSSED] * 2, True),
        ([HALF, CROSSED, HALF, OTHER], True),
        ([HALF, ("interleaved", "half"), CROSSED], True),
    ],
    ids=["layers", "q and k", "one layer", "both ways"],
)
def test_the_command_that_convert_advises_works(
    whorl: Whorl, tmp_path: Path, layouts: Any, force: bool, to: str
) -> None:
    """Word for word, in a folder whose name needs quotes, with the options that were given."""
    source = folder_of(tmp_path / "my model", layouts)
    options = ["--to", to, "--head-dim", "32", "--pattern", "leave=absent"]
    done = whorl("convert", str(source), str(tmp_path / "out"), *options)
    assert done.code == 2
    (line,) = [line for line in done.err.splitlines() if line.startswith("  whorl convert ")]
    name, *words = shlex.split(line)
    assert name == "whorl"
    assert ("--force" in words) == force
    assert words[words.index("--head-dim") + 1] == "32"
    assert "leave=absent" in words
    done = whorl(*words)
    assert (done.code, done.err) == (0, "")
    assert json.loads(whorl("detect", str(tmp_path / "out"), "--json").out)["layout"] == to


def test_no_command_where_q_and_k_are_one_tensor(whorl: Whorl, tmp_path: Path) -> None:
    given = load(folder_of(tmp_path / "apart", [CROSSED] * 2) / "model.safetensors")
    fused = {}
    for layer in range(2):
        q, k = (given[f"model.layers.{layer}.self_attn.{n}_proj.weight"] for n in "qk")
        fused[f"model.layers.{layer}.self_attn.qkv_proj.weight"] = torch.cat([q, k, k])
    folder = tmp_path / "fused"
    folder.mkdir()
    save(folder / "model.safetensors", fused)
    (folder / "config.json").write_bytes((tmp_path / "apart" / "config.json").read_bytes())
    options = ["--to", "half", "--pattern", "concatenated=qkv_proj"]
    done = whorl("convert", str(folder), str(tmp_path / "out"), *options)
    assert done.code == 2
    assert "q and k lie side by side in one tensor, so that no command can be given" in done.err


def test_detect_refuses(whorl: Whorl, tmp_path: Path) -> None:
    done = whorl("detect", str(tmp_path / "none"))
    assert (done.code, done.out) == (2, "")
    assert "there is no file" in done.err


def test_convert(whorl: Whorl, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = whorl("convert", str(model), str(out), "--to", "interleaved", "--check")
    assert (done.code, done.err) == (0, "")
    words = " ".join(done.out.split())
    assert "layout interleaved; it was half (" in words
    assert "moved rows of 6 tensors" in words
    assert "back again bit for bit; scores of 6 heads equal within" in words
    assert "evidence its weights show interleaved (9" in words
    assert json.loads(whorl("detect", str(out), "--json").out)["layout"] == "interleaved"
    again = whorl("convert", str(out), str(tmp_path / "again"), "--to", "interleaved")
    assert again.code == 2
    assert "was converted to the interleaved layout before" in again.err
    assert not (tmp_path / "again").exists()


def test_convert_json_and_sizes(whorl: Whorl, tmp_path: Path) -> None:
    source = save(tmp_path / "x.safetensors", {f"net.{p}.w": torch.randn(16, 4) for p in "ab"})
    options = ["--to", "interleaved", "--json", "--head-dim", "8", "--rotary-dim", "4"]
    options += ["--rotary-start", "2", "--pattern", r"q=\.a\.", "--pattern", r"k=\.b\."]
    done = whorl("convert", str(source), str(tmp_path / "out"), *options)
    assert done.code == 0
    document = json.loads(done.out)
    assert document["tensors"] == ["net.a.w", "net.b.w"]
    assert document["found"]["layout"] is None
    assert document["check"] is None
    before, after = load(source), load(tmp_path / "out" / "x.safetensors")
    order = [0, 1, 2, 4, 3, 5, 6, 7]
    assert torch.equal(after["net.a.w"][:8], before["net.a.w"][:8][order])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "neox"], "'neox'"),
        (["--to", "interleaved", "--pattern", "q"], "must be ROLE=REGEX"),
        (["--to", "interleaved", "--head-dim", "-3"], "--head-dim must be an int >= 1; got -3"),
        ([], "--to"),
    ],
)
def test_convert_refuses(
    whorl: Whorl, untrained: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    done = whorl("convert", str(untrained), str(tmp_path / "out"), *options)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert not (tmp_path / "out").exists()


def test_detect_says_what_is_not_finite(whorl: Whorl, untrained: Path) -> None:
    tensors = llama()
    tensors["model.layers.1.self_attn.q_proj.weight"][2, 3] = float("nan")
    save(untrained / "model.safetensors", tensors)
    words = " ".join(whorl("detect", str(untrained)).out.split())
    assert "NaN or infinite: 1, in model.layers.1.self_attn; their heads were left out" in words
    assert json.loads(whorl("detect", str(untrained), "--json").out)["not_finite"] == 1


@pytest.mark.parametrize("command", ["detect", "convert"])
def test_help_names_every_role(whorl: Whorl, command: str) -> None:
    words = whorl(command, "--help").out
    for role in ("concatenated", "grouped", "codegen", "leave"):
        assert role in words
