"""``whorl inspect``: pages, documents, pictures, errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whorl.configs import presets
from whorl.configs.inspection import inspect


def test_a_preset(whorl: Callable[..., Any]) -> None:
    done = whorl("inspect", "llama-3.1-8b")
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    for words in ("llama: 32 layers rotate all 128 channels", "interpolated", "vLLM 0.32.0"):
        assert words in done.out


def test_json_is_one_document(whorl: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(presets.load("qwen3-8b-yarn")))
    options = ["--length", "200000", "--extend", "yarn", "--factor", "8", "--json"]
    done = whorl("inspect", str(file), *options)
    assert (done.code, done.err) == (0, "")
    found = inspect(file, length=200_000, extend="yarn", factor=8.0)
    assert json.loads(done.out) == json.loads(json.dumps(found.to_dict()))


@pytest.mark.parametrize("suffix", ["png", "json"])
def test_a_picture(whorl: Callable[..., Any], tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    file = tmp_path / f"waves.{suffix}"
    done = whorl("inspect", "gemma-3-4b", "--plot", str(file), "--layer-type", "full_attention")
    assert (done.code, done.err) == (0, "")
    assert file.stat().st_size > 1000


def test_parity_and_trained(whorl: Callable[..., Any]) -> None:
    done = whorl(
        "inspect", "gemma-3-4b", "--trained", "32768", "--parity", "transformers", "--json"
    )
    found = json.loads(done.out)
    assert found["parity"] == "transformers"
    assert {group["training_length"] for group in found["groups"]} == {32_768}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["llama-3.1-8"], "no preset of that name; did you mean 'llama-3.1-8b'?"),
        (["qwen3-8b", "--extend", "yran", "--factor", "2"], "did you mean 'yarn'?"),
        (["qwen3-8b", "--extend", "yarn"], "--extend needs --factor, the new length"),
        (["qwen3-8b", "--extend", "yarn", "--factor", "0"], "--factor must be a number above 0"),
        (["qwen3-8b", "--plot", "waves.gif"], "must end in .png, .svg, .html or .json"),
    ],
)
def test_errors(whorl: Callable[..., Any], args: list[str], message: str) -> None:
    done = whorl("inspect", *args)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert message in done.err


def test_nothing_to_draw(whorl: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4}))
    done = whorl("inspect", str(file), "--plot", str(tmp_path / "waves.png"))
    assert done.code == 2
    assert (
        "there is nothing to draw, because no layers have rotary positions along a text" in done.err
    )


def test_a_config_that_cannot_be_read_is_one_for_the_doctor(
    whorl: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "my config.json"
    sizes = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    path.write_text(json.dumps({**sizes, "rope_theta": "x", "head_dim": True}), encoding="utf-8")
    done = whorl("inspect", str(path))
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f". whorl doctor '{path}' explains 2 errors in it.\n")
    path.write_text(json.dumps({**sizes, "rope_theta": "x"}), encoding="utf-8")
    assert whorl("inspect", str(path)).err.endswith(" explains 1 error in it.\n")
    assert "whorl doctor" not in whorl("inspect", str(tmp_path / "absent.json")).err


@pytest.mark.slow
def test_two_models_side_by_side(whorl: Callable[..., Any]) -> None:
    done = whorl("inspect", "llama-3-8b", "llama-3.1-8b")
    assert done.code == 0
    assert "differ in context" in " ".join(done.out.split())
    assert max(map(len, done.out.splitlines())) <= 80
    rows = [line.split() for line in done.out.splitlines()]
    assert ["base", "500,000", "500,000"] in rows
    found = json.loads(whorl("inspect", "llama-3-8b", "llama-3-8b", "--json").out)
    assert found["verdict"] == "llama-3-8b and llama-3-8b treat positions alike."
    assert not any(fact["differs"] for fact in found["facts"])
    refused = whorl("inspect", "llama-3-8b", "llama-3.1-8b", "--extend", "yarn")
    assert "--extend is about one model; name one, or leave it out." in refused.err
