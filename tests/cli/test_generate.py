"""``whorl generate``: the text, its tokens, and errors in the words of the options."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.lab import DataConfig, ModelConfig, Run, RunConfig, TrainingConfig, train

for package in ("safetensors", "tomli_w"):
    pytest.importorskip(package)

Whorl = Callable[..., Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps, which has learned to write digits and blanks."""
    folder = tmp_path_factory.mktemp("run")
    text = folder / "text.txt"
    text.write_text("".join(f"{n} and {n * n} and on\n" for n in range(1500)))
    config = RunConfig(
        model=ModelConfig(layers=2, width=32, heads=2),
        data=DataConfig(files=(str(text),)),
        training=TrainingConfig(length=32, batch=4, steps=12, warmup=2),
    )
    return train(config, folder / "run").folder


def test_it_prints_the_prompt_and_what_follows(whorl: Whorl, run: Path) -> None:
    done = whorl("generate", str(run), "--prompt", "12 and", "--length", "40")
    assert done.code == 0
    assert done.out.startswith("12 and")
    assert "6 bytes of prompt, 40 new; cache dense; 14 bytes past the trained length" in done.out


def test_the_document(whorl: Whorl, run: Path) -> None:
    options = ["--prompt", "12 and", "--length", "40", "--json"]
    found = json.loads(whorl("generate", str(run), *options, "--cache", "none").out)
    model: Any = Run(run).load_model()
    want = model.generate(torch.tensor([list(b"12 and")]), 40)[0].tolist()
    assert found["tokens"] == want
    assert found["text"] == bytes(want).decode("utf-8", "replace")
    assert (found["prompt_tokens"], found["new_tokens"], found["window"]) == (6, 40, None)
    dense = json.loads(whorl("generate", str(run), *options).out)
    assert dense == {**found, "cache": "dense"}
    sinks = json.loads(whorl("generate", str(run), *options, "--cache", "sinks").out)
    assert sinks["window"] == 32
    tokens = model.generate(torch.tensor([list(b"12 and")]), 40, cache="sinks", window=32)
    assert sinks["tokens"] == tokens[0].tolist()


def test_bytes_that_are_no_text_or_commands(
    whorl: Whorl, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(model: Any, tokens: torch.Tensor, steps: int, **options: Any) -> torch.Tensor:
        return torch.cat((tokens, torch.tensor([[10, 0xC3, 0x1B, 9, 0x7A]])), 1)

    monkeypatch.setattr("whorl.lab.generate.generate_tokens", add)
    done = whorl("generate", str(run), "--prompt", "é")
    assert done.out.startswith("é\n\ufffd\\x1b\tz\n")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prompt", ""], "error: --prompt must not be empty"),
        (["--prompt", "a", "--cache", "dense", "--window", "8"], "error: --window must be None wi"),
        (["--prompt", "a", "--cache", "sinks", "--window", "4"], "error: --sinks must be an int f"),
        (["--prompt", "a", "--temperature", "-1"], "error: --temperature must be 0, for the most"),
        (["--prompt", "a", "--seed", "-1"], "error: --seed must be a whole number of at least 0"),
    ],
)
def test_errors_name_the_options(whorl: Whorl, run: Path, options: list[str], words: str) -> None:
    done = whorl("generate", str(run), *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(words)


def test_runs_without_text(whorl: Whorl, run: Path, tmp_path: Path) -> None:
    done = whorl("generate", str(tmp_path), "--prompt", "a")
    assert done.code == 2
    assert "is not the folder of a run: it has no config.toml" in done.err
    config = replace(Run(run).load_config(), data=DataConfig(task="copy"))
    train(config, tmp_path / "copy")
    done = whorl("generate", str(tmp_path / "copy"), "--prompt", "a")
    assert "was trained on the task 'copy', whose rows are no text; choose a run" in done.err
