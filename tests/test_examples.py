"""The scripts of examples/ run, on small models and without a network."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hf.models import build_model

EXAMPLES = Path(__file__).parents[1] / "examples"
Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a script in this process, which has loaded what takes long; what it prints."""

    def call(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return call


def test_t5_long_input(run: Run) -> None:
    out = run("t5_long_input.py")
    assert "Installation(T5EncoderModel, family='T5', changes=7)" in out
    assert float(out.split()[-1]) < 1e-4


def test_deberta_twice_as_fast(run: Run) -> None:
    out = run("deberta_twice_as_fast.py")
    name = "DebertaV2ForSequenceClassification"
    assert f"Installation({name}, family='DeBERTa', changes=3)" in out
    assert float(out.split()[-1]) < 1e-4


def test_own_encoding(run: Run) -> None:
    out = run("own_encoding.py")
    assert "Installation(LlamaForCausalLM, family='rotary', changes=3)" in out
    first, *_, last = [line.partition("weights ")[2] for line in out.splitlines()[1:]]
    assert first != last  # the numbers of the encoding are trained


def save_model(folder: Path, kind: str) -> str:
    """Save a small model and a tokenizer of a few words; returns the folder."""
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    words = ["Positions", "in", "a", "Transformer", "are", "unknown"]
    vocabulary = {word: n for n, word in enumerate([*words, *map(str, range(114))])}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="unknown")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="unknown").save_pretrained(folder)
    build_model(kind).save_pretrained(folder)
    return str(folder)


def test_install_and_generate(run: Run, tmp_path: Path) -> None:
    out = run("install_and_generate.py", save_model(tmp_path, "bloom"))
    assert "Installation(BloomForCausalLM, family='BLOOM', changes=4)" in out
    assert out.endswith("the same text as without whorl: True\n")


def test_stream_without_end(run: Run, tmp_path: Path) -> None:
    """More tokens than the cache holds: memory is that of 260 to 520 tokens, each 384 bytes."""
    out = run("stream_without_end.py", save_model(tmp_path, "llama"), "300")
    assert out.endswith("303 tokens, 0.2 MB of keys and values\n")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
