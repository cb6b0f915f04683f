"""Masking of text for encoders: BERT's shares, whole words, the same again at every length."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from whorl.lab import DataConfig, ModelConfig, RunConfig
from whorl.lab.corpus import load_corpus
from whorl.lab.data import TokenBatch, open_data_source
from whorl.lab.masking import choose_tokens, mask_tokens

MASK = 256


def make_encoder(small: RunConfig, **data: Any) -> RunConfig:
    model = replace(small.model, kind="encoder")
    return replace(small, model=model, data=replace(small.data, **data))


def read_text(batch: TokenBatch) -> list[bytes]:
    """The rows as they were before masking."""
    text = torch.where(batch.targets >= 0, batch.targets, batch.tokens)
    return [bytes(row) for row in text.tolist()]


def test_shares_of_bert() -> None:
    """Within five standard deviations of 15 % chosen, and of these 80 %, 10 % and 10 %."""
    source = torch.Generator().manual_seed(0)
    tokens = torch.randint(MASK, (200, 500), generator=source)
    chosen, _ = choose_tokens(torch.arange(500).expand(200, 500), source)
    read = mask_tokens(tokens, chosen, MASK, source)
    count = int(chosen.sum())
    assert count / 100_000 == pytest.approx(0.15, abs=5 * (0.15 * 0.85 / 100_000) ** 0.5)
    masked = float((read[chosen] == MASK).float().mean())
    same = float((read[chosen] == tokens[chosen]).float().mean())
    assert masked == pytest.approx(0.8, abs=5 * (0.8 * 0.2 / count) ** 0.5)
    # A random token is the old one in one case of 256.
    assert same == pytest.approx(0.1 + 0.1 / MASK, abs=5 * (0.1 * 0.9 / count) ** 0.5)
    assert torch.equal(read[~chosen], tokens[~chosen])
    assert int(read.max()) == MASK


def test_training_has_targets_that_are_not_masked(small: RunConfig) -> None:
    source = open_data_source(make_encoder(small))
    batches = [source.get_batch(n) for n in range(60)]
    asked = torch.cat([b.tokens[b.targets >= 0] for b in batches])
    assert 0.7 < float((asked == MASK).float().mean()) < 0.9


@pytest.mark.parametrize("masking", ["tokens", "words"])
def test_it_is_the_same_again(small: RunConfig, masking: str) -> None:
    config = make_encoder(small, masking=masking)
    one, two = open_data_source(config), open_data_source(config)
    for a, b in (
        (one.get_batch(5), two.get_batch(5)),
        (one.get_validation(), two.get_validation()),
        (one.get_evaluation(32), two.get_evaluation(32)),
    ):
        assert torch.equal(a.tokens, b.tokens)
        assert torch.equal(a.targets, b.targets)
    assert not torch.equal(one.get_batch(5).tokens, one.get_batch(6).tokens)


@pytest.mark.parametrize("masking", ["tokens", "words"])
def test_every_length_has_the_same_masked_tokens(small: RunConfig, masking: str) -> None:
    source = open_data_source(make_encoder(small, masking=masking))
    short = source.get_evaluation(16)
    long = source.get_evaluation(128)
    assert torch.equal(long.tokens[:, -16:], short.tokens)
    assert torch.equal(long.targets[:, -16:], short.targets)
    assert not bool(long.judged[:, :-16].any())


def test_whole_words_of_bytes(small: RunConfig) -> None:
    """A regular expression finds the words again: all bytes of one are asked, or none."""
    source = open_data_source(make_encoder(small, masking="words"))
    partly = 0
    for batch in (source.get_batch(1), source.get_batch(2), source.get_validation()):
        for row, asked in zip(read_text(batch), batch.targets >= 0, strict=True):
            for word in re.finditer(rb"[A-Za-z0-9_]+|.", row, re.DOTALL):
                inside = asked[word.start() : word.end()]
                assert bool(inside.all()) or not bool(inside.any())
                partly += len(inside) > 1 and bool(inside.any())
    assert partly > 5
    tokens = open_data_source(make_encoder(small)).get_validation()
    assert not torch.equal(tokens.targets, source.get_validation().targets)


def test_words_of_bytes_with_accents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("é_1 b.." * 20)
    found = load_corpus([str(tmp_path)], words=True)
    assert found.words is not None
    assert found.words.train[:8].tolist() == [0, 0, 0, 0, 1, 2, 3, 4]  # é has two bytes


def write_tokenizer(path: Path, *, splits: bool) -> str:
    tokenizers = pytest.importorskip("tokenizers")
    letters = {letter: n for n, letter in enumerate("[abcdefghijklmnopqrstuvwxyz.0123456789 :\n")}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(letters, [], unk_token="["))
    if splits:
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(path))
    return str(path)


def test_whole_words_of_a_tokenizer(small: RunConfig, tmp_path: Path) -> None:
    """Every letter is a token, and the tokenizer splits at blanks and punctuation."""
    path = write_tokenizer(tmp_path / "tokenizer.json", splits=True)
    found = load_corpus(small.data.files, path, words=True)
    assert found.words is not None
    text = "line 0 of text"
    expected = [n for n, word in enumerate(text.split()) for _ in word]
    assert found.words.train[: len(expected)].tolist() == expected
    batch = open_data_source(make_encoder(small, tokenizer=path, masking="words")).get_batch(1)
    assert bool((batch.targets >= 0).any(1).all())


def test_a_tokenizer_without_words_is_refused(small: RunConfig, tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "tokenizer.json", splits=False)
    with pytest.raises(ValueError, match=r"'words' needs a tokenizer that splits text into words"):
        load_corpus(small.data.files, path, words=True)


def test_words_are_for_encoders_on_text() -> None:
    with pytest.raises(
        ValueError, match=r"data.masking = 'words' is for an encoder on text; got m"
    ):
        RunConfig(data=DataConfig(masking="words"))
    with pytest.raises(ValueError, match=r"and data.task = 'copy'. Leave it out"):
        RunConfig(model=ModelConfig(kind="encoder"), data=DataConfig(task="copy", masking="words"))
    with pytest.raises(ValueError, match=r"data.masking 'word' is unknown; did you mean 'words'"):
        DataConfig(masking="word")  # type: ignore[arg-type]
